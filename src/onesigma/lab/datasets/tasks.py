"""The paper's three tasks, each with the best data at hand: the official set, else a stand-in.

task = tasks.load("hhar", root)
task.splits                                  what to train and test on, and under which name
task.windows(noisy(task.recordings["test"]))     motion: the same windows, noise added first
task.inputs(noisy(task.test_audio))          speech: the same clips, noise added first
task.foreign                                 inputs of no class, by what they are
"""

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from onesigma.errors import DataError
from onesigma.lab.datasets import dsads, hhar, motionsense, official, opportunity, speech
from onesigma.lab.datasets.motion import (
    MotionSet,
    Part,
    Recording,
    only_class,
    read_recordings,
    without_class,
    write_recordings,
)
from onesigma.lab.datasets.prepared import ENVIRONMENT, data_root
from onesigma.lab.datasets.split import Split, Splits


@dataclass(frozen=True)
class MotionTask:
    """Recordings of motion sensors, as sensed, and the inputs made of them."""

    splits: Splits
    recordings: dict[Part, list[Recording]]
    foreign: dict[str, Tensor]
    dataset: MotionSet

    def windows(self, recordings: Sequence[Recording]) -> Split:
        """The inputs the network takes, in the order of `splits` for the same recordings."""
        split = self.dataset.windows(recordings)
        return replace(split, inputs=self.splits.standardise(split.inputs))


@dataclass(frozen=True)
class SpeechTask:
    """Spoken words, as recorded, and the inputs made of them."""

    splits: Splits
    clips: speech.Clips
    foreign: dict[str, Tensor]

    @property
    def test_audio(self) -> npt.NDArray[np.int16]:
        """The test clips (n, 16000), in the order of `splits.test`."""
        return self.clips.audio[self.clips.is_test]

    def inputs(self, audio: npt.NDArray[Any]) -> Tensor:
        """The inputs the network takes, of sound (n, 16000) on the scale of int16."""
        return self.splits.standardise(speech.features(audio))


Task = MotionTask | SpeechTask


@dataclass(frozen=True)
class MotionSource:
    """A dataset of motion, how to read it, and the prepared file it is in, if not official."""

    dataset: MotionSet
    read: Callable[[Path], list[Recording]]
    official: str = ""
    file: str = ""
    foreign: Callable[[Path], dict[str, list[Recording]]] = lambda root: {}


def _read_hhar(folder: Path) -> list[Recording]:
    """HHAR takes minutes to parse, so the recordings are kept in the cache."""
    files = [folder / f"{kind}_{s}.csv" for kind in hhar.KINDS for s in hhar.SENSORS]
    states = [(p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in files if p.is_file()]
    key = hashlib.sha256(repr((hhar.VERSION, states)).encode()).hexdigest()[:16]
    path = official.cache_folder() / "recordings" / f"hhar-{key}.npz"
    if path.is_file():
        # A damaged file is as good as none.
        with suppress(DataError):
            return read_recordings(path)
    recordings = hhar.recordings(folder)
    if recordings:
        # Only time is lost if it cannot be written.
        with suppress(OSError):
            write_recordings(path, recordings)
    return recordings


MOTION = {
    "hhar": MotionSource(hhar.HHAR, _read_hhar, official="hhar"),
    "motionsense": MotionSource(
        motionsense.MOTIONSENSE, motionsense.recordings, file=motionsense.FILE
    ),
    "dsads-b": MotionSource(
        dsads.DSADS_B, dsads.recordings_b, file=dsads.FILE, foreign=dsads.foreign_b
    ),
    "opportunity": MotionSource(
        opportunity.OPPORTUNITY, opportunity.recordings, official="opportunity"
    ),
    "opportunity-by-size": MotionSource(
        opportunity.OPPORTUNITY_BY_SIZE, opportunity.recordings, official="opportunity"
    ),
    "dsads-a": MotionSource(
        dsads.DSADS_A, dsads.recordings_a, file=dsads.FILE, foreign=dsads.foreign_a
    ),
}
# Task → its datasets; without a choice, the first that is there.
DATASETS = {
    "hhar": ("hhar", "motionsense", "dsads-b"),
    "opportunity": ("opportunity", "opportunity-by-size", "dsads-a"),
    "speech": ("speech-archive", "speech-prepared"),
}


def load(
    task: str, root: Path | None = None, *, dataset: str | None = None, held_out: str | None = None
) -> Task:
    """The data of one of the paper's tasks.

    Args:
        task: "hhar", "opportunity" or "speech".
        root: the folder of the datasets; see `prepared.data_root`. Official archives that
            `official.fetch` brought to the cache are found without it.
        dataset: one of DATASETS[task]; None takes the first that is there.
        held_out: a class to leave out of motion data altogether, as foreign input.
    """
    if task not in DATASETS or dataset not in (None, *DATASETS[task]):
        choice = DATASETS.get(task, tuple(DATASETS))
        raise ValueError(f"No {dataset or task!r}: choose one of {', '.join(choice)}.")
    folder = root_if_any(root)
    chosen = dataset or next((name for name in DATASETS[task] if _place(name, folder)), None)
    place = chosen and _place(chosen, folder)
    if not chosen or not place:
        raise DataError(_absent(task, dataset, folder))
    if task != "speech":
        return load_motion(MOTION[chosen], place, held_out)
    clips = speech.read_archive(place) if chosen == "speech-archive" else speech.read(place)
    splits = speech.splits(clips)
    return SpeechTask(splits, clips, {"unknown words": splits.unknown})


def root_if_any(root: Path | None) -> Path | None:
    """The data root; none at all is no error yet, because an archive may be in the cache."""
    try:
        return data_root(root)
    except DataError:
        if root is not None:
            raise
        return None


def _place(dataset: str, root: Path | None) -> Path | None:
    """What the reader of the dataset takes: the official folder, or the root of the prepared."""
    if dataset == "speech-archive":
        return official.find("speech", root)
    if dataset in MOTION and MOTION[dataset].official:
        return official.find(MOTION[dataset].official, root)
    file = MOTION[dataset].file if dataset in MOTION else speech.FILE
    return root if root is not None and (root / file).is_file() else None


def _absent(task: str, dataset: str | None, root: Path | None) -> str:
    archive = official.OFFICIAL[task]
    return (
        f"No data for {dataset or task}: neither {archive.title} nor a prepared set is in "
        f"{root or 'a data root'} or in {official.cache_folder()}. Name the folder of the prepared "
        f"datasets (root, or {ENVIRONMENT}), or fetch the official archive from {archive.url} by "
        f"onesigma.lab.datasets.official.fetch({task!r})."
    )


def load_motion(source: MotionSource, place: Path, held_out: str | None = None) -> MotionTask:
    """A task of motion from where its reader finds it. See `load`."""
    dataset, parts = source.dataset, source.dataset.parts(source.read(place))
    foreign = {name: dataset.parts(found)["test"] for name, found in source.foreign(place).items()}
    if held_out is not None:
        if held_out not in dataset.class_names:
            raise ValueError(f"No class {held_out!r}: choose of {', '.join(dataset.class_names)}.")
        label = dataset.class_names.index(held_out)
        foreign[held_out] = only_class(parts["test"], label)
        parts = {part: without_class(recordings, label) for part, recordings in parts.items()}
        names = tuple(name for name in dataset.class_names if name != held_out)
        dataset = replace(dataset, class_names=names, name=f"{dataset.name}, without {held_out}")
    task = MotionTask(dataset.splits(parts), parts, {}, dataset)
    return replace(task, foreign={n: task.windows(found).inputs for n, found in foreign.items()})
