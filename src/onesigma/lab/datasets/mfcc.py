"""Mel-frequency cepstral coefficients: what a keyword spotter sees of a sound.

    frames of 25 ms every 10 ms → Hann window → |FFT|² → mel filters → log → DCT-II

Davis & Mermelstein 1980. The mel scale is HTK's, mel(f) = 2595 log₁₀(1 + f/700).
"""

import math

import torch
from torch import Tensor

SAMPLE_RATE = 16_000
FRAME = 400
HOP = 160
FFT = 512
FILTERS = 40
COEFFICIENTS = 24
LOWEST_HZ = 20.0
# Below the noise of any microphone here, so that digital silence does not stand out by far.
FLOOR = 1e-6

# Clips at once: bounds memory to some 100 MB.
CHUNK = 256


def mfcc(sound: Tensor) -> Tensor:
    """Coefficients (n, 24, frames) of sounds (n, samples) at 16 kHz in −1 … 1.

    Frames lie wholly inside the sound: 1 + ⌊(samples − 400) / 160⌋ of them, 98 for a second.
    """
    if sound.dim() != 2 or sound.shape[1] < FRAME:
        raise ValueError(
            f"Expected sounds (n, samples) of {FRAME} samples or more, got {tuple(sound.shape)}."
        )
    window = torch.hann_window(FRAME, periodic=True, dtype=sound.dtype)
    filters = mel_filters().to(sound.dtype)
    cosines = dct_matrix(COEFFICIENTS, FILTERS).to(sound.dtype)
    parts = []
    for chunk in torch.split(sound, CHUNK):
        frames = chunk.unfold(1, FRAME, HOP) * window
        power = torch.fft.rfft(frames, FFT).abs().square()
        energies = (power @ filters.T).clamp(min=FLOOR).log()
        parts.append((energies @ cosines.T).transpose(1, 2))
    return torch.cat(parts)


def mel_filters() -> Tensor:
    """Triangles (40, 257) over the bins of the FFT, of height 1, in float64.

    Their corners lie at equal steps in mel from 20 Hz to half the sample rate; each triangle
    begins and ends at the peaks of its neighbours.
    """
    ends = torch.tensor([LOWEST_HZ, SAMPLE_RATE / 2], dtype=torch.float64)
    low, high = (2595 * torch.log10(1 + ends / 700)).tolist()
    mels = torch.linspace(low, high, FILTERS + 2, dtype=torch.float64)
    corners = (700 * (10 ** (mels / 2595) - 1)).unsqueeze(1)
    bins = torch.arange(FFT // 2 + 1, dtype=torch.float64) * SAMPLE_RATE / FFT
    rising = (bins - corners[:-2]) / (corners[1:-1] - corners[:-2])
    falling = (corners[2:] - bins) / (corners[2:] - corners[1:-1])
    return torch.minimum(rising, falling).clamp(min=0)


def dct_matrix(outputs: int, inputs: int) -> Tensor:
    """The first `outputs` rows of the orthonormal DCT-II of `inputs` values, in float64.

    C[k, i] = √(2/n) cos(π k (i + ½) / n), and row 0 divided by √2.
    """
    k = torch.arange(outputs, dtype=torch.float64).unsqueeze(1)
    i = torch.arange(inputs, dtype=torch.float64)
    matrix = math.sqrt(2 / inputs) * torch.cos(math.pi * k * (i + 0.5) / inputs)
    matrix[0] /= math.sqrt(2)
    return matrix
