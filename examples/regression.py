"""Between which values does the true one lie, nine times out of ten?

    python examples/regression.py

A network learns how a disease progresses from ten measurements of a patient. `fit` adds its
uncertainty, and with labelled patients an interval. You see how many patients it never met lie
inside, and how wide the intervals are for patients of whom the network is sure and not sure.
Real data, 442 patients: the diabetes set that comes with scikit-learn, which this needs.
"""

import torch
from sklearn.datasets import load_diabetes
from torch import Tensor, nn

import onesigma

RISK = 0.1


def load() -> tuple[Tensor, Tensor]:
    """Patients in random order: measurements with a spread of about 1, and the progression."""
    measured, progress = load_diabetes(return_X_y=True)
    order = torch.randperm(len(progress), generator=torch.Generator().manual_seed(0))
    x, y = torch.from_numpy(measured).float() * 21, torch.from_numpy(progress).float()
    return x[order], y[order].unsqueeze(1)


def train(x: Tensor, y: Tensor) -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Linear(10, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 64), nn.ReLU()]
    network = nn.Sequential(*layers, nn.Dropout(0.3), nn.Linear(64, 1))
    optimiser = torch.optim.Adam(network.parameters(), 3e-3, weight_decay=1e-3)
    middle, spread = y.mean(), y.std()
    for _ in range(200):
        optimiser.zero_grad()
        nn.functional.mse_loss(network(x), (y - middle) / spread).backward()
        optimiser.step()
    with torch.no_grad():  # so that it answers in the units of the data
        network[-1].weight.mul_(spread)
        network[-1].bias.mul_(spread).add_(middle)
    return network.eval()


def main() -> None:
    x, y = load()
    network = train(x[:200], y[:200])
    labelled = (x[200:320], y[200:320])
    ready = onesigma.fit(network, x[:320], task="regression", labelled=labelled, risk=RISK)
    (chosen,) = [each for each in ready.report.candidates if each.chosen]
    print(f"{chosen.form}: worth {chosen.worst.passes:.0f} Monte-Carlo passes or more")
    print(ready.settings.interval)

    with torch.no_grad():
        told = ready(x[320:])
    inside = (y[320:] >= told.low) & (y[320:] <= told.high)
    print(f"of {len(inside)} new patients {100 * inside.double().mean():.0f} % lie inside\n")
    print("progression   between        std of the network")
    order = told.std[:, 0].argsort()
    for k in [*order[:3].tolist(), *order[-3:].tolist()]:
        low, high, std = (float(v[k, 0]) for v in (told.low, told.high, told.std))
        print(f"{float(y[320 + k, 0]):8.0f}   {low:6.0f} … {high:4.0f}   {std:10.1f}")


if __name__ == "__main__":
    main()
