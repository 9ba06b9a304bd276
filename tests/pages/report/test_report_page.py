"""The page says what the model does: its figures, recomputed by another route."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from pages.page_reader import Page
from pages.report.small_reports import (
    COUNT,
    HOSTILE,
    PASSES,
    converted,
    found,
    inputs,
    labelled,
    labels,
    regression,
    residual,
    seeded,
)
from torch import nn

import onesigma
from onesigma.errors import InputError
from onesigma.pages.report import diagram, gather
from onesigma.pages.report.write import report_page, write


def rows(text: str, name: str) -> list[list[str]]:
    """Cells of all table rows of that name."""
    found = re.findall(rf'<th scope="row">{name}</th>(.*?)</tr>', text, flags=re.DOTALL)
    return [[re.sub("<.*?>", " ", c).strip() for c in re.findall("<td.*?>(.*?)</td>", row)]
            for row in found]  # fmt: skip


def words(text: str) -> str:
    return " ".join(" ".join(Page(text).words).split())


@pytest.fixture(scope="module")
def page() -> str:
    return report_page(labelled(), "onesigma report m.safetensors x.npy")


def scores(probs: np.ndarray, truth: np.ndarray) -> list[str]:
    """Accuracy, F1, NLL and Brier by scikit-learn and numpy."""
    from sklearn.metrics import f1_score

    said = probs.argmax(1)
    brier = ((probs - np.eye(3)[truth]) ** 2).sum(1).mean()
    f1 = f1_score(truth, said, average="macro")
    nll = -np.log([row[label] for row, label in zip(probs, truth, strict=True)]).mean()
    return [f"{100 * (said == truth).mean():.1f} %", *(f"{v:.3f}" for v in (f1, nll, brier))]


def test_figures_are_those_of_the_three_methods(page: str) -> None:
    x, truth = inputs(2, 12), labels().numpy()
    with torch.no_grad():
        predictions = {
            "plain network": residual().source(x)[0].softmax(1),
            "one pass": residual()(x).probs,
            "Monte Carlo": onesigma.mc_dropout(residual(), PASSES, max_rows=64)(x).probs,
        }
    for name, probs in predictions.items():
        assert rows(page, name)[0][:4] == scores(probs.double().numpy(), truth)


def test_the_audit_is_that_of_the_model(page: str) -> None:
    audit = onesigma.audit(residual(), inputs(2, 12), passes=PASSES)
    told = rows(page, "head<small>linear</small>")  # in the diagram its shape is said, too
    layer = audit.layers[-1]
    assert [f"{layer.std_ratio:.2f}", f"{layer.low:.2f}–{layer.high:.2f}"] == told[0][1:3]
    assert audit.output is not None
    assert f"KL to Monte Carlo {audit.output.kl:.4f} nats" in page
    assert f"{COUNT} inputs, {PASSES} passes" in page


def test_the_threshold_is_that_of_its_rule(page: str) -> None:
    rule = onesigma.threshold(residual()(inputs(2, 12)), labels(), risk=0.2)
    assert f"act if entropy &lt; {rule.threshold:.4g}, else abstain" in page
    assert f"acts on {100 * rule.coverage:.0f} %" in page
    assert "abstain above" in page


def test_every_node_is_drawn_and_says_what_it_rests_on(page: str) -> None:
    table = page.split('aria-label="Diagram of the graph"')[1].split("</table>")[0]
    report = residual().report
    assert table.count("<tr ") == 1 + len(report.entries)  # and the input
    assert table.count('class="ring"') == len(report.sites) == 2
    for entry in report.entries:
        assert f'title="{entry.node}: {entry.op}' in table
        assert entry.note in table
    # The residual connection: one row with a line that bends into its dot from another lane.
    bends = re.findall(r"M([\d.]+) 0C[\d. ]+ ([\d.]+) [\d.]+\"", table)
    assert any(start != end for start, end in bends)


def test_the_surest_and_the_least_sure_are_shown(page: str) -> None:
    with torch.no_grad():
        entropy = residual()(inputs(2, 12)).entropy
    shown = [int(n) for n in re.findall(r"input (\d+)</p>", page)]
    assert len(shown) == 12
    assert (shown[0], shown[6]) == (int(entropy.argmin()), int(entropy.argmax()))


def test_names_of_classes_are_text(page: str) -> None:
    assert HOSTILE not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    assert "run &amp; jump" in page


def test_a_hostile_model_is_text_too() -> None:
    made = report_page(replace(labelled(), name=HOSTILE), f"onesigma report '{HOSTILE}'")
    assert HOSTILE not in made
    assert Page(made).words


def test_it_is_well_formed_and_alone(page: str) -> None:
    read = Page(page)
    assert all(a.startswith(("#", "data:")) for a in read.addresses)
    assert {a[1:] for a in read.addresses if a.startswith("#")} <= set(read.names)
    assert len(read.names) == len(set(read.names))
    assert not re.findall(r"url\(|@import|<script|<link|http", page)


def test_it_says_how_it_was_made(page: str) -> None:
    said = words(page)
    for needed in (
        "onesigma report m.safetensors x.npy",
        f"torch {torch.__version__}",
        f"{PASSES} passes, seed 0",
        "assumes elements independent of each other",
        "Limits",
        "each in turn, in an order drawn anew every round",
        "60 inputs of 2 × 12 values with labels",
    ):
        assert needed in said


def test_speed_is_relative_to_the_plain_network(page: str) -> None:
    told = {name: rows(page, name)[-1] for name in ("plain network", "one pass")}
    assert told["plain network"][0].startswith("1.00")
    measured = labelled().times
    assert not isinstance(measured, str)
    row = measured.row("one pass", "eager")
    assert row is not None
    assert told["one pass"][0].startswith(f"{row.timing.ratio:.2f}"[:3])
    assert f"{sum(p.numel() for p in residual().source.parameters()):,} numbers" in page


def test_without_labels_it_says_what_they_would_add() -> None:
    said = words(report_page(found(residual(), inputs(2, 12))))
    assert "--labels y.npy" in said
    assert "Reliability diagram" not in said
    assert "Entropy: all the doubt" in said
    assert "of the answers are right" not in said


def test_regression() -> None:
    made = report_page(regression())
    truth, x = inputs(2).numpy(), inputs(5)
    with torch.no_grad():
        ours = regression().converted(x)
    error = np.abs(ours.mean.numpy() - truth)
    rmse, near = np.sqrt((error**2).mean()), (error <= ours.std.numpy()).mean()
    (told,) = rows(made, "one pass")
    assert (told[0], told[3]) == (f"{rmse:.3f}", f"{100 * near:.1f} %")
    assert rows(made, "plain network")[0][2:] == ["–"] * 3
    assert "Does the doubt find the large errors?" in made
    assert "Entropy" not in made
    assert "--labels" in report_page(replace(regression(), labels=None))


def test_the_models_own_rule_is_kept() -> None:
    rule = onesigma.threshold(residual()(inputs(2, 12)), labels(), risk=0.1)
    own = residual().with_abstain(rule)
    assert found(own, inputs(2, 12), labels()).rule is own.abstain
    asked = found(own, inputs(2, 12), labels(), risk=0.3).rule
    assert asked is not None
    assert asked.risk == 0.3


def dense() -> nn.Module:
    return nn.Sequential(nn.Conv1d(2, 4, 3), nn.ReLU(), nn.Dropout(0.4), nn.Conv1d(4, 3, 1))


def test_an_answer_at_each_position() -> None:
    model = converted(seeded(dense), 2, 12)
    truth = torch.zeros(COUNT, 10, dtype=torch.long)
    made = report_page(found(model, inputs(2, 12), truth))
    with torch.no_grad():
        right = (model(inputs(2, 12)).label == 0).double().mean()
    assert rows(made, "one pass")[0][0] == f"{100 * float(right):.1f} %"
    assert "mean entropy" in made
    assert "else abstain" not in made


def test_noise_of_the_input_alone() -> None:
    model = converted(seeded(lambda: nn.Linear(5, 3)), 5, input_std=0.2)
    made = report_page(found(model, inputs(5)))
    assert "input: 100 % of doubt" in made


def test_a_long_network_scrolls_in_its_own_frame() -> None:
    first = labelled().flow[0]
    names = [f"n{index}" for index in range(60)]
    flow = tuple(
        replace(first, entry=replace(first.entry, node=name), inputs=tuple(names[:i][-1:]))
        for i, name in enumerate(names)
    )
    made = "".join(diagram.section(replace(labelled(), flow=flow)))
    assert 'class="scroll flow long"' in made
    assert 'class="scroll flow"' in "".join(diagram.section(labelled()))


def test_a_large_network_is_looked_into_with_few_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(residual(), inputs(2, 12)).audit.inputs == COUNT
    monkeypatch.setattr(gather, "_ELEMENTS", 4000)
    assert 4 <= found(residual(), inputs(2, 12)).audit.inputs < 10


@pytest.mark.parametrize(
    ("x", "truth", "options", "says"),
    [
        (inputs(2, 12), torch.zeros(59, dtype=torch.long), {}, "59 labels for 60 inputs"),
        (inputs(2, 12), torch.full((60,), 3), {}, "Labels are within 0..2"),
        (inputs(2, 12), None, {"classes": ("a", "b")}, "2 names for 3 classes"),
        (inputs(2, 12)[:0], None, {}, "at least 1"),
        (inputs(2, 12).index_fill(0, torch.tensor([7]), torch.nan), None, {}, "1 of 60 inputs"),
        (inputs(2, 13), None, {}, "Expected an input of shape"),
    ],
    ids=["too few labels", "unknown label", "names", "no inputs", "nan", "shape"],
)
def test_what_does_not_fit_is_explained(x, truth, options, says) -> None:
    with pytest.raises(InputError, match=re.escape(says)):
        found(residual(), x, truth, **options)


def test_a_failed_write_leaves_the_old_page(tmp_path, monkeypatch) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    monkeypatch.setattr("pathlib.Path.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        write(labelled(), path)
    assert [f.read_text() for f in tmp_path.iterdir()] == ["old"]
