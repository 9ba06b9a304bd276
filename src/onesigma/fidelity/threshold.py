"""``threshold``: when to act and when to abstain, from labelled examples, with a guarantee.

With scores sᵢ (more is more doubt), wᵢ = 1 where the answer is wrong, and "act" meaning s < t:

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
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from torch import Tensor

from onesigma.decision import AbstainRule, fewest, score_of
from onesigma.errors import InputError
from onesigma.fidelity.labelled import checked_labels
from onesigma.prediction import Prediction

Scores = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


def threshold(
    prediction: Prediction,
    labels: Tensor,
    *,
    risk: float = 0.05,
    score: str = "entropy",
    conditional: bool = False,
    delta: float = 0.1,
) -> AbstainRule:
    """Find how much doubt to accept, from examples that training has not seen.

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
    doubt = score_of(prediction, score).detach()
    if doubt.dim() != 1 or prediction.probs is None:
        raise InputError(
            f"threshold takes one label per input, and the scores have shape {tuple(doubt.shape)}: "
            "positions of one input are not independent examples. Reduce them to one answer first."
        )
    rule = AbstainRule(score, -math.inf, risk, delta if conditional else None, len(doubt), 0.0, 0.0)
    wrong = prediction.label != checked_labels(prediction.probs, labels, prediction.class_dim)
    scores, mistakes = doubt.double().cpu().numpy(), wrong.cpu().numpy()
    if not np.isfinite(scores).all():
        raise InputError(f"The {score} of some examples is not finite: look at those inputs first.")
    cut = selective(scores, mistakes, risk, delta) if conditional else joint(scores, mistakes, risk)
    rule = replace(rule, threshold=cut)
    acted = rule(prediction)
    mistaken = int((acted & wrong).sum())
    of = max(1, int(acted.sum())) if conditional else len(doubt)
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
