"""The page in a real browser: what it shows, what the reader can do, what it leaves alone."""

from contextlib import contextmanager
from queue import Queue
from threading import Thread

from pages.live.stand_in import feed, guarded_model, instants, serving

from onesigma.pages.live.feed import Feed
from onesigma.tables.stream import Lines

# Four windows: sure, unsure, sure, somewhat unsure. Their entropies are 0.04, 0.69, 0.04, 0.37.
LEVELS = [-5] * 4 + [0.1] * 4 + [5] * 4 + [2] * 4


# Waits for as many answers, as another viewer.
ANSWERS = """count => new Promise((done) => {
  const events = new EventSource("events");
  events.addEventListener("frame", ({ data }) => {
    count -= JSON.parse(data).answers.length;
    if (count <= 0) { events.close(); requestAnimationFrame(done); }
  });
})"""


@contextmanager
def view(browser, source, rule=None, model=None, **settings):
    """The page of a stream; whatever goes wrong in it, or leaves this machine, fails the test."""
    with serving(source, rule=rule, model=model, heartbeat=0.1) as server:
        page = browser.new_page(**settings)
        troubles, requests = [], []
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(server.url)
        Thread(target=server.player.run, daemon=True).start()
        try:
            yield page
            assert not troubles
            assert requests
            assert all(url.startswith((server.url, "data:")) for url in requests)
        finally:
            page.close()


def shows(page, element, text):
    """Waits until it does; the error says what was shown instead."""
    try:
        page.wait_for_function(
            "([id, text]) => document.getElementById(id).textContent.includes(text)",
            arg=[element, text],
        )
    except Exception:
        assert text in page.text_content(f"#{element}")
        raise


def slide(page, place):
    page.locator("#threshold").fill(str(place))


def test_the_answer_and_what_the_slider_makes_of_it(browser):
    with view(browser, feed(LEVELS, names=("x", "y"))) as page:
        shows(page, "state", "ended")
        shows(page, "label", "unsure")  # 0.37 is above 0.4 ln 2
        shows(page, "sure", "Most likely loud, 88 %")
        shows(page, "figures", "entropy 0.37 of at most 0.69 nats; its epistemic part 0.18")
        shows(page, "share", "Acts on 2 of 4 windows (50 %)")
        shows(page, "about", "some levels · 2 channels · windows of 0.08 s")
        rows = page.locator("#classes li").all_inner_texts()
        assert [row.split("\n") for row in rows] == [["quiet", "12 %"], ["loud", "88 %"]]
        shows(page, "status", "Most likely loud")
        assert page.locator("#status").get_attribute("aria-live") == "polite"
        slide(page, 700)
        shows(page, "limit", "0.49 nats")
        shows(page, "share", "Acts on 3 of 4")
        shows(page, "label", "loud")
        shows(page, "sure", "88 % sure")
        slide(page, 0)
        shows(page, "share", "Acts on 0 of 4")
        page.click("#reset")
        shows(page, "share", "Acts on 2 of 4")
        page.select_option("#score", "confidence")
        slide(page, 200)
        shows(page, "limit", "0.20")
        shows(page, "share", "Acts on 3 of 4")  # 1 − 0.88 < 0.2


def test_the_rule_of_the_model_is_where_it_starts(browser):
    rule = {"score": "epistemic", "threshold": 0.3}
    with view(browser, feed(LEVELS), rule=rule) as page:
        shows(page, "limit", "0.30 nats")
        shows(page, "share", "Acts on 3 of 4")
        assert page.input_value("#score") == "epistemic"
        shows(page, "reset", "own rule")


def test_odd_input_is_not_acted_on_wherever_the_slider_is(browser):
    levels = Queue()
    source = feed(iter(levels.get, None), names=("ax", "ay"))
    with view(browser, source, model=guarded_model()) as page:
        for level in [5] * 4 + [9] * 4:
            levels.put(level)
        shows(page, "label", "unfamiliar")
        shows(page, "act", "abstains")
        shows(page, "sure", "Unlike all known input. Most unusual: channel")
        shows(page, "figures", "unfamiliar below 0.02")
        assert page.get_attribute("#answer", "data-act") == "odd"
        for level in [30] * 4:
            levels.put(level)
        shows(page, "label", "broken input")
        shows(page, "sure", "channel ax: mean 30, known -10 … 10: other units?")
        slide(page, 1000)
        shows(page, "limit", "0.69")
        shows(page, "share", "Acts on 1 of 3 windows")
        shows(page, "share", "1 unfamiliar and 1 broken input: it never acts on these")
        assert page.text_content("#label") == "broken input"
        assert page.is_visible("#odd-key")
        shows(page, "drift", "No drift found in 3 inputs.")
        for level in [30] * 400:
            levels.put(level)
        shows(page, "drift", "Drift: ")
        assert page.get_attribute("#drift", "class") == "warn"
        for level in [5] * 4:
            levels.put(level)
        shows(page, "label", "loud")
        shows(page, "act", "acts")
        levels.put(None)
        shows(page, "state", "ended")


def test_without_a_guard_the_page_is_as_before(browser):
    with view(browser, feed([9] * 4)) as page:
        shows(page, "label", "loud")
        assert not page.is_visible("#odd-key")
        assert not page.is_visible("#drift")


def test_it_waits_pauses_and_goes_on(browser):
    levels = Queue()
    with view(browser, feed(iter(levels.get, None))) as page:
        shows(page, "state", "waiting for the stream")
        for level in [5] * 4:
            levels.put(level)
        shows(page, "label", "loud")
        page.click("#pause")
        shows(page, "state", "paused")
        for level in [-5] * 4:
            levels.put(level)
        page.evaluate(ANSWERS, 2)  # what comes meanwhile is kept and not shown
        assert page.text_content("#label") == "loud"
        page.click("#pause")
        shows(page, "label", "quiet")
        shows(page, "share", "of 2 windows")
        levels.put(None)
        shows(page, "state", "ended")


def test_lines_that_cannot_be_read_are_shown(browser):
    lines, text = Lines(2), Queue()
    with view(browser, Feed("text", lines.instants(iter(text.get, None)), lines=lines)) as page:
        for line in ("x,y,z", "1,2,3", "4,5,6"):
            text.put(line)
        shows(page, "trouble", "No line could be read yet: each must hold 2 numbers")
        shows(page, "bad", "2")
        shows(page, "state", "waiting for the stream")
        for line in ("1,2", "oops", "1,2", "1,2", "1,2", None):
            text.put(line)
        shows(page, "bad", "3")
        assert "warn" in page.locator("#bad").get_attribute("class")
        assert not page.is_visible("#trouble")


def test_why_a_stream_broke_off_is_shown(browser):
    def unplugged():
        yield from instants([1] * 4)
        raise OSError("the device is gone")

    with view(browser, Feed("device", unplugged())) as page:
        shows(page, "trouble", "The stream broke off: the device is gone")
        assert page.is_visible("#trouble")


def test_what_was_right_is_counted_where_the_truth_is_known(browser):
    notes = [(0, "quiet"), (4, "a foreign thing"), (8, "loud")]
    with view(browser, feed(LEVELS, notes=notes)) as page:
        shows(page, "state", "ended")  # before the page knows the model, no slider is heard
        slide(page, 1000)
        shows(page, "share", "Acts on 4 of 4")
        shows(page, "share", "it acts on 4, and 3 of those are right")
        slide(page, 700)
        shows(page, "share", "it acts on 3, and 3 of those are right.")
        shows(page, "share", "Without abstaining, 3 of 4 would be right.")


def test_it_fits_the_screen_light_and_dark(browser):
    with view(browser, feed(LEVELS), device_scale_factor=2, reduced_motion="reduce") as page:
        shows(page, "state", "ended")
        pictures = set()
        for width in (390, 1200):
            for scheme in ("light", "dark"):
                page.set_viewport_size({"width": width, "height": 800})
                page.emulate_media(color_scheme=scheme)
                page.wait_for_function("() => chart.width === 2 * chart.clientWidth")
                assert page.evaluate("document.documentElement.scrollWidth") <= width
                background = page.evaluate("getComputedStyle(document.body).backgroundColor")
                dark = sum(map(int, background.strip("rgb()").split(","))) < 3 * 128
                assert dark == (scheme == "dark")
                page.wait_for_function(
                    "seen => !seen.includes(chart.toDataURL())", arg=list(pictures)
                )
                pictures.add(page.evaluate("chart.toDataURL()"))
        drawn = "chart.getContext('2d').getImageData(0, 0, chart.width, chart.height).data"
        assert page.evaluate(f"new Set({drawn}).size") > 20  # shades: something is there
        page.hover("#chart", position={"x": 42, "y": 200})  # the first moments are at the left
        page.wait_for_function("seen => !seen.includes(chart.toDataURL())", arg=list(pictures))
        seen = page.evaluate("chart.toDataURL()")
        page.focus("#chart")
        page.keyboard.press("ArrowRight")
        page.wait_for_function("seen => chart.toDataURL() !== seen", arg=seen)


def test_a_displaced_page_says_so_and_does_not_come_back(browser):
    with serving(feed(LEVELS), viewers=1, heartbeat=0.1) as server:
        first, second = browser.new_page(), browser.new_page()
        first.goto(server.url)
        shows(first, "model", "stand-in")
        second.goto(server.url)
        shows(first, "state", "too many pages")
        shows(first, "trouble", "Reload to continue here")
        first.wait_for_timeout(2500)  # longer than it waits before it connects again
        shows(second, "state", "waiting")
        first.close()
        second.close()
