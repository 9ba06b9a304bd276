"""Inputs as they are not in training: noise, a turned sensor, sound in noise. All seeded.

What goes in and comes out is standardised, as the networks take it; the caller's random state is
left as it was.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from onesigma.lab.datasets import ambient, esc, speech
from onesigma.lab.datasets.prepared import Splits


def add_noise(inputs: Tensor, std: float, seed: int = 0) -> Tensor:
    """Inputs plus normal noise of `std`, in units of the training data's standard deviation."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(inputs.shape, generator=generator, dtype=inputs.dtype)
    return inputs + std * noise


def rotate(inputs: Tensor, splits: Splits, degrees: float, seed: int = 0) -> Tensor:
    """Windows of a sensor worn turned: by `degrees`, about an axis drawn anew for each window.

    For windows (n, 6, time) or (n, 2, 3, time): accelerometer and gyroscope are in one case, so
    they turn alike. The turn is in raw units; standardised axes would not turn rigidly.
    """
    generator = torch.Generator().manual_seed(seed)
    axes = torch.randn(len(inputs), 3, generator=generator, dtype=torch.float64)
    turn = rotation(axes, math.radians(degrees)).to(inputs.dtype)
    raw = inputs * splits.input_std + splits.input_mean
    sensors = raw.reshape(len(inputs), 2, 3, -1)
    turned = torch.einsum("nij,nsjt->nsit", turn, sensors).reshape(inputs.shape)
    return (turned - splits.input_mean) / splits.input_std


def rotation(axes: Tensor, angle: float) -> Tensor:
    """Rotations (n, 3, 3) about `axes` (n, 3), of any length but 0.

    R = I + sin α K + (1 − cos α) K²,   K v = axis × v   (Rodrigues).
    """
    x, y, z = (axes / axes.norm(dim=1, keepdim=True)).unbind(1)
    zero = torch.zeros_like(x)
    rows = (zero, -z, y, z, zero, -x, -y, x, zero)
    cross = torch.stack(rows, dim=1).reshape(-1, 3, 3)
    identity = torch.eye(3, dtype=axes.dtype)
    return identity + math.sin(angle) * cross + (1 - math.cos(angle)) * cross @ cross


def speech_in_noise(
    splits: Splits, snr_db: float, root: Path | None = None, seed: int = 0
) -> Tensor:
    """The test clips of Speech Commands in real noise (ESC-10), in the order of `splits.test`.

    Mixed as sound, before the MFCC; standardised with the statistics of the clean training clips.
    """
    clips = speech.read(root)
    mixed = mix(clips.audio[clips.is_test], noise_clips(root), snr_db, seed)
    return ((speech.features(mixed) - splits.input_mean) / splits.input_std).float()


def mix(
    sound: npt.NDArray[Any], noise: npt.NDArray[Any], snr_db: float, seed: int = 0
) -> npt.NDArray[np.float64]:
    """Each sound (n, samples) plus a stretch of a noise clip, both drawn at random.

    The signal-to-noise ratio is that of the mean powers over the stretch, exact for each sound. The
    sum is not clipped. Where the sound or the stretch is silent, so that no ratio is defined,
    the sound stays as it is.
    """
    generator = np.random.default_rng(seed)
    samples = sound.shape[1]
    which = generator.integers(len(noise), size=len(sound))
    starts = generator.integers(noise.shape[1] - samples + 1, size=len(sound))
    stretches = noise[which[:, None], starts[:, None] + np.arange(samples)]
    return ambient.mixed(sound, stretches, snr_db)


def noise_clips(root: Path | None = None) -> npt.NDArray[np.int16]:
    """The 400 clips of ESC-10, 2 s at 16 kHz each. Piczak 2015, CC BY 3.0.

    Raises:
        DataError: the file is absent, or is not the prepared one.
    """
    return np.concatenate(list(esc.read(root).values()))
