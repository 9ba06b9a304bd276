"""The paper's input for HHAR: a sample of 5 s as 20 spectra of 0.25 s each."""

import numpy as np
import numpy.typing as npt

SECONDS = 5.0
INTERVALS = 20
POINTS = 10
VALUES = 2 * POINTS


def fourier(windows: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    """Windows (n, instants, channels) of 5 s → (n, channels, 20 values, 20 intervals).

    At whatever rate: each interval of 0.25 s is read off at 10 points on the lines between
    instants, and transformed,

        X[f] = Σ_t x[t] exp(−2πi f t / 10),   f = 0 … 9

    The values are Re X[0], Im X[0], Re X[1], …, Im X[9], as in the published pre-processing for
    DeepSense (Yao et al. 2017), although half of them mirror the others.
    """
    n, instants, channels = windows.shape
    position = np.minimum(
        np.arange(INTERVALS * POINTS) * instants / (INTERVALS * POINTS), instants - 1
    )
    lower = position.astype(np.intp)
    upper = np.minimum(lower + 1, instants - 1)
    share = (position - lower)[:, None]
    points = (1 - share) * windows[:, lower] + share * windows[:, upper]
    intervals = points.transpose(0, 2, 1).reshape(n, channels, INTERVALS, POINTS)
    # Half a transform and its mirror image: what must vanish vanishes exactly.
    half = np.fft.rfft(intervals)
    spectrum = np.concatenate([half, half[..., POINTS // 2 - 1 : 0 : -1].conj()], axis=-1)
    values = np.stack([spectrum.real, spectrum.imag], axis=-1).reshape(
        n, channels, INTERVALS, VALUES
    )
    return np.ascontiguousarray(values.swapaxes(2, 3), dtype=np.float32)
