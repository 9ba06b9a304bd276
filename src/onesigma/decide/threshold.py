"""``threshold``: when to act and when to abstain, from labelled examples, with a guarantee.

With scores sᵢ (more is more uncertain), wᵢ = 1 where the answer is wrong, and "act" meaning s < t:

*All inputs* (default). The loss w·1[s < t] never falls as t rises, so conformal risk control
(Angelopoulos et al. 2024) applies: with n exchangeable examples

    t = sup { t : Σᵢ wᵢ 1[sᵢ < t] + 1 ≤ risk (n + 1) }   ⇒   P(wrong and acted on) ≤ risk
in expectation over the calibration examples and the new one, for any network and any n.

*Answers acted on* (``conditional``). P(wrong | s < t) may rise and fall with t, so each cut is a
test of its own. Given that the (j+1)-th smallest score is t, the m examples below it are
independent draws of those below t, k of them wrong:

    accept t  if  P(Binomial(m, risk) ≤ k) ≤ delta / cuts
The ranks j are fixed in advance; by the union bound all accepted cuts keep the promise at once
with probability 1 − delta, so the largest may be taken (learn then test, Angelopoulos et al. 2021;
the bound is Clopper and Pearson's, as in Geifman & El-Yaniv 2017).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from onesigma.errors import InputError

if TYPE_CHECKING:  # a rule also serves where there is no PyTorch
    from torch import Tensor

    from onesigma.prediction import Prediction

Scores = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
SCORES = ("entropy", "confidence", "epistemic")


@dataclass(frozen=True)
class AbstainRule:
    """Act where the uncertainty is below a threshold, abstain elsewhere; made by ``threshold``.

    Attributes:
        score: which uncertainty: "entropy", "confidence" (as 1 − confidence) or "epistemic".
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
        score = "1 − confidence" if self.score == "confidence" else self.score
        of = "all inputs" if self.delta is None else "the answers acted on"
        return (
            f"act if {score} < {self.threshold:.4g}, else abstain\n"
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
    """The uncertainty that a rule compares: more is worse."""
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


def threshold(
    prediction: Prediction,
    labels: Tensor,
    *,
    risk: float = 0.05,
    score: str = "entropy",
    conditional: bool = False,
    delta: float = 0.1,
) -> AbstainRule:
    """Find how much uncertainty to accept, from examples that training has not seen.

    By default ``risk`` limits the share of ALL inputs that are acted on and answered wrongly; with
    ``conditional``, the share of wrong answers among those acted on, which takes more examples.
    If no threshold keeps the promise the rule always abstains, and says so.

    Args:
        prediction: of the labelled inputs, by the model as it will be used.
        labels: their true classes; one per input.
        risk: the share of wrong answers to accept.
        score: "entropy", "confidence" or "epistemic".
        conditional: limit the risk of the answers acted on.
        delta: with ``conditional``: the chance to accept that unlucky examples break the promise.
    """
    from onesigma.decide.temperature import checked_labels

    values = score_of(prediction, score).detach()
    if values.dim() != 1 or prediction.probs is None:
        raise InputError(
            f"threshold takes one label per input, but scores have shape {tuple(values.shape)}: "
            "positions of one input are not independent examples. Reduce them to one answer first."
        )
    rule = AbstainRule(
        score, -math.inf, risk, delta if conditional else None, len(values), 0.0, 0.0
    )
    wrong = prediction.label != checked_labels(prediction.probs, labels, prediction.class_dim)
    scores, mistakes = values.double().cpu().numpy(), wrong.cpu().numpy()
    if not np.isfinite(scores).all():
        raise InputError(f"The {score} of some examples is not finite: look at those inputs first.")
    cut = selective(scores, mistakes, risk, delta) if conditional else joint(scores, mistakes, risk)
    rule = replace(rule, threshold=cut)
    acted = rule(prediction)
    mistaken = int((acted & wrong).sum())
    of = max(1, int(acted.sum())) if conditional else len(values)
    return replace(rule, coverage=float(acted.double().mean()), observed_risk=mistaken / of)


def joint(scores: Scores, wrong: Flags, risk: float) -> float:
    """The threshold that limits P(wrong and acted on), by conformal risk control."""
    # Not to lose a mistake to rounding: 0.29 · 100 is 28.999999999999996.
    allowed = math.floor(risk * (len(scores) + 1) + 1e-9) - 1
    if allowed < 0:
        return -math.inf
    mistakes = np.sort(scores[wrong])
    if len(mistakes) <= allowed:
        return math.inf
    below = scores[scores < mistakes[allowed]]
    if len(below) == 0:
        return -math.inf
    # Any smaller threshold keeps the promise too; in the middle of the gap another runtime's
    # rounding does not change what was decided here.
    return float((below.max() + mistakes[allowed]) / 2)


def selective(scores: Scores, wrong: Flags, risk: float, delta: float) -> float:
    """The largest of a few cuts, evenly spaced in rank, whose P(wrong | acted on) is small."""
    n, best = len(scores), -math.inf
    cuts = max(1, round(math.sqrt(n) / 4))  # few examples bear few tests: docs/fidelity.md
    while cuts > 1 and fewest(risk, delta / cuts) > n:
        cuts -= 1
    start = fewest(risk, delta / cuts)
    if start > n:
        return -math.inf
    ordered = np.append(np.sort(scores), math.inf)
    for cut in ordered[np.linspace(start, n, cuts).round().astype(int)]:
        acted = scores < cut
        if binomial_cdf(int(wrong[acted].sum()), int(acted.sum()), risk) <= delta / cuts:
            best = float(cut)
    return best


def binomial_cdf(k: int, n: int, p: float) -> float:
    """P(at most k of n succeed), each with probability p; terms by their logarithms."""
    if k >= n:
        return 1.0
    terms = (
        math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1)
        + i * math.log(p) + (n - i) * math.log1p(-p)
        for i in range(k + 1)
    )  # fmt: skip
    return min(1.0, math.fsum(math.exp(term) for term in terms))
