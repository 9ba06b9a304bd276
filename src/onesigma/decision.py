"""What labels teach after training, as small objects that travel with the model.

``Temperature`` sharpens or flattens the predictive distribution, ``AbstainRule`` says when to act
on it. Both are plain torch ops, so a re-traced or exported model can contain them; both are fitted
in ``fidelity``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from onesigma.errors import InputError
from onesigma.prediction import Prediction

SCORES = ("entropy", "confidence", "epistemic")


@dataclass(frozen=True)
class Temperature:
    """One number that corrects a confidence that is too high (above 1) or too low (below 1).

        p → p^(1/T) / Σₖ pₖ^(1/T)
    The most probable class stays the same.
    """

    value: float

    def __post_init__(self) -> None:
        if not 0 < self.value < math.inf:
            raise InputError(f"A temperature is a positive number, not {self.value}.")

    def apply(self, prediction: Prediction) -> Prediction:
        """The prediction with new ``probs`` and ``entropy``, all else as it was.

        ``aleatoric`` and ``epistemic`` are averages over the network's own spread, about which the
        labels say nothing: they are kept, and no longer add up to ``entropy``.
        """
        if prediction.probs is None:
            raise InputError("A regression prediction has no probabilities for a temperature.")
        log_probs = tempered(logs(prediction.probs), self.value, prediction.class_dim)
        probs = log_probs.exp()
        entropy = -(probs * log_probs).sum(prediction.class_dim)
        return replace(prediction, probs=probs, entropy=entropy)


def logs(probs: Tensor) -> Tensor:
    """Logarithms, those of an exact zero finite."""
    return probs.clamp(min=torch.finfo(probs.dtype).tiny).log()


def tempered(log_probs: Tensor, temperature: float, class_dim: int) -> Tensor:
    return torch.log_softmax(log_probs / temperature, class_dim)


@dataclass(frozen=True)
class AbstainRule:
    """Act where the doubt is below a threshold, abstain elsewhere; made by ``threshold``.

    Attributes:
        score: which doubt: "entropy", "confidence" (as 1 − confidence) or "epistemic".
        threshold: act if the score is below it; ∞ always acts, −∞ never does.
        risk: the promised upper limit, see ``guarantee``.
        delta: None, or the chance left that the promise about the answers acted on fails.
        n: how many labelled examples it was fitted on.
        coverage: the share of them it acts on.
        observed_risk: what ``risk`` limits, measured on them.
    """

    score: str
    threshold: float
    risk: float
    delta: float | None
    n: int
    coverage: float
    observed_risk: float

    def __post_init__(self) -> None:
        _require_known(self.score)
        for name in ("risk", "delta"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1:
                raise InputError(f"{name}={value}: it is a share, between 0 and 1.")
        if math.isnan(self.threshold):
            raise InputError("The threshold of an abstain rule is a number, not NaN.")

    def __call__(self, prediction: Prediction) -> Tensor:
        """True where the answer may be acted on. A score that is NaN abstains."""
        return score_of(prediction, self.score) < self.threshold

    @property
    def never_acts(self) -> bool:
        return self.threshold == -math.inf

    @property
    def guarantee(self) -> str:
        """What is promised, for new inputs like the ``n`` it was fitted on."""
        if self.never_acts:
            needed = fewest(self.risk, self.delta)
            more = f"more labels (at least {needed})" if self.n < needed else "more labels"
            return (
                f"The rule always abstains: on these {self.n} examples no threshold is sure to "
                f"keep the risk within {100 * self.risk:.3g} %. It takes {more}, more risk, or "
                "another score."
            )
        if self.delta is None:
            return (
                f"On average, at most {100 * self.risk:.3g} % of all inputs are acted on and "
                f"answered wrongly, if new inputs are like the {self.n} of calibration."
            )
        return (
            f"With {100 * (1 - self.delta):.3g} % confidence, at most {100 * self.risk:.3g} % of "
            f"the answers acted on are wrong, if new inputs are like the {self.n} of calibration."
        )

    def __str__(self) -> str:
        doubt = "1 − confidence" if self.score == "confidence" else self.score
        of = "all inputs" if self.delta is None else "the answers acted on"
        return (
            f"act if {doubt} < {self.threshold:.4g}, else abstain\n"
            f"on {self.n} labelled examples: acts on {100 * self.coverage:.1f} %, "
            f"wrongly on {100 * self.observed_risk:.1f} % of {of}\n{self.guarantee}"
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON, which has no infinity: there it is the text "inf" or "-inf"."""
        finite = math.isfinite(self.threshold)
        return asdict(self) | {"threshold": self.threshold if finite else str(self.threshold)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> AbstainRule:
        return cls(**{**content, "threshold": float(content["threshold"])})


def score_of(prediction: Prediction, score: str) -> Tensor:
    """The doubt that a rule compares: more is worse."""
    _require_known(score)
    if prediction.probs is None:
        raise InputError("An abstain rule needs classes: this is a regression prediction.")
    if score == "confidence":
        return 1 - prediction.confidence
    value: Tensor | None = getattr(prediction, score)
    if value is None:
        raise InputError(f"The prediction has no {score}: choose another score.")
    return value


def _require_known(score: str) -> None:
    if score not in SCORES:
        raise InputError(f"score={score!r}: choose one of {', '.join(SCORES)}.")


def fewest(risk: float, delta: float | None) -> int:
    """The fewest examples that can show a risk, all of them answered rightly."""
    if delta is None:
        return math.ceil(1 / risk - 1e-9) - 1  # 1 ≤ risk (n + 1)
    return math.ceil(math.log(delta) / math.log1p(-risk) - 1e-9)  # (1 − risk)ⁿ ≤ delta
