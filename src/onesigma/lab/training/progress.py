"""Progress bars on standard error, where tqdm is installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from onesigma.lab.training.train import OnEpoch


@contextmanager
def epoch_bar(
    label: str, epochs: int, *, position: int = 0, show: bool = True
) -> Iterator[OnEpoch]:
    """A bar over the epochs of one training, to be handed to ``train`` as its ``on_epoch``."""
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        yield lambda losses: None
        return
    # In a log file a line a minute is enough.
    interval = 0.1 if sys.stderr.isatty() else 60.0
    with tqdm(
        total=epochs,
        desc=label,
        unit="epoch",
        position=position,
        mininterval=interval,
        disable=not show,
    ) as bar:

        def on_epoch(losses: Sequence[float]) -> None:
            figures = {"validation_loss": f"{losses[-1]:.3f}", "best": f"{min(losses):.3f}"}
            bar.set_postfix(figures, refresh=False)
            bar.update(len(losses) - bar.n)

        yield on_epoch
