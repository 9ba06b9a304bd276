"""At which pixels is a segmentation not sure?

    python examples/segmentation.py

A small U-Net tells discs and bars from the background, in noise. `fit` adds the uncertainty of
every pixel. You see how well it is in line with Monte Carlo, and that wrong pixels are uncertain
ones; `segmentation.png` shows images, answers, mistakes and uncertainty side by side. The images
are made up (onesigma.lab.datasets.shapes); training takes a minute. It needs matplotlib.
"""

import torch
from matplotlib import pyplot as plt
from torch import Tensor, nn

import onesigma
from onesigma.lab.datasets import shapes
from onesigma.lab.deployed_networks import unet_small
from onesigma.metrics import auroc

TITLES = ("image", "truth", "answer", "where it is wrong", "entropy")


def train(x: Tensor, y: Tensor, epochs: int = 6) -> nn.Module:
    torch.manual_seed(0)
    network = unet_small(width=8)
    optimiser = torch.optim.Adam(network.parameters(), 5e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(50):
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(x[rows]), y[rows]).backward()
            optimiser.step()
    return network.eval()


def draw(images: Tensor, truth: Tensor, told: onesigma.Prediction) -> None:
    """One row for each image."""
    figure, axes = plt.subplots(len(images), len(TITLES), figsize=(11, 2.3 * len(images)))
    for k, row in enumerate(axes):
        wrong = (told.label[k] != truth[k]).float()
        shown = (images[k, 0], truth[k], told.label[k], wrong, told.entropy[k])
        for axis, picture, title, colours in zip(
            row, shown, TITLES, ("gray", "viridis", "viridis", "Reds", "magma"), strict=True
        ):
            axis.imshow(picture.numpy(), cmap=colours, vmin=0 if title != "image" else None)
            axis.set(xticks=[], yticks=[])
            if k == 0:
                axis.set_title(title, fontsize=11)
    figure.tight_layout()
    figure.savefig("segmentation.png", dpi=110)


def main() -> None:
    data = shapes.load()
    network = train(data.train.inputs[:800], data.train.labels[:800])
    unlabelled = torch.cat([data.train.inputs[800:1000], data.validation.inputs[:100]])
    ready = onesigma.fit(network, unlabelled)
    images, truth = data.test.inputs[:100], data.test.labels[:100]
    with torch.no_grad():
        told = ready(images)
    wrong = told.label != truth
    found = auroc(told.entropy.flatten(), wrong.flatten())
    (chosen,) = [each for each in ready.report.candidates if each.chosen]
    print(f"{chosen.form}: worth {chosen.kinds[0].passes:.0f} Monte-Carlo passes on clean images")
    print(f"{100 * (~wrong).double().mean():.1f} % of the pixels are right")
    print(f"entropy tells wrong pixels with an AUROC of {found:.3f}")
    draw(images[:3], truth[:3], told)
    print("segmentation.png: images, answers, mistakes and uncertainty")


if __name__ == "__main__":
    main()
