"""``Answer``: what a prediction holds, in whatever kind of array; needs no PyTorch."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Generic, TypeVar

Array = TypeVar("Array")


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
        epistemic: mutual information, the uncertainty that lies in the network; it spots foreign
            input.
        plain_probs: the original network's softmax, where the method yields it.
        act: whether to act on the answer, where the model carries an abstain rule.
        class_dim: the dimension of the classes in ``mean``, ``var`` and the probabilities.
    """

    mean: Array
    var: Array
    probs: Array | None = None
    entropy: Array | None = None
    aleatoric: Array | None = None
    epistemic: Array | None = None
    plain_probs: Array | None = None
    act: Array | None = None
    class_dim: int = field(default=1, kw_only=True)

    def arrays(self) -> dict[str, Array]:
        """What it holds, by name; what it does not hold is left out."""
        names = [each.name for each in fields(self) if each.name != "class_dim"]
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def _probabilities(self) -> Array:
        if self.probs is None:
            raise AttributeError("A regression prediction has no classes: use mean and var.")
        return self.probs
