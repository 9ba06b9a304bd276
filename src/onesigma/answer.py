"""``Answer``: what a prediction holds, in whatever kind of array; needs no PyTorch."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Generic, TypeVar

Array = TypeVar("Array")
# An input is unfamiliar if fewer than this share of the known inputs are as odd.
NOVEL = 0.02
SURE, UNSURE, UNFAMILIAR, BROKEN = "sure", "unsure", "unfamiliar", "broken input"


@dataclass(frozen=True, eq=False)
class Answer(Generic[Array]):
    """An answer and its uncertainty, for a batch.

    Where the input holds NaN or infinity, every number of that row is NaN and ``act`` is False.

    Attributes:
        mean: mean of the logits (of the output itself for regression).
        var: variance of the logits.
        probs: class probabilities, the mean softmax over the output distribution.
        entropy: predictive entropy of ``probs`` in nats: all the uncertainty there is.
        aleatoric: expected entropy, the uncertainty that lies in the data.
        epistemic: mutual information, the uncertainty that lies in the network; it spots unknown
            classes.
        plain_probs: the original network's softmax, where the method yields it.
        contract: where each statistic of each input channel lies between what ``fit`` knows of it,
            −1 at the lowest and 1 at the highest; ``explain`` of the model has words for it.
        novelty: the share of known inputs that are as odd as this one: 0.01 is one in a hundred.
            It spots foreign and broken input.
        act: whether to act on the answer, where the model carries an abstain rule.
        low, high: of a regression, between which the true value lies, where ``fit`` had labels.
        exit: which exit gave the answer, where the model has some (``early_exit``); the last number
            is that of the whole network.
        class_dim: the dimension of the classes in ``mean``, ``var`` and the probabilities.
    """

    mean: Array
    var: Array
    probs: Array | None = None
    entropy: Array | None = None
    aleatoric: Array | None = None
    epistemic: Array | None = None
    plain_probs: Array | None = None
    contract: Array | None = None
    novelty: Array | None = None
    act: Array | None = None
    low: Array | None = None
    high: Array | None = None
    exit: Array | None = None
    class_dim: int = field(default=1, kw_only=True)

    def arrays(self) -> dict[str, Array]:
        """What it holds, by name; what it does not hold is left out."""
        names = [each.name for each in fields(self) if each.name != "class_dim"]
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    @property
    def reason(self) -> list[str]:
        """For each input, why to act or not: sure, unsure, unfamiliar or broken input."""
        if self.act is None:
            raise AttributeError("No rule says when to act: see onesigma.threshold.")
        act: list[bool] = self.act.tolist()  # type: ignore[attr-defined]
        pairs = zip(act, self.oddness, strict=True)
        return [SURE if yes else odd or UNSURE for yes, odd in pairs]

    @property
    def oddness(self) -> list[str]:
        """For each input, unfamiliar or broken input, or "" where the guard finds nothing odd."""
        if self.contract is None or self.novelty is None:
            return [""] * len(self.mean)  # type: ignore[arg-type]
        novelty, kept = self.novelty.tolist(), self.in_contract.tolist()  # type: ignore[attr-defined]
        return [
            BROKEN if not whole else UNFAMILIAR if not share >= NOVEL else ""
            for whole, share in zip(kept, novelty, strict=True)
        ]

    @property
    def in_contract(self) -> Array:
        """For each input, whether all of its channels are as ``fit`` knows them."""
        raise NotImplementedError

    def _places(self) -> Array:
        if self.contract is None:
            raise AttributeError("The model has no input contract: make it with onesigma.fit.")
        return self.contract

    def _probabilities(self) -> Array:
        if self.probs is None:
            raise AttributeError("A regression prediction has no classes: use mean and var.")
        return self.probs
