"""How do I convert a network of my own?

    python examples/convert_my_cnn.py

A small CNN, written and trained as usual on made-up windows (waves.py), is converted with one call.
You see which ops its uncertainty goes through and whether they are exact there, how far one pass
is from Monte-Carlo dropout before and after calibration without labels, and that the exported ONNX
file gives the same answers. It needs `pip install '.[onnx]'`.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from waves import CLASS_NAMES, waves

import onesigma
from onesigma import runtime


class MyNet(nn.Module):
    """Nothing in it knows of onesigma; dropout may be a layer or a function."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, 16, 7, stride=2)
        self.second = nn.Conv1d(16, 32, 5, stride=2)
        self.drop = nn.Dropout(0.3)
        self.out = nn.Linear(32 * 29, len(CLASS_NAMES))

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(F.relu(self.first(x)))
        x = F.dropout(F.relu(self.second(x)), 0.3, self.training)
        return self.out(x.flatten(1))


def trained() -> MyNet:
    torch.manual_seed(0)
    model = MyNet()
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(120):
        x, labels = waves(64, seed=step)
        optimiser.zero_grad()
        F.cross_entropy(model(x), labels).backward()
        optimiser.step()
    return model.eval()


def main() -> None:
    model = trained()
    x, labels = waves(100, seed=1000)

    converted = onesigma.convert(model, x)
    print(converted.report, end="\n\n")

    calibrated = onesigma.calibrate(converted, x, passes=50)
    test, labels = waves(100, seed=2000)
    for name, each in (("as converted", converted), ("calibrated", calibrated)):
        found = onesigma.audit(each, test, passes=100)
        off, noise = found.output.kl, found.output.kl_noise
        print(f"{name}: {off:.4f} from Monte Carlo (KL; the passes' own noise is {noise:.4f})")
    print()

    print(onesigma.export(calibrated, "my_cnn.onnx", class_names=CLASS_NAMES), end="\n\n")
    device = runtime.load("my_cnn.onnx", threads=1)  # as on a device: no PyTorch in it
    answer = device(test[:5].numpy())
    for i in range(5):
        said, true = CLASS_NAMES[answer.label[i]], CLASS_NAMES[labels[i]]
        print(f"{said:8} {answer.confidence[i]:.2f}  entropy {answer.entropy[i]:.2f}  (is {true})")


if __name__ == "__main__":
    main()
