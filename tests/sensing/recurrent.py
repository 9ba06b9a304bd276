"""Networks that remember. Inputs: samples (6 channels, 32 instants), sound (1, 16, 24 frames)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CLASSES = 4


class DeepConvLstm(nn.Module):
    """Ordóñez & Roggen 2016: kernels along time, shared by the channels; two LSTMs, dropout 0.5."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs in (1, 8, 8, 8):
            layers += [nn.Conv2d(inputs, 8, (5, 1)), nn.ReLU()]
        self.convs = nn.Sequential(*layers)
        self.drop = nn.Dropout(0.5)
        self.lstm1 = nn.LSTM(48, 16, batch_first=True)
        self.lstm2 = nn.LSTM(16, 16, batch_first=True)
        self.last = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.convs(x.transpose(1, 2).unsqueeze(1))  # n, filters, time, channels
        x = x.permute(0, 2, 1, 3).flatten(2)
        x, _ = self.lstm1(self.drop(x))
        x, _ = self.lstm2(self.drop(x))
        return self.last(x[:, -1])


class Crnn(nn.Module):
    """Keywords, Arik et al. 2017: one convolution, two bidirectional GRUs, a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 8, (5, 5), stride=(2, 2))
        self.gru = nn.GRU(48, 12, 2, batch_first=True, bidirectional=True, dropout=0.2)
        self.dense = nn.Linear(24, 16)
        self.drop = nn.Dropout(0.2)
        self.last = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv(x)).permute(0, 3, 1, 2).flatten(2)
        _, h = self.gru(x)
        x = torch.cat([h[-2], h[-1]], dim=1)
        return self.last(self.drop(F.relu(self.dense(x))))


class GruKeywords(nn.Module):
    """Keywords, Zhang et al. 2017: a GRU over frames, its last hidden state to a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(16, 24, num_layers=2, dropout=0.3, batch_first=True)
        self.drop = nn.Dropout(0.3)
        self.last = nn.Linear(24, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        _, h = self.gru(x.squeeze(1).transpose(1, 2))
        return self.last(self.drop(h[-1]))


class AttentionRnn(nn.Module):
    """Keywords, de Andrade et al. 2018: convolutions, BiLSTMs, the middle frame asks all others."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.Sequential(
            *(nn.Conv2d(1, 4, (1, 5), padding=(0, 2)), nn.BatchNorm2d(4), nn.ReLU()),
            *(nn.Conv2d(4, 1, (1, 5), padding=(0, 2)), nn.BatchNorm2d(1), nn.ReLU()),
        )
        self.lstm = nn.LSTM(16, 12, 2, batch_first=True, bidirectional=True)
        self.query = nn.Linear(24, 24)
        self.dense = nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Dropout(0.2))
        self.last = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.convs(x).squeeze(1).transpose(1, 2)
        states, _ = self.lstm(x)
        query = self.query(states[:, states.shape[1] // 2])
        weights = torch.softmax(torch.einsum("nc,ntc->nt", query, states), dim=1)
        return self.last(self.dense(torch.einsum("nt,ntc->nc", weights, states)))


class DeepSense(nn.Module):
    """Yao et al. 2017: a convolution for each sensor, one for both, stacked GRUs, dropout 0.5."""

    def __init__(self) -> None:
        super().__init__()

        def sensor() -> nn.Sequential:
            convs = nn.Conv1d(3, 12, 3, padding=1), nn.Conv1d(12, 12, 3, padding=1)
            return nn.Sequential(
                *(convs[0], nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout1d(0.2)),
                *(convs[1], nn.BatchNorm1d(12), nn.ReLU()),
            )

        self.acceleration, self.rotation = sensor(), sensor()
        self.merge = nn.Sequential(nn.Conv1d(24, 16, 3, stride=2), nn.BatchNorm1d(16), nn.ReLU())
        self.gru = nn.GRU(16, 16, num_layers=2, dropout=0.5, batch_first=True)
        self.last = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        both = [self.acceleration(x[:, :3]), self.rotation(x[:, 3:])]
        states, _ = self.gru(self.merge(torch.cat(both, 1)).transpose(1, 2))
        return self.last(states.mean(dim=1))


class LstmFcn(nn.Module):
    """Karim et al. 2018: an LSTM with dropout 0.8 beside a fully convolutional network."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(32, 8, batch_first=True)  # time and channels are swapped, as there
        self.drop = nn.Dropout(0.8)
        layers: list[nn.Module] = []
        for inputs, outputs, kernel in ((6, 16, 7), (16, 24, 5), (24, 16, 3)):
            conv = nn.Conv1d(inputs, outputs, kernel, padding="same")
            layers += [conv, nn.BatchNorm1d(outputs), nn.ReLU()]
        self.fcn = nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten())
        self.last = nn.Linear(24, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        _, (h, _) = self.lstm(x)
        return self.last(torch.cat([self.drop(h[-1]), self.fcn(x)], dim=1))


class BiLstm(nn.Module):
    """Hammerla et al. 2016: a bidirectional LSTM, time first, dropout on what it reads and says."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs, self.drop = nn.Dropout(0.1), nn.Dropout(0.5)
        self.lstm = nn.LSTM(6, 16, bidirectional=True)
        self.last = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.lstm(self.inputs(x.permute(2, 0, 1)))
        return self.last(self.drop(states.mean(0)))


class StackedLstm(nn.Module):
    """Three layers whose only dropout is ``dropout=``, which no module shows."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 16, num_layers=3, dropout=0.3, batch_first=True)
        self.last = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        _, (h, _) = self.lstm(x.transpose(1, 2))
        return self.last(h[-1])


class GruOfLengths(nn.Module):
    """Windows of different lengths, padded; the state at the last valid instant is gathered."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(6, 16, batch_first=True)
        self.drop = nn.Dropout(0.4)
        self.last = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor, length: Tensor) -> Tensor:
        states, _ = self.gru(x.transpose(1, 2))
        index = (length - 1).reshape(-1, 1, 1).expand(-1, 1, states.shape[2])
        return self.last(self.drop(states.gather(1, index).squeeze(1)))


class CellLoop(nn.Module):
    """An LSTMCell in a Python loop, with dropout on what it passes on at every step."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(6, 16)
        self.p = 0.2
        self.last = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = c = x.new_zeros(x.shape[0], 16)
        for t in range(0, x.shape[2], 4):
            h, c = self.cell(x[:, :, t], (h, c))
            h = F.dropout(h, self.p, self.training)
        return self.last(h)


class LockedGru(nn.Module):
    """Gal & Ghahramani 2016: one mask for all instants, and a GRU written by hand in matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.reads, self.keeps = nn.Linear(6, 48), nn.Linear(16, 48)
        self.mask = nn.Dropout(0.25)
        self.last = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.zeros(x.shape[0], 16, device=x.device, dtype=x.dtype)
        mask = self.mask(torch.ones_like(h))
        for step in x[:, :, ::4].unbind(dim=2):
            r, z, n = self.reads(step).chunk(3, dim=1)
            hr, hz, hn = self.keeps(h * mask).chunk(3, dim=1)
            z = torch.sigmoid(z + hz)
            h = (1 - z) * torch.tanh(n + torch.sigmoid(r + hr) * hn) + z * h
        return self.last(h)
