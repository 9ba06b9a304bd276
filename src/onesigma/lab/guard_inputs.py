"""What a guard is tested on: clean input, shifted, of no class, far from all, and broken.

    task = load("motion", root)       motion, speech; kept aside until the end: body

Each kind is made in the units of the sensor, as it would happen there, and then standardised as the
network takes it. Labels of shifted input are those of the test inputs. Real data throughout, except
what says random, tone or flat.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from onesigma.lab.datasets import dsads, esc, motionsense, speech
from onesigma.lab.datasets.motion import (
    MotionSet,
    Recording,
    only_class,
    read_off,
    without_class,
)
from onesigma.lab.datasets.split import Splits

GRAVITY = 9.81
FEW = 300  # inputs of each far and broken kind
Kinds = dict[str, Tensor]
Sound = npt.NDArray[np.float64]


@dataclass(frozen=True)
class GuardTask:
    """A task, and input that the network should not, or only with care, be trusted on.

    Attributes:
        splits: standardised; other people in each.
        shifted: the test inputs as another sensor or place would give them; the labels hold.
        unknown: real input of classes that the network does not know.
        far: input that is nothing like the data.
        broken: what a fault or a mistake makes of the test inputs.
    """

    splits: Splits
    shifted: Kinds
    unknown: Kinds
    far: Kinds
    broken: Kinds


def load(name: str, root: Path | None = None) -> GuardTask:
    return TASKS[name](root)


def _motion_task(
    dataset: MotionSet,
    recordings: list[Recording],
    unknown: dict[str, list[Recording]],
    other: Tensor,
) -> GuardTask:
    """``other`` are raw windows of another device, in the same units."""
    parts = dataset.parts(recordings)
    splits = dataset.splits(parts)
    raw = dataset.windows(parts["test"]).inputs
    made = {
        "shifted": _shifted_motion(raw, splits.input_std),
        "unknown": {
            name: dataset.windows(dataset.parts(found)["test"]).inputs
            for name, found in unknown.items()
        },
        "far": {"another device": other, **_far_motion(raw, splits)},
        "broken": _broken_motion(raw[_some(len(raw))], splits),
    }
    ready = {
        group: {name: splits.standardise(x) for name, x in kinds.items()}
        for group, kinds in made.items()
    }
    return GuardTask(splits, **ready)


def _some(count: int) -> Tensor:
    return torch.randperm(count, generator=torch.Generator().manual_seed(5))[:FEW]


def turned(raw: Tensor, degrees: float, axis: int) -> Tensor:
    """Every triad of axes turned about one of its axes, as a sensor that was mounted so."""
    angle = math.radians(degrees)
    first, second = [k for k in range(3) if k != axis]
    matrix = torch.eye(3)
    matrix[first, first] = matrix[second, second] = math.cos(angle)
    matrix[first, second], matrix[second, first] = -math.sin(angle), math.sin(angle)
    triads = raw.reshape(len(raw), -1, 3, raw.shape[-1])
    return torch.einsum("ij,nsjt->nsit", matrix, triads).reshape(raw.shape)


def _shifted_motion(raw: Tensor, std: Tensor) -> Kinds:
    g = torch.Generator().manual_seed(3)
    lost = raw.clone()
    lost[:, 2] = 0.0
    return {
        **{
            f"turned by {degrees}° about {'xyz'[axis]}": turned(raw, degrees, axis)
            for degrees, axis in ((30, 2), (90, 2), (90, 0))
        },
        "gain 0.6": 0.6 * raw,
        "gain 1.6": 1.6 * raw,
        "one axis lost": lost,
        **{
            f"noise of {k:g} std": raw + k * std * torch.randn(raw.shape, generator=g)
            for k in (0.5, 1.5)
        },
    }


def _far_motion(raw: Tensor, splits: Splits) -> Kinds:
    g = torch.Generator().manual_seed(4)
    shape = [FEW, *raw.shape[1:]]
    walk = torch.randn(shape, generator=g).cumsum(-1)
    walk = walk / walk.std(-1, keepdim=True)
    time = torch.arange(shape[-1]) / shape[-1]
    pitch = 2 + 38 * torch.rand(FEW, 1, 1, generator=g)
    phase = 2 * math.pi * torch.rand(FEW, shape[1], 1, generator=g)
    tone = torch.sin(2 * math.pi * pitch * time + phase)
    flat = torch.randn([FEW, shape[1], 1], generator=g).expand(shape)
    white = torch.randn(shape, generator=g)
    kinds = {"random walk": walk, "tone": 1.4 * tone, "flat": flat, "random noise": white}
    return {name: splits.input_mean + splits.input_std * x for name, x in kinds.items()}


def _broken_motion(raw: Tensor, splits: Splits) -> Kinds:
    acc = torch.arange(raw.shape[1]) % 6 < 3
    dead, stuck, saturated, swapped = (raw.clone() for _ in range(4))
    dead[:, :3] = 0.0
    stuck[:, 1] = raw[:, 1, :1]
    saturated[:, 0] = raw[:, 0].max()
    pairs = raw.reshape(len(raw), -1, 2, 3, raw.shape[-1])
    swapped = pairs.flip(2).reshape(raw.shape)
    back = splits.input_mean + splits.input_std * raw  # what standardise makes of it is raw again
    return {
        "dead sensor": dead,
        "stuck axis": stuck,
        "saturated axis": saturated,
        "wrong units": torch.where(acc[:, None], GRAVITY * raw, raw),
        "forgotten scaling": back,
        "scaled twice": splits.standardise(raw),
        "swapped sensors": swapped,
    }


def _motionsense(root: Path | None) -> GuardTask:
    dataset, recordings = motionsense.SAMPLES, motionsense.recordings(root)
    label = dataset.class_names.index("jog")
    names = tuple(name for name in dataset.class_names if name != "jog")
    known = replace(dataset, class_names=names, name="MotionSense without jog")
    other = _other_device(dsads.recordings_b(root), 1 / GRAVITY, 5.0, motionsense.INSTANTS)
    return _motion_task(
        known, without_class(recordings, label), {"jog": only_class(recordings, label)}, other
    )


def _body(root: Path | None) -> GuardTask:
    """DSADS: torso, left arm, right leg. The other device is a phone, worn three times."""
    other = _other_device(motionsense.recordings(root), GRAVITY, 5.0, 125).repeat(1, 3, 1)
    return _motion_task(dsads.SERIES_A, dsads.recordings_a(root), dsads.foreign_a(root), other)


def _other_device(
    recordings: list[Recording], scale: float, seconds: float, instants: int
) -> Tensor:
    """Windows of a recording each, the accelerations in the units of the task."""
    windows = []
    for recording in recordings:
        length = round(seconds * recording.rate)
        if len(recording.signal) > 2 * length:
            middle = len(recording.signal) // 2
            signal = recording.signal[middle : middle + length].copy()
            signal[:, :3] *= scale
            windows.append(read_off(signal[None], instants)[0].T)
    found = torch.from_numpy(np.stack(windows)).float()
    return found[_some(len(found))]


def _speech(root: Path | None) -> GuardTask:
    clips = speech.read(root)
    splits, sound = speech.splits(clips), clips.audio[clips.is_test].astype(np.float64)
    noise = np.concatenate([each[:, :16000] for each in esc.load(root).values()]).astype(np.float64)
    few, rng = sound[_some(len(sound)).numpy()], np.random.default_rng(6)
    raw = {
        "shifted": _shifted_sound(sound, noise, rng),
        "far": _far_sound(noise, rng),
        "broken": _broken_sound(few),
    }
    made = {
        group: {name: splits.standardise(speech.features(x)) for name, x in kinds.items()}
        for group, kinds in raw.items()
    }
    made["broken"] |= {
        "forgotten scaling": speech.features(few).float(),
        "scaled twice": splits.standardise(splits.standardise(speech.features(few))),
        "swapped coefficients": splits.standardise(speech.features(few).flip(2)),
    }
    return GuardTask(splits, unknown={"unknown words": splits.unknown}, **made)


def _shifted_sound(sound: Sound, noise: Sound, rng: np.random.Generator) -> dict[str, Sound]:
    chosen = noise[rng.integers(len(noise), size=len(sound))]
    power, other = ((x**2).mean(1, keepdims=True) + 1e-9 for x in (sound, chosen))
    noisy = {
        f"ambient noise, {db} dB": sound + chosen * np.sqrt(power / other / 10 ** (db / 10))
        for db in (20, 10, 0)
    }
    stretch = np.array([np.interp(np.arange(16000) * 1.2, np.arange(16000), s) for s in sound])
    muffled = np.fft.irfft(np.fft.rfft(sound) * (np.arange(8001) < 2000), 16000)
    return {
        **noisy,
        "gain 0.1": 0.1 * sound,
        "gain 4": np.clip(4 * sound, -32768, 32767),
        "higher voice": stretch,
        "muffled": muffled,
    }


def _far_sound(noise: Sound, rng: np.random.Generator) -> dict[str, Sound]:
    time = np.arange(16000) / 16000
    pitch, size = 100 * 40 ** rng.random((FEW, 1)), 10 ** rng.uniform(2.5, 4, (FEW, 1))
    walk = rng.standard_normal((FEW, 16000)).cumsum(1)
    return {
        "ambient noise": noise[rng.permutation(len(noise))[:FEW]],
        "tone": size * np.sin(2 * np.pi * pitch * time),
        "random noise": size * rng.standard_normal((FEW, 16000)),
        "random walk": size * walk / walk.std(1, keepdims=True),
    }


def _broken_sound(sound: Sound) -> dict[str, Sound]:
    stuck = sound.copy()
    stuck[:, 4000:] = stuck[:, 4000:4001]
    return {
        "dead sensor": np.zeros_like(sound),
        "stuck": stuck,
        "wrong units": sound / 32768,
        "saturated": np.clip(100 * sound, -32768, 32767),
    }


TASKS: dict[str, Callable[[Path | None], GuardTask]] = {
    "motion": _motionsense,
    "speech": _speech,
    "body": _body,
}
