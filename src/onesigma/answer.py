"""``Answer``: what a prediction holds, in whatever kind of array; needs no PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Generic, Self, TypeVar

from onesigma.text_table import text_table

Array = TypeVar("Array")
# An input is unfamiliar if fewer than this share of the known inputs are as odd.
NOVEL = 0.02
_SHOWN = 5  # of a batch, when it is printed
SURE, UNSURE, UNFAMILIAR, BROKEN = "sure", "unsure", "unfamiliar", "broken input"


@dataclass(frozen=True, eq=False, repr=False)
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

    def each(self, new: Callable[[Array], Array]) -> Self:
        """The same with ``new`` of all that it holds."""
        held = {name: new(value) for name, value in self.arrays().items()}
        return type(self)(**held, class_dim=self.class_dim)

    def take(self, rows: Any) -> Self:
        """Some of the inputs: a mask, their numbers, or a slice."""
        return self.each(lambda value: value[rows])  # type: ignore[index]

    def __repr__(self) -> str:
        """Short, in place of every number: the first inputs, and how many more there are."""
        names = ("label", "confidence", "entropy", "epistemic", "novelty", "act")
        shown = names if self.probs is not None else ("mean", "std")
        columns: dict[str, list[str]] = {}
        for name in shown:
            if (values := getattr(self, name)) is not None and values.ndim <= 2:
                rows = values[:_SHOWN].tolist()
                columns[name] = [_show(row) for row in rows]
        title = f"{type(self).__name__}: mean of shape {tuple(self.mean.shape)}"  # type: ignore[attr-defined]
        if not columns:  # one answer for each position
            return title
        more = len(self.mean) - _SHOWN  # type: ignore[arg-type]
        table = text_table([*columns], [*zip(*columns.values(), strict=True)], numbers=True)
        return f"{title}\n{table}" + (f"\n… and {more} more" if more > 0 else "")

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

    @property
    def label(self) -> Array:
        """The most probable class."""
        return self._probabilities().argmax(self.class_dim)  # type: ignore[attr-defined, no-any-return]

    def _probabilities(self) -> Array:
        if self.probs is None:
            raise AttributeError("A regression prediction has no classes: use mean and var.")
        return self.probs


def _show(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_show, value[:_SHOWN]))}{', …' * (len(value) > _SHOWN)}]"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
