"""A page as a test reads it."""

from html.parser import HTMLParser

VOID = {"br", "img", "meta", "path", "use", "wbr"}


class Page(HTMLParser):
    """Checks that what is opened is closed; remembers addresses, names and plain text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.addresses, self.names, self.words = [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.addresses += [found[k] for k in ("src", "href", "xlink:href") if k in found]
        self.names += [found["id"]] if "id" in found else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)
