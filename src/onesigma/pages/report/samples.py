"""The part of the report that shows inputs: the surest and the least sure."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

import numpy as np
import numpy.typing as npt

from onesigma.pages.report import words
from onesigma.pages.report.gather import Findings
from onesigma.pages.report.scores import array, doubt_per_input
from onesigma.pages.report.sketch import sketches

_MOST = 6


def section(found: Findings) -> Iterator[str]:
    yield f"<p>{words.SAMPLES}</p>"
    order = np.argsort(doubt_per_input(found.ours), kind="stable")
    most, least = _apart(order), _apart(order[::-1])
    drawn = dict(zip((both := [*most, *least]), sketches(array(found.inputs[both])), strict=True))
    for title, part in (("Most certain", most), ("Least certain", least)):
        cards = (_card(found, index, drawn[index]) for index in part)
        yield f'<h3>{title}</h3><div class="samples">{"".join(cards)}</div>'


def _apart(order: npt.NDArray[np.int64]) -> list[int]:
    """The first few, no neighbours among them: windows of one recording overlap."""
    count, gap = min(_MOST, max(1, len(order) // 2)), len(order) // 50
    chosen: list[int] = []
    for index in map(int, order):
        if len(chosen) < count and all(abs(index - other) > gap for other in chosen):
            chosen.append(index)
    return chosen


def _card(found: Findings, index: int, drawing: str) -> str:
    lines = _of_class(found, index) if _one_answer(found) else _of_other(found, index)
    text = "".join(f"<p>{line}</p>" for line in lines)
    return (
        f'<div class="sample">{drawing}{text}<p class="small">input {index * found.step}</p></div>'
    )


def _one_answer(found: Findings) -> bool:
    return found.ours.entropy is not None and found.ours.entropy.dim() == 1


def _of_class(found: Findings, index: int) -> Iterator[str]:
    ours = found.ours
    assert ours.entropy is not None
    assert ours.epistemic is not None
    said = int(ours.label[index])
    yield f"<b>{escape(found.class_name(said))}</b> {100 * float(ours.confidence[index]):.0f} %"
    if found.labels is not None:
        true = int(found.labels[index])
        verdict = "holds" if true == said else "fails"
        word = "right" if true == said else f"wrong: {found.class_name(true)}"
        yield f'<span class="{verdict}">{escape(word)}</span>'
    yield (
        f'<span class="small">entropy {float(ours.entropy[index]):.2f}, '
        f"epistemic {float(ours.epistemic[index]):.2f}</span>"
    )


def _of_other(found: Findings, index: int) -> Iterator[str]:
    """Of numbers: the first few; of an answer at each position: the doubt of them all."""
    ours = found.ours
    if ours.entropy is not None:
        yield f"mean entropy {float(ours.entropy[index].mean()):.2f}"
        return
    mean, std = ours.mean[index].flatten()[:3], ours.std[index].flatten()[:3]
    more = " …" if ours.mean[index].numel() > len(mean) else ""
    yield (
        "<b>"
        + ", ".join(f"{m:.3g} ± {s:.2g}" for m, s in zip(mean, std, strict=True))
        + f"{more}</b>"
    )
    if found.labels is not None:
        true = found.labels[index].flatten()[:3]
        yield "true: " + ", ".join(f"{value:.3g}" for value in true) + more
