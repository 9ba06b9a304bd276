"""The report in a sentence, what it could not tell, and what to do next."""

from collections.abc import Iterator
from itertools import islice

import numpy as np

from onesigma.answer import BROKEN, UNFAMILIAR
from onesigma.pages.report.findings import OURS, Cost, CostRow, Findings
from onesigma.pages.report.sections import Odd, odd_channels, percent

_MOST_STEPS = 4
_FEW_ERRORS = 3  # wrong answers of one class: fewer may be chance
_MANY = 0.01  # of the inputs: that many broken ones are worth a look
_UNFAMILIAR = 0.1  # of the inputs; of known ones it is a fiftieth


def verdict(found: Findings, cost: Cost | str | None) -> str:
    """What was measured on these inputs, in a sentence; nothing else is in it."""
    row, auroc = last_row(cost), found.foreign_auroc()
    parts = [_answers(found)]
    if found.guarded:
        counts = found.familiarity()
        odd = (counts[UNFAMILIAR] + counts[BROKEN]) / len(found.inputs)
        parts.append(f"{percent(odd)} of the inputs are unfamiliar or broken")
    if auroc is not None:
        acted = _acted_on_foreign(found)
        parts.append(f"foreign input is told apart with an AUROC of {auroc:.3f}{acted}")
    if row is not None:
        parts.append(f"one answer takes {row.ratio:.2f}× the plain network in {row.runtime}")
    said = "; ".join(filter(None, parts))
    return f"{said[0].upper()}{said[1:]}."


def _answers(found: Findings) -> str:
    """When it acts, and how good the answers are, as far as labels and rule tell."""
    acted, wrong = found.acted, found.wrong
    if acted is not None:
        said = f"it acts on {percent(acted.mean())} of the inputs"
        if wrong is None or not acted.any():
            return said
        return f"{said}, and {percent(wrong[acted].mean())} of those answers are wrong"
    figures = found.figures().get(OURS, {})
    if "accuracy" in figures:
        return f"{percent(figures['accuracy'])} of the answers are right"
    if "within 2 std" in figures:
        return f"the truth is within two standard deviations for {percent(figures['within 2 std'])}"
    if found.audit.output is not None:
        return f"{percent(found.audit.output.label_agreement)} of the answers are Monte Carlo’s"
    return "the answers come with their spread"


def _acted_on_foreign(found: Findings) -> str:
    if found.rule is None or found.foreign is None:
        return ""
    return f" and acted on in {percent(float(found.rule(found.foreign).double().mean()))}"


def last_row(cost: Cost | str | None) -> CostRow | None:
    """Ours, in the last runtime: ONNX Runtime, if it is installed."""
    rows = cost.rows if isinstance(cost, Cost) else ()
    return next((row for row in reversed(rows) if row.contender == OURS), None)


def not_measured(found: Findings, cost: Cost | str | None) -> Iterator[str]:
    """What the sentence leaves out, and the option that adds it if there is one."""
    if found.labels is None:
        rule = "" if found.rule or not found.classifies else " and when to act"
        yield f"how many answers are right{rule} (give --labels)"
    if found.foreign is None:
        yield "how well foreign input is noticed (give --foreign)"
    if last_row(cost) is None:
        yield "what it costs"


def next_steps(found: Findings) -> list[str]:
    """Two to four, the most urgent first."""
    return list(islice(_steps(found), _MOST_STEPS))


def _steps(found: Findings) -> Iterator[str]:
    yield from _about_inputs(found)
    yield from _about_risk(found)
    yield from _about_classes(found)
    fit = "onesigma fit NETWORK --unlabelled FILE"
    if not found.guarded:
        yield f"Fit the network: `{fit}`. The model then also says which input it does not know."
    if found.labels is None:
        yield "Give the true classes or values with `--labels`, to see how many answers are right."
    if found.converted.abstain is None and found.classifies:
        yield (
            f"Fit with labels: `{fit} --labelled FILE LABELS --risk 0.05`. The model then carries "
            "a rule that says when to act, into every export."
        )
    if found.foreign is None:
        yield "Give some inputs that it should not know with `--foreign`, to see what it notices."
    yield f"Export it: `onesigma export {found.name} -o model.onnx`, or a folder for C."
    if found.classifies:
        yield "Watch it on a stream: `onesigma live model.onnx recording.csv`."
    yield "Use it on recordings: `onesigma predict model.onnx recording.csv`."


def _about_inputs(found: Findings) -> Iterator[str]:
    if not found.guarded:
        return
    total, counts = len(found.inputs), found.familiarity()
    worst: Odd | None = next(iter(odd_channels(found)), None)
    if worst is not None and worst.outside > _MANY * total:
        yield (
            f"Check channel {worst.channel}: it is outside its known range in "
            f"{percent(worst.outside / total)} of the inputs ({worst.example})."
        )
    if counts[UNFAMILIAR] > _UNFAMILIAR * total:
        yield (
            f"{percent(counts[UNFAMILIAR] / total)} of the inputs are unfamiliar; of inputs like "
            "those of fit it would be 2 %. If they are what it will see, add such inputs to "
            "`--unlabelled` and fit again."
        )


def _about_risk(found: Findings) -> Iterator[str]:
    rule, acted, wrong = found.converted.abstain, found.acted, found.wrong
    if rule is None or rule is not found.rule or acted is None or wrong is None:
        return
    both = acted & wrong
    seen = both.mean() if rule.delta is None else both.sum() / max(1, acted.sum())
    of = "all inputs" if rule.delta is None else "the answers acted on"
    if seen > rule.risk:
        yield (
            f"The rule allows {100 * rule.risk:.3g} % of {of} to be acted on wrongly; here it is "
            f"{percent(float(seen))}. These inputs are not like the {rule.n} of calibration: fit "
            "again with labelled inputs of this kind, of several people (`--groups`)."
        )


def _about_classes(found: Findings) -> Iterator[str]:
    wrong, labels = found.wrong, found.labels
    if wrong is None or labels is None:
        return
    bad = wrong if found.acted is None else wrong & found.acted
    true, said = labels.cpu().numpy(), found.ours.label.cpu().numpy()
    counts = np.bincount(true[bad], minlength=1)
    worst = int(counts.argmax())
    if counts[worst] >= _FEW_ERRORS:
        other = int(np.bincount(said[bad & (true == worst)]).argmax())
        acted = "" if found.acted is None else " and acted on"
        yield (
            f"Look at the class {found.class_name(worst)}: {counts[worst]} of its "
            f"{(true == worst).sum()} inputs are answered wrongly{acted}, mostly as "
            f"{found.class_name(other)}."
        )
