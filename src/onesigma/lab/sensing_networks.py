"""Networks of sensing that remember, attend or gate: no rule carries noise well through those.

Each is written as people in sensing write it, after its paper, with dropout where that has it.
Inputs: sound (1, 24 coefficients, 98 frames), samples (6 channels, 200 instants). Logits come out.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from onesigma.lab.deployed_networks import Gated, series


class ConvLstm(nn.Module):
    """DeepConvLSTM, Ordóñez & Roggen 2016, with fewer filters, and strides. Samples → activities.

    Dropout before each recurrent layer, as in the paper, and before the last linear one. BatchNorm,
    which the paper has not, because the LSTM learns little in a few epochs without it.
    """

    def __init__(
        self, channels: int = 6, classes: int = 6, width: int = 32, dropout: float = 0.5
    ) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *series(channels, width, 5), *series(width, width, 5, 2), *series(width, width, 5, 2)
        )
        self.drop = nn.Dropout(dropout)
        self.lstm = nn.LSTM(width, 2 * width, num_layers=2, dropout=dropout, batch_first=True)
        self.last = nn.Linear(2 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        instants = self.drop(self.features(x).transpose(1, 2))
        states, _ = self.lstm(instants)
        logits: Tensor = self.last(self.drop(states[:, -1]))
        return logits


class GruKeywords(nn.Module):
    """Keywords: a GRU over frames, as in Zhang et al. 2017, of two layers. Sound → words.

    The paper names no dropout: 0.3 around the layers, as is usual.
    """

    def __init__(
        self, coefficients: int = 24, classes: int = 10, width: int = 64, dropout: float = 0.3
    ) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(coefficients)
        self.gru = nn.GRU(coefficients, width, num_layers=2, dropout=dropout, batch_first=True)
        self.drop = nn.Dropout(dropout)
        self.last = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        frames = self.norm(x.squeeze(1)).transpose(1, 2)
        states, _ = self.gru(frames)
        logits: Tensor = self.last(self.drop(states[:, -1]))
        return logits


class Transformer(nn.Module):
    """Vaswani et al. 2017 on patches of a series, as in Dosovitskiy et al. 2021. Samples.

    Three blocks with the norm first. Dropout 0.1 on the embedding, on the attention weights and
    in both branches of each block.
    """

    def __init__(
        self,
        channels: int = 6,
        classes: int = 6,
        width: int = 48,
        patch: int = 8,
        tokens: int = 25,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.patches = nn.Conv1d(channels, width, patch, stride=patch)
        self.places = nn.Parameter(0.02 * torch.randn(1, tokens, width))
        self.drop = nn.Dropout(dropout)
        block = nn.TransformerEncoderLayer(
            *(width, 4, 2 * width, dropout, nn.functional.gelu), batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, num_layers=3, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.last = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.drop(self.patches(x).transpose(1, 2) + self.places)
        logits: Tensor = self.last(self.norm(self.blocks(tokens)).mean(1))
        return logits


class AttentionPool(nn.Module):
    """A weighted mean over time, the weights a softmax of scores (Ilse et al. 2018)."""

    def __init__(self, channels: int, hidden: int = 32) -> None:
        super().__init__()
        self.score = nn.Sequential(
            nn.Conv1d(channels, hidden, 1), nn.Tanh(), nn.Conv1d(hidden, 1, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        pooled: Tensor = (x * self.score(x).softmax(-1)).sum(-1)
        return pooled


def squeeze_excite(channels: int, ratio: int = 4) -> Gated:
    """Each channel times a number between 0 and 1, read off all channels (Hu et al. 2018)."""
    narrow = channels // ratio
    return Gated(
        nn.Sequential(
            *(nn.AdaptiveAvgPool1d(1), nn.Conv1d(channels, narrow, 1), nn.ReLU()),
            *(nn.Conv1d(narrow, channels, 1), nn.Sigmoid()),
        )
    )


def se_cnn(
    channels: int = 6, classes: int = 6, width: int = 32, dropout: float = 0.3
) -> nn.Sequential:
    """Three gated convolutions and an attention pool; dropout behind each. Samples → activities."""
    layers, inputs = list[nn.Module](), channels
    for outputs in (width, width, 2 * width):
        layers += [*series(inputs, outputs, 5, 2), squeeze_excite(outputs), nn.Dropout(dropout)]
        inputs = outputs
    return nn.Sequential(
        *layers, AttentionPool(inputs), nn.Dropout(dropout), nn.Linear(inputs, classes)
    )
