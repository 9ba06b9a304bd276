"""What became of a network: right, approximate and said so, refused; or silently wrong."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import onesigma

PASSES, CHUNK = 20_000, 2_000
RIGHT, SAID, REFUSED, SILENT, CRASH = "right", "approximate, said so", "refused", "SILENT", "CRASH"


@dataclass(frozen=True)
class Verdict:
    """``why`` is the error, or how far off it is."""

    word: str
    why: str = ""


def judge(model: nn.Module, x: Tensor, *, rows_apart: bool = True) -> Verdict:
    """Convert, compare with Monte Carlo of the user's own module, and say what became of it.

    ``rows_apart`` is False for noise that all rows of a batch share, as that of a weight.
    """
    try:
        converted = onesigma.convert(model, x, task="regression")
        with torch.no_grad():
            found = converted(x)
    except onesigma.OnesigmaError as error:
        return Verdict(REFUSED, " ".join(str(error).split())[:160])
    except Exception as error:
        return Verdict(CRASH, f"{type(error).__name__}: {error}"[:160])
    off = distance(found, *monte_carlo(model, x, rows_apart))
    report = converted.report
    said = bool(report.approximate) or bool(report.notes)
    if off <= 1:
        return Verdict(RIGHT)
    return Verdict(SAID if said else SILENT, f"{off:.3g} error bars")


@torch.no_grad()
def monte_carlo(
    model: nn.Module, x: Tensor, rows_apart: bool = True
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Mean and variance of the user's module in training mode, norms in eval; and their errors."""
    noisy = copy.deepcopy(model).train()
    for module in noisy.modules():
        if isinstance(module, nn.modules.batchnorm._NormBase):
            module.eval()
    torch.manual_seed(7)
    # Many passes as one large batch, unless the model makes something of the batch itself.
    repeated = x.repeat(2, *[1] * (x.dim() - 1))
    alike = torch.allclose(model(repeated)[: len(x)], model(x), atol=1e-5)
    together = CHUNK if rows_apart and alike else 1
    draws = []
    for _ in range(PASSES // CHUNK if together > 1 else PASSES):
        out = noisy(x.repeat(together, *[1] * (x.dim() - 1)))
        draws.append(out.reshape(together, len(x), *out.shape[1:]).double())
    samples = torch.cat(draws)
    mean, var = samples.mean(0), samples.var(0)
    fourth = (samples - mean).pow(4).mean(0)
    return mean, var, (var / PASSES).sqrt(), ((fourth - var * var).clamp(min=0) / PASSES).sqrt()


def distance(
    found: onesigma.Prediction, mean: Tensor, var: Tensor, mean_error: Tensor, var_error: Tensor
) -> float:
    """The largest difference in units of what is allowed: 5 error bars, and rounding."""
    size = math.sqrt(float(mean.square().mean() + var.mean())) + 1e-6
    of_mean = (found.mean - mean).abs() / (5 * mean_error + 1e-4 * size)
    of_var = (found.var - var).abs() / (5 * var_error + 1e-4 * size * size)
    return float(torch.maximum(of_mean, of_var).nan_to_num(torch.inf).max())
