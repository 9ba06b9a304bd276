"""What mkdocs has to know of this repository.

Pages that live beside what they describe (the README, how to add a rule) are part of the site, and
links work on both sides: a link to a file that has a page goes to that page, one to any other file
of the repository becomes its name.
"""

import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
# File of the repository → page of the site, or the file itself.
ELSEWHERE = {
    f"examples/{file.name}": f"examples/{file.name}" for file in ROOT.glob("examples/*.py")
}
ELSEWHERE |= {
    "README.md": "index.md",
    "CHANGELOG.md": "changes.md",
    "SECURITY.md": "security.md",
    "examples/README.md": "examples.md",
    "examples/firmware/README.md": "firmware.md",
    "src/onesigma/rules/README.md": "rules.md",
}
HOME = {page: file for file, page in ELSEWHERE.items()}
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for file, page in ELSEWHERE.items():
        text = (ROOT / file).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    here = page.file.src_uri
    source = PurePosixPath(HOME.get(here, f"docs/{here}"))

    def moved(link: re.Match[str]) -> str:
        bang, label, target, anchor = link.groups()
        file = os.path.normpath(source.parent / target)
        if file.startswith("docs/"):
            destination = file.removeprefix("docs/")
        elif file in ELSEWHERE:
            destination = ELSEWHERE[file]
        elif (ROOT / file).exists():
            return label
        else:
            return link[0]  # points at nothing: mkdocs says so
        return f"{bang}[{label}]({os.path.relpath(destination, Path(here).parent)}{anchor or ''})"

    return LINK.sub(moved, markdown)
