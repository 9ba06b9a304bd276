"""Correlated: few outputs that vary together, with their full covariance."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from onesigma.values.gaussian import Uncertain


@dataclass(frozen=True, eq=False)
class Correlated(Uncertain):
    """Logits (n, K) and their covariance (n, K, K)."""

    mean: Tensor
    covariance: Tensor

    @property
    def var(self) -> Tensor:
        """The diagonal of the covariance."""
        return self.covariance.flatten(-2)[..., :: self.covariance.shape[-1] + 1]

    def scaled(self, factor: Tensor | float, mean: Tensor) -> Correlated:
        """``factor`` is one number, or one for each logit."""
        if not isinstance(factor, Tensor):
            return Correlated(mean, self.covariance * factor)
        root = factor.sqrt()
        return Correlated(mean, self.covariance * root.unsqueeze(-1) * root.unsqueeze(-2))

    def sample(self, draws: Tensor, class_dim: int) -> Tensor:
        """y_s = m + L z_s with L Lᵀ the covariance; the classes are the last of two dims."""
        return self.mean.unsqueeze(-2) + draws @ cholesky(self.covariance).transpose(-1, -2)


def cholesky(covariance: Tensor) -> Tensor:
    """The lower triangular root, column by column, in ops that every exporter knows.

        L_jj = √(Σ_jj − Σ_k<j L_jk²),   L_ij = (Σ_ij − Σ_k<j L_ik L_jk) / L_jj
    A pivot that rounding takes to zero or below belongs to a logit that the ones before already
    determine: its column is zero.
    """
    done = covariance[..., :0]  # the columns of L so far
    for j in range(covariance.shape[-1]):
        column = covariance[..., j:, j : j + 1]
        pivot_floor = 1e-6 * column[..., :1, :]
        if j > 0:
            column = column - done[..., j:, :] @ done[..., j : j + 1, :].transpose(-1, -2)
        pivot = column[..., :1, :]
        sound = pivot > pivot_floor
        column = torch.where(sound, column / torch.where(sound, pivot, 1.0).sqrt(), 0.0)
        above = torch.zeros_like(covariance[..., :j, :1])
        done = torch.cat([done, torch.cat([above, column], -2)], -1)
    return done
