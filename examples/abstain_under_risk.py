"""When may the answer be acted on, if at most 5 % of all inputs are to be acted on wrongly?

    python examples/abstain_under_risk.py

A few hundred labelled windows that training has not seen turn the uncertainty into a rule with a
promise. You see the rule, and then whether the promise held: it does on windows like those the rule
was fitted on, and it does NOT for people it knows nothing of, for whom no such promise is made.
Real recordings of a smartwatch and the network of the demo; it needs
`pip install '.[demo]'`.
"""

import torch

import onesigma
from onesigma.lab import checkpoint
from onesigma.lab.datasets import watch

RISK = 0.05


def kept(rule: onesigma.AbstainRule, prediction: onesigma.Prediction, labels: torch.Tensor) -> str:
    """How often the rule acts, and how often it does so wrongly."""
    act, wrong = rule(prediction), prediction.label != labels
    return (
        f"acts on {100 * act.float().mean():.0f} % of {len(labels)} windows; "
        f"{100 * (act & wrong).float().mean():.1f} % of all are acted on and wrong"
    )


@torch.no_grad()
def main() -> None:
    data = watch.load()
    converted = onesigma.convert(checkpoint.load().network, data.train.inputs[:2])
    test, labels = converted(data.test.inputs), data.test.labels
    print(f"without a rule: {100 * (test.label != labels).float().mean():.1f} % of all are wrong\n")

    print("Fitted on half of the windows of three people, used on the other half:")
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    first, second = order.chunk(2)
    rule = onesigma.threshold(converted(data.test.inputs[first]), labels[first], risk=RISK)
    print(rule)
    print(kept(rule, converted(data.test.inputs[second]), labels[second]), end="\n\n")

    print("Fitted on one other person, used on these three:")
    seen = converted(data.validation.inputs)
    stranger = onesigma.threshold(seen, data.validation.labels, risk=RISK)
    print(stranger)
    print(kept(stranger, test, labels))
    print("New people are not like the one of calibration: fit the rule on as many as you can.\n")

    ready = converted.with_abstain(rule)  # the rule travels with the model, into every export
    act = ready(data.test.inputs[:8]).act
    print("the first windows:", ", ".join("act" if a else "abstain" for a in act))


if __name__ == "__main__":
    main()
