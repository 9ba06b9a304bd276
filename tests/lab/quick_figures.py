"""Figures are saved at few dots per inch, because drawing them takes most of a test's time."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from matplotlib.figure import Figure


@contextmanager
def coarse_figures() -> Iterator[None]:
    savefig = Figure.savefig

    def save_coarsely(figure: Figure, target: object, **options: object) -> None:
        dpi = {"dpi": 20} if options.get("format") == "png" else {}
        savefig(figure, target, **options, **dpi)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", save_coarsely)
        yield


coarse = pytest.fixture(coarse_figures)
