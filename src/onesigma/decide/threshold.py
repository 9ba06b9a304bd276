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

*New people* (``groups``). Inputs of one person are alike, so that people are the examples. With the
loss Lᵍ(t) of each of G people, the share of their inputs that are acted on and answered wrongly:

    t = sup { t : (Σᵍ Lᵍ(t) + 1) / (G + 1) ≤ risk }                    if G ≥ 1 / risk − 1, as above
    t = sup { t : mean of Lᵍ(t) ≤ risk in 95 % of resamples of people }      with fewer people
The second is a bootstrap: it holds as far as the few people stand for all.

A rule that only compares would act on everything where mistakes are rarer than the risk. So t is at
most the 99 % quantile of the scores, and an input that the guard finds unfamiliar or broken is not
acted on. Both only lower the loss, at every t, so that the promises hold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from onesigma.answer import NOVEL
from onesigma.errors import InputError

if TYPE_CHECKING:  # a rule also serves where there is no PyTorch
    from torch import Tensor

    from onesigma.prediction import Prediction

Scores = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
SCORES = ("entropy", "confidence", "epistemic")
_CAP = 0.99  # of the examples' scores: nothing less sure than these is ever acted on
_RESAMPLES, _CONFIDENCE = 1000, 0.95  # of people


@dataclass(frozen=True)
class AbstainRule:
    """Act where the uncertainty is below a threshold, abstain elsewhere; made by ``threshold``.

    Attributes:
        score: which uncertainty: "entropy", "confidence" (as 1 − confidence) or "epistemic".
        threshold: act if the score is below it; −∞ never does.
        risk: the promised upper limit, see ``guarantee``.
        delta: None, or the chance left that the promise about the answers acted on fails.
        n: how many labelled examples it was fitted on.
        coverage: the share of them it acts on.
        observed_risk: what ``risk`` limits, measured on them.
        novelty: inputs that are odder than this share of the known ones are not acted on, nor are
            those that break the input contract; None if the model has no guard.
        groups: how many people, or other groups, the examples are of; None if that was not said.
    """

    score: str
    threshold: float
    risk: float
    delta: float | None
    n: int
    coverage: float
    observed_risk: float
    novelty: float | None = None
    groups: int | None = None

    def __post_init__(self) -> None:
        _require_known(self.score)
        for name in ("risk", "delta", "novelty"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1:
                raise InputError(f"{name}={value}: it is a share, between 0 and 1.")
        if math.isnan(self.threshold):
            raise InputError("The threshold of an abstain rule is a number, not NaN.")

    def __call__(self, prediction: Prediction) -> Tensor:
        """True where the answer may be acted on. A score that is NaN abstains."""
        act = score_of(prediction, self.score) < self.threshold
        return act if self.novelty is None else act & is_familiar(prediction, self.novelty)

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
        if self.groups is not None:
            return self._guarantee_for_people()
        if self.delta is None:
            return (
                f"On average, at most {100 * self.risk:.3g} % of all inputs are acted on and "
                f"answered wrongly, if new inputs are like the {self.n} of calibration."
            )
        return (
            f"With {100 * (1 - self.delta):.3g} % confidence, at most {100 * self.risk:.3g} % of "
            f"the answers acted on are wrong, if new inputs are like the {self.n} of calibration."
        )

    def _guarantee_for_people(self) -> str:
        sure = self.groups is not None and self.groups >= fewest(self.risk, None)
        how = (
            "On average over new people"
            if sure
            else (f"In {100 * _CONFIDENCE:.0f} % of all resamples of the {self.groups} people")
        )
        return (
            f"{how}, at most {100 * self.risk:.3g} % of a person's inputs are acted on and "
            f"answered wrongly, if new people are like the {self.groups} of calibration."
        )

    def __str__(self) -> str:
        score = "1 − confidence" if self.score == "confidence" else self.score
        of = "all inputs" if self.delta is None else "the answers acted on"
        gate = "" if self.novelty is None else f", and the input is familiar (≥ {self.novelty:g})"
        return (
            f"act if {score} < {self.threshold:.4g}{gate}, else abstain\n"
            f"on {self.n} labelled examples: acts on {100 * self.coverage:.1f} %, "
            f"wrongly on {100 * self.observed_risk:.1f} % of {of}\n{self.guarantee}"
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON, which has no infinity: there it is the text "inf" or "-inf"."""
        finite = math.isfinite(self.threshold)
        return asdict(self) | {"threshold": self.threshold if finite else str(self.threshold)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
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


def is_familiar(prediction: Prediction, novelty: float) -> Tensor:
    """True where the guard finds nothing odd."""
    if prediction.novelty is None or prediction.contract is None:
        raise InputError("The rule needs novelty: fit the model with onesigma.fit.")
    return (prediction.novelty >= novelty) & prediction.in_contract


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
    groups: Tensor | None = None,
) -> AbstainRule:
    """Find how much uncertainty to accept, from examples that training has not seen.

    By default ``risk`` limits the share of ALL inputs that are acted on and answered wrongly; with
    ``conditional``, the share of wrong answers among those acted on, which takes more examples.
    If no threshold keeps the promise the rule always abstains, and says so. It never acts on input
    that the model's guard finds unfamiliar or broken, nor on answers less sure than 99 of 100.

    Args:
        prediction: of the labelled inputs, by the model as it will be used.
        labels: their true classes; one per input.
        risk: the share of wrong answers to accept.
        score: "entropy", "confidence" or "epistemic".
        conditional: limit the risk of the answers acted on.
        delta: with ``conditional``: the chance to accept that unlucky examples break the promise.
        groups: for each input a number, such as that of a person: the promise is then for new
            people, whose inputs are not like those of others.
    """
    from onesigma.decide.temperature import checked_labels

    values = score_of(prediction, score).detach()
    if values.dim() != 1 or prediction.probs is None:
        raise InputError(
            f"threshold takes one label per input, but scores have shape {tuple(values.shape)}: "
            "positions of one input are not independent examples. Reduce them to one answer first."
        )
    people = numbered(groups, len(values), conditional)
    rule = AbstainRule(
        *(score, -math.inf, risk, delta if conditional else None, len(values), 0.0, 0.0),
        novelty=None if prediction.novelty is None else NOVEL,
        groups=None if people is None else int(people.max()) + 1,
    )
    wrong = prediction.label != checked_labels(prediction.probs, labels, prediction.class_dim)
    scores, mistakes = values.double().cpu().numpy(), wrong.cpu().numpy()
    if not np.isfinite(scores).all():
        raise InputError(f"The {score} of some examples is not finite: look at those inputs first.")
    if rule.novelty is not None:  # what is never acted on has no score that is small enough
        scores = np.where(is_familiar(prediction, NOVEL).cpu().numpy(), scores, math.inf)
    rule = replace(rule, threshold=_find_cut(rule, scores, mistakes, people))
    acted = rule(prediction)
    mistaken = int((acted & wrong).sum())
    of = max(1, int(acted.sum())) if conditional else len(values)
    return replace(rule, coverage=float(acted.double().mean()), observed_risk=mistaken / of)


def numbered(
    groups: Tensor | None, count: int, conditional: bool = False
) -> npt.NDArray[np.intp] | None:
    """The group of each example, numbered from 0."""
    if groups is None:
        return None
    if conditional or len(groups) != count:
        raise InputError("groups are one number for each input, and do not go with conditional.")
    return np.unique(np.asarray(groups), return_inverse=True)[1]


def _find_cut(
    rule: AbstainRule, scores: Scores, wrong: Flags, people: npt.NDArray[np.intp] | None
) -> float:
    """The threshold that keeps the rule's promise; ∞ is the score of what is never acted on."""
    if rule.delta is not None:
        cut = selective(scores, wrong, rule.risk, rule.delta)
    elif people is not None:
        cut = over_people(scores, wrong, rule.risk, people)
    else:
        cut = joint(scores, wrong, rule.risk)
    return capped(cut, scores)


def capped(cut: float, scores: Scores) -> float:
    """At most the 99 % quantile of the scores."""
    finite = scores[np.isfinite(scores)]
    cap = float(np.quantile(finite, _CAP, method="higher")) if len(finite) else 0.0
    return min(cut, 1.001 * cap + 1e-6)  # with room for the rounding of another runtime


def joint(scores: Scores, wrong: Flags, risk: float) -> float:
    """The threshold that limits P(wrong and acted on), by conformal risk control."""
    # Not to lose a mistake to rounding: 0.29 · 100 is 28.999999999999996.
    allowed = math.floor(risk * (len(scores) + 1) + 1e-9) - 1
    if allowed < 0:
        return -math.inf
    mistakes = np.sort(scores[wrong])
    if len(mistakes) <= allowed:
        return math.inf
    return in_gap(scores, float(mistakes[allowed]))


def in_gap(scores: Scores, cut: float) -> float:
    """A threshold below ``cut`` that decides alike; −∞ if no score is below it.

    Any smaller threshold keeps the promise too; in the middle of the gap another runtime's
    rounding does not change what was decided here.
    """
    below = scores[scores < cut]
    return float((below.max() + cut) / 2) if len(below) else -math.inf


def over_people(scores: Scores, wrong: Flags, risk: float, people: npt.NDArray[np.intp]) -> float:
    """The threshold that limits the risk of a new person; ``people`` are numbered from 0."""
    sizes = np.bincount(people)
    count = len(sizes)
    # The loss grows only where a mistake comes in, so that these are all the cuts there are.
    cuts = np.append(np.unique(scores[wrong & np.isfinite(scores)]), math.inf)
    acted = wrong & (scores[None, :] < cuts[:, None])
    losses = np.stack([np.bincount(people, row, count) for row in acted]) / sizes
    if count >= fewest(risk, None):
        kept = (losses.sum(1) + 1) / (count + 1) <= risk
    else:
        drawn = np.random.default_rng(0).integers(count, size=(_RESAMPLES, count))
        means = losses[:, drawn].mean(2)
        kept = np.quantile(means, _CONFIDENCE, axis=1) <= risk
    return in_gap(scores, float(cuts[kept].max())) if kept.any() else -math.inf


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
