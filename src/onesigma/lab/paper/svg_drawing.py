"""An SVG figure of ``onesigma.lab.plots`` as part of a page, in the colours of the page."""

import re
from html import escape
from pathlib import Path

# The colours of the plots → those of page.css, so that a drawing follows light and dark.
_COLOURS = {
    "#ffffff": "card",
    "#222222": "ink",
    "#000000": "ink",
    "#555555": "soft",
    "#4d4d4d": "soft",
    "#8a8a8a": "faint",
    "#c3c8ce": "bar",
    "#0072b2": "blue",
    "#d55e00": "orange",
    "#009e73": "green",
    "#cc79a7": "pink",
}


def drawing(path: Path, caption: str, prefix: str) -> str:
    """An SVG file as part of the page; `prefix` keeps its ids apart from other drawings' ids."""
    svg = path.read_text(encoding="utf-8")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    svg = re.sub(r' (?:width|height)="[\d.]+pt"', "", svg)
    # A hundredth of a point is as fine as a screen; numbers below 1 are scales and stay.
    svg = re.sub(r"(?<![\d.])([1-9]\d*\.\d\d)\d+", r"\1", svg)
    for colour, name in _COLOURS.items():
        svg = svg.replace(colour, f"var(--{name})")
    label = f'<svg role="img" aria-label="{escape(caption)}"'
    return (
        f'<figure><div class="scroll">{svg.replace("<svg", label, 1)}</div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )
