"""The pictures of the docs, from the demo: python tools/screenshots.py [FOLDER of onesigma demo]

Writes docs/demo.png, docs/report.png and docs/live.png. Without a folder it runs the demo first.
It needs a Chromium, and playwright of the test dependencies.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import sync_playwright

DOCS = Path(__file__).parents[1] / "docs"
ONESIGMA = [
    sys.executable,
    "-c",
    "import sys; from onesigma.cli.main import main; sys.exit(main())",
]
SPEED = 4  # of the recording
SHOWN_AT = 67  # seconds: a drifting sensor, two exercises and a dead axis are in view
# A page that holds the report twice: on a desk and on a phone.
BOTH = """<body style="margin:0;display:flex;gap:24px;background:#8d939c">
<iframe src="{page}" style="border:0;width:1100px;height:1180px"></iframe>
<iframe src="{page}#classes" style="border:0;width:390px;height:1180px"></iframe></body>"""


def picture_report(browser: Any, page: Path) -> None:
    shot = browser.new_page(viewport={"width": 1514, "height": 1180})
    both = page.with_name("both.html")
    both.write_text(BOTH.format(page=page.name))
    shot.goto(both.resolve().as_uri())
    shot.screenshot(path=DOCS / "report.png")
    both.unlink()


def picture_live(browser: Any) -> None:
    command = [*ONESIGMA, "live", "--demo", "--speed", str(SPEED)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as live:
        try:
            assert live.stdout is not None
            (url,) = re.findall(r"http\S+", live.stdout.readline())
            shot = browser.new_page(viewport={"width": 1000, "height": 800})
            shot.goto(url)
            # A function, not an expression: the page's policy forbids to evaluate text.
            late = """wanted => {
                const [minutes, seconds] = document.getElementById("time").textContent.split(":");
                return 60 * minutes + Number(seconds) >= wanted }"""
            shot.wait_for_function(late, arg=SHOWN_AT, timeout=600_000)
            shot.get_by_role("button", name="Pause").click()
            shot.screenshot(path=DOCS / "live.png", full_page=True)
        finally:
            live.terminate()


def main() -> None:
    with TemporaryDirectory() as folder, sync_playwright() as running:
        out = Path(sys.argv[1] if len(sys.argv) > 1 else folder)
        if len(sys.argv) == 1:
            subprocess.run([*ONESIGMA, "demo", "--output", folder], check=True)
        shutil.copy(out / "demo.png", DOCS / "demo.png")
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = running.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        picture_report(browser, out / "demo.html")
        picture_live(browser)
        browser.close()


if __name__ == "__main__":
    main()
