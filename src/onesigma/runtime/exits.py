"""A folder of segments as one model that stops as soon as it is sure: numpy and onnxruntime."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from onesigma.errors import FileError, InputError
from onesigma.runtime.model import EXITS, Arrays, Model, Prediction, hide_rows, open_bytes, split

FORMAT = 1
LEAVE = "leave"  # the output that says which rows may


class ExitingModel(Model):
    """An exported model with exits: rows that have left are not computed any further.

    Attributes:
        costs: for each exit the multiply-adds until then, as a share of the network's.
    """

    def __init__(self, segments: Sequence[Model], costs: Sequence[float]) -> None:
        super().__init__(segments[0]._session, segments[-1].metadata)
        self._segments, self.costs = tuple(segments), tuple(costs)

    def _answer(self, feed: Arrays, batch: int) -> Prediction:
        """``exit`` says which exit answered, the last number is the whole network."""
        return Prediction.cat([self._exit(part) for part in split(feed, batch)])

    def _exit(self, known: Arrays) -> Prediction:
        rows = np.arange(len(next(iter(known.values()))))
        found, order = list[Prediction](), list[npt.NDArray[np.intp]]()
        for place, segment in enumerate(self._segments):
            given = {each.name: known[each.name] for each in segment._inputs}
            made = hide_rows(segment._run(given, len(rows)), given.values())
            leaves = made.pop(LEAVE, np.ones(len(rows), bool))
            said = {name: made.pop(name)[leaves] for name in self._outputs}
            if leaves.any():
                exits = np.full(int(leaves.sum()), place)
                dim = self.metadata["class_dim"]
                found.append(Prediction(**said, exit=exits, class_dim=dim))
                order.append(rows[leaves])
            rows = rows[~leaves]
            if not len(rows):
                break
            known = {name: value[~leaves] for name, value in (known | made).items()}
        return Prediction.cat(found).take(np.concatenate(order).argsort())

    def cost(self, prediction: Prediction) -> npt.NDArray[np.float64]:
        """For each input the multiply-adds spent, as a share of the network's without exits."""
        if prediction.exit is None:
            raise InputError("The prediction has no exits.")
        spent: npt.NDArray[np.float64] = np.asarray(self.costs)[prediction.exit]
        return spent


def load_exits(folder: Path, threads: int | None) -> ExitingModel:
    """Open a folder that ``onesigma.export`` wrote. Errors as for ``load``."""
    again = f"{folder.name}: its exits cannot be read"
    try:
        content = json.loads((folder / EXITS).read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise FileError(f"{again}: they have format {content['format']}, expected {FORMAT}.")
        costs = [float(cost) for cost in content["costs"]]
        listed = [(str(each["file"]), str(each["sha256"])) for each in content["segments"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise FileError(f"{again} ({error}). Export the model again.") from error
    if not listed or len(listed) != len(costs):
        raise FileError(f"{again}: a cost is needed for each segment. Export the model again.")
    segments = [_segment(folder, *each, threads) for each in listed]
    known = {each.name for each in segments[0]._inputs}
    for segment in segments:
        if not known.issuperset(each.name for each in segment._inputs):
            raise FileError(f"{again}: a segment needs what none before it computes.")
        known |= {each.name for each in segment._session.get_outputs()}
    return ExitingModel(segments, costs)


def _segment(folder: Path, file: str, digest: str, threads: int | None) -> Model:
    path = folder / Path(file).name
    if not path.is_file():
        raise FileError(f"{path}: there is no such file.")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != digest:
        raise FileError(f"{path} is not the one that {EXITS} names. Export the model again.")
    return open_bytes(content, path.name, threads)
