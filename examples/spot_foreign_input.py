"""Has the network ever seen anything like this input?

    python examples/spot_foreign_input.py

Real windows of people the network does not know, beside input that means nothing: a drifting sensor
(a random walk) and white noise. You see how sure each method is of itself on each kind, and how
well a score tells foreign from real (AUROC: 0.5 is chance, 1 is perfect); then how often an alarm
sounds that is set so that 5 % of a known person's windows raise it. It needs `pip install
'.[demo]'`.
"""

import numpy as np
import torch
from torch import Tensor

import onesigma
from onesigma import metrics
from onesigma.baselines.backbone import backbone
from onesigma.lab import checkpoint
from onesigma.lab.datasets import watch
from onesigma.lab.datasets.noise import random_walk, white_noise
from onesigma.text_table import text_table

FALSE_ALARMS = 0.05


def auroc(known: Tensor, foreign: Tensor) -> float:
    scores = torch.cat([known, foreign]).numpy()
    return metrics.auroc(scores, np.arange(len(scores)) >= len(known))


@torch.no_grad()
def main() -> None:
    data, network = watch.load(), checkpoint.load().network
    converted = onesigma.convert(network, data.train.inputs[:2])
    form = (200, watch.INPUT_SHAPE)
    kinds = {"real": data.test.inputs, "drift": random_walk(*form), "noise": white_noise(*form)}

    plain = {kind: backbone(network)(x) for kind, x in kinds.items()}
    ours = {kind: converted(x) for kind, x in kinds.items()}

    # The plain network has no spread: its entropy is all it can offer.
    rows = []
    for name, answers, score in (
        ("plain network", plain, "entropy"),
        ("one pass", ours, "entropy"),
        ("one pass", ours, "epistemic"),
    ):
        sure = [f"{100 * answer.confidence.mean():.0f} %" for answer in answers.values()]
        real, *foreign = (getattr(answer, score) for answer in answers.values())
        rows.append((f"{name}, {score}", *sure, *(f"{auroc(real, each):.3f}" for each in foreign)))
    header = ("method, score", *(f"sure of {kind}" for kind in kinds), "AUROC drift", "AUROC noise")
    print(text_table(header, rows, numbers=True), end="\n\n")

    # Known input alone sets the alarm: nobody knows beforehand what foreign input will look like.
    known = converted(data.validation.inputs)
    for score in ("entropy", "epistemic"):
        alarm = getattr(known, score).quantile(1 - FALSE_ALARMS)
        shares = (
            f"{kind} {100 * (getattr(answer, score) > alarm).float().mean():.0f} %"
            for kind, answer in ours.items()
        )
        print(f"alarm if {score} > {alarm:.2f}:", ", ".join(shares))
    print("No score spots everything: convolutions average white noise out, and the sub-networks")
    print("then agree that they cannot tell, which is much entropy and little disagreement.")


if __name__ == "__main__":
    main()
