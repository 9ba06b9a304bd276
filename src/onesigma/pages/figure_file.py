"""A figure as files: PNG for a page, SVG for print and for zooming in, both the same every time."""

from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure

from onesigma.storage.atomic import replacing


def save(figure: Figure, path: Path | str) -> None:
    """Write the figure to `path` as PNG and beside it as SVG, each whole or not at all."""
    # Without a salt and a date of its own, an SVG differs from run to run.
    with rc_context({"svg.hashsalt": "onesigma"}):
        for kind, metadata in (("png", {}), ("svg", {"Date": None})):
            with replacing(Path(path).with_suffix(f".{kind}")) as temporary:
                figure.savefig(temporary, format=kind, metadata=metadata)
