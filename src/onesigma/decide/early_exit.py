"""When an input may leave early: how sure an exit has to be, with a guarantee.

With scores s (more is more uncertain) of each exit, an input leaves at the first exit with s < t.
Its harm is 1 where the answer that it leaves with is worse than the whole network's: wrong where
that one is right, or acted on and wrong where that one is not. With

    h  = the lowest s of an exit that does harm, of those that the input can leave at
    H(t) = P(h < t) ≥ P(harm), which never falls as t rises

the loss is monotone, so that the bound of Clopper and Pearson holds for the chosen t (Bates et al.
2021). With k of n independent examples below t:

    t = sup { t : P(Binomial(n, excess) ≤ k) ≤ delta }   ⇒   P(harm ≤ excess) ≥ 1 − delta
For new people (``groups``) t is that of ``threshold``, by the share of each person's inputs with
h < t.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from onesigma.answer import NOVEL
from onesigma.decide.threshold import (
    AbstainRule,
    Flags,
    Scores,
    binomial_cdf,
    capped,
    in_gap,
    is_familiar,
    numbered,
    over_people,
    score_of,
)

if TYPE_CHECKING:
    from torch import Tensor

    from onesigma.prediction import Prediction

DELTA = 0.05
SCORE = "confidence"  # as 1 − confidence; with entropy fewer inputs left early, or as many


@dataclass(frozen=True)
class ExitRule(AbstainRule):
    """Leave where an exit is sure enough and the input is familiar; made by ``early_exit``.

    Fields are those of ``AbstainRule``: ``risk`` limits the harm, ``coverage`` is the share of the
    examples that leave early, ``observed_risk`` the harm to them.
    """

    @property
    def guarantee(self) -> str:
        if self.never_acts:
            return (
                f"No input leaves early: {self.n} labelled inputs do not show that the error would "
                f"grow by {100 * self.risk:.3g} % at most. It takes more of them, or more risk."
            )
        if self.groups is not None:
            return f"For new people like the {self.groups}: the error grows by at most " + self._by
        sure = 100 * (1 - (self.delta or 0))
        return f"With {sure:.3g} % confidence the error grows by at most {self._by}"

    @property
    def _by(self) -> str:
        return f"{100 * self.risk:.3g} % of all inputs, if new ones are like the {self.n} labelled."

    def __str__(self) -> str:
        return (
            f"leave if 1 − {self.score} < {self.threshold:.4g}: {100 * self.coverage:.1f} % of "
            f"{self.n} labelled inputs do, {100 * self.observed_risk:.2g} % with a worse answer\n"
            f"{self.guarantee}"
        )


def exit_rule(
    exits: Sequence[Prediction],
    whole: Prediction,
    labels: Tensor,
    *,
    excess_risk: float,
    groups: Tensor | None = None,
) -> ExitRule:
    """The rule for all exits, from what each of them and the whole network say of examples."""
    people = numbered(groups, len(labels))
    rule = ExitRule(
        *(SCORE, -math.inf, excess_risk, None if groups is not None else DELTA, len(labels)),
        *(0.0, 0.0),
        novelty=None if whole.novelty is None else NOVEL,
        groups=None if people is None else int(people.max()) + 1,
    )
    scores = np.stack([exit_scores(each) for each in exits])
    harm = first_harm(scores, np.stack([_is_worse(each, whole, labels) for each in exits]))
    if people is not None:
        cut = over_people(harm, np.isfinite(harm), excess_risk, people)
    else:
        cut = below_harm(harm, excess_risk, DELTA)
    leaving = scores.min(0)
    cut = capped(in_gap(scores.ravel(), cut), scores)
    return replace(
        rule,
        threshold=cut,
        coverage=float((leaving < cut).mean()),
        observed_risk=float((harm < cut).mean()),
    )


def exit_scores(said: Prediction) -> Scores:
    """∞ where the input may not leave, because it is unfamiliar, broken or not a number."""
    scores: Scores = score_of(said, SCORE).double().cpu().numpy()
    known = np.isfinite(scores)
    if said.novelty is not None:
        known &= is_familiar(said, NOVEL).cpu().numpy()
    return np.where(known, scores, math.inf)


def _is_worse(said: Prediction, whole: Prediction, labels: Tensor) -> Flags:
    """Wrong where the whole network is not; or acted on and wrong where its answer is not both."""
    wrong, theirs = (each.label != labels for each in (said, whole))
    worse = wrong & ~theirs
    if said.act is not None and whole.act is not None:
        worse |= wrong & said.act & ~(theirs & whole.act)
    harm: Flags = worse.cpu().numpy()
    return harm


def first_harm(scores: Scores, worse: Flags) -> Scores:
    """h of each input: the least threshold above which it may leave with a worse answer.

    It leaves at an exit for some threshold only if no exit before is as sure.
    """
    before = np.minimum.accumulate(scores, 0)
    reached = np.vstack([np.ones((1, scores.shape[1]), bool), scores[1:] < before[:-1]])
    harm: Scores = np.where(worse & reached, scores, math.inf).min(0)
    return harm


def below_harm(harm: Scores, excess: float, delta: float) -> float:
    """The largest threshold that keeps P(h < t) within ``excess``, with confidence 1 − delta."""
    allowed = -1
    while allowed < len(harm) and binomial_cdf(allowed + 1, len(harm), excess) <= delta:
        allowed += 1
    if allowed < 0:
        return -math.inf
    return math.inf if allowed >= len(harm) else float(np.sort(harm)[allowed])
