"""The page says what the model does: its figures, recomputed by another route."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from pages.page_reader import Page
from pages.report.small_reports import (
    COST,
    COUNT,
    HOSTILE,
    PASSES,
    converted,
    find,
    guarded,
    inputs,
    labelled,
    labels,
    regression,
    residual,
    seeded,
)
from torch import nn

import onesigma
from onesigma.pages.report.sections import REASONS, percent
from onesigma.pages.report.write import report_page


def rows(text: str, name: str) -> list[list[str]]:
    """Cells of all table rows of that name."""
    found = re.findall(rf'<th scope="row">{name}</th>(.*?)</tr>', text, flags=re.DOTALL)
    return [[re.sub("<.*?>", " ", c).strip() for c in re.findall("<td.*?>(.*?)</td>", row)]
            for row in found]  # fmt: skip


def plain_text(page: str) -> str:
    return " ".join(" ".join(Page(page).words).split())


@pytest.fixture(scope="module")
def page() -> str:
    return report_page(labelled(), cost=COST)


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
    for layer in (*audit.layers, audit.own):
        told = [f"{layer.std_ratio:.2f}", f"{layer.low:.2f}–{layer.high:.2f}"]
        assert told in [row[:2] for row in rows(page, layer.where)]
    assert audit.output is not None
    assert f"KL to Monte Carlo {audit.output.kl:.4f} nats" in page
    assert f"{COUNT} inputs, {PASSES} passes" in page


@pytest.mark.parametrize(
    ("ratio", "says"),
    [
        (1.02, "that of Monte Carlo, within 5 %."),
        (0.5, "0.50 times Monte Carlo’s: too sure. onesigma.fit learns it"),
        (1.2, "1.20 times Monte Carlo’s: not sure enough."),
    ],
)
def test_what_the_audit_found_is_said(ratio: float, says: str) -> None:
    audit = labelled().audit
    own = replace(audit.own, std_ratio=ratio)
    made = report_page(replace(labelled(), audit=replace(audit, own=own)))
    assert f"The spread of the answer is {says}" in made


def test_the_threshold_is_that_of_its_rule(page: str) -> None:
    rule = onesigma.threshold(residual()(inputs(2, 12)), labels(), risk=0.2)
    assert f"act if entropy &lt; {rule.threshold:.4g}, else abstain" in page
    assert f"acts on {100 * rule.coverage:.0f} %" in page
    assert "abstain above" in page


def test_the_surest_and_the_least_sure_are_shown(page: str) -> None:
    with torch.no_grad():
        entropy = residual()(inputs(2, 12)).entropy
    shown = [int(n) for n in re.findall(r"input (\d+)</p>", page)]
    assert len(shown) == 12
    assert (shown[0], shown[6]) == (int(entropy.argmin()), int(entropy.argmax()))


def test_cost_is_relative_to_the_plain_network(page: str) -> None:
    told = {name: rows(page, name) for name in ("plain network", "one pass")}
    assert told["plain network"][-1] == ["1.00", "1.00", "0.50", "–"]
    assert told["one pass"][-2:] == [
        [f"3.46 {'± 0.12'}", "3.40", "1.70", "–"],
        ["2.22", "2.20", "0.20", "1,234"],
    ]
    assert rows(page, "MC dropout, 30 passes") == [["31.2 ± 4.5", "29.9", "15.00", "–"]]
    said = plain_text(page)
    weights = sum(p.numel() for p in residual().source.parameters())
    for needed in (
        f"{weights:,} numbers",
        "2.22× the plain network’s time in ONNX Runtime",
        "a new random order every round",
        "a small machine",
        "energy of one pass 1.50 mJ per answer in PyTorch",
        f"left out: OpenVINO not installed ({HOSTILE})",
    ):
        assert needed in said


@pytest.mark.parametrize("cost", [None, "The model fixes its batch."])
def test_a_cost_that_was_not_measured(cost: str | None) -> None:
    said = plain_text(report_page(labelled(), cost=cost))
    assert f"time {cost or 'not measured'}" in said
    assert "the plain network’s time" not in said


def test_without_labels_it_says_what_they_would_add() -> None:
    said = plain_text(report_page(replace(labelled(), labels=None, rule=None)))
    assert "--labels y.npy" in said
    assert "Reliability diagram" not in said
    assert "Entropy: total uncertainty" in said
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
    assert "Does the uncertainty find the large errors?" in made
    assert "Entropy" not in made
    assert "--labels" in report_page(replace(regression(), labels=None))


def test_classes_and_what_they_are_taken_for(page: str) -> None:
    from sklearn.metrics import confusion_matrix

    found = labelled()
    said, true = found.ours.label.numpy(), labels().numpy()
    act = found.rule(found.ours).numpy()
    matrix = confusion_matrix(true, said)
    told = rows(page, "walk")
    assert [int(cell or 0) for cell in told[1]] == matrix[0].tolist()
    own = true == 0
    shares = [(said == true)[own], act[own], (said != true)[own & act]]
    assert told[0] == [str(own.sum()), *(percent(float(share.mean())) for share in shares)]
    without = report_page(replace(found, rule=None))
    assert len(rows(without, "walk")[0]) == 2  # nothing is acted on
    assert "Which class is taken" not in report_page(replace(found, labels=None, rule=None))


def dense() -> nn.Module:
    return nn.Sequential(nn.Conv1d(2, 4, 3), nn.ReLU(), nn.Dropout(0.4), nn.Conv1d(4, 3, 1))


def test_an_answer_at_each_position() -> None:
    model = converted(seeded(dense), 2, 12)
    truth = torch.zeros(COUNT, 10, dtype=torch.long)
    made = report_page(find(model, inputs(2, 12), truth))
    with torch.no_grad():
        right = (model(inputs(2, 12)).label == 0).double().mean()
    assert rows(made, "one pass")[0][0] == f"{100 * float(right):.1f} %"
    assert "mean entropy" in made
    assert "else abstain" not in made


def test_noise_of_the_input_alone() -> None:
    model = converted(seeded(lambda: nn.Linear(5, 3)), 5, input_std=0.2)
    assert "<dd>input 100 %." in report_page(find(model, inputs(5)))


def test_what_the_guard_finds_is_told() -> None:
    found = guarded()
    text = report_page(found)
    with torch.no_grad():
        said = found.converted(found.inputs)
    broken = ~said.in_contract
    novel = ~broken & (said.novelty < 0.02)
    familiar = ~broken & ~novel
    assert bool(broken[:6].all())
    counts = [int(each.sum()) for each in (familiar, novel, broken)]
    names = ("familiar", "unfamiliar", "broken input")
    assert found.to_dict()["familiarity"] == dict(zip(names, counts, strict=True))
    for name, count in zip(names, counts, strict=True):
        assert rows(text, name)[0] == [f"{count} ({percent(count / COUNT)})"]
    # By channel: the one that was broken first, with a guess at what happened.
    outside = (said.contract.abs().reshape(COUNT, -1, 2) > 1).any(1).sum(0)
    told = [row for row in rows(text, "&lt;img src=x onerror=alert\\(1\\)&gt;") if len(row) == 3]
    assert told[-1][0] == str(int(outside[1]))
    assert told[-1][2].endswith("flat line?")
    assert "Does it know this input?" in text
    assert "the bars are as flat as the dotted line" in plain_text(text)


def test_the_reasons_of_the_rule_are_counted() -> None:
    found, (text, plain) = guarded(), (report_page(guarded()), report_page(labelled()))
    act, right = found.rule(found.ours), found.ours.label == found.labels
    own = f"{100 * float(right[act].float().mean()):.1f} %"
    share = f"{100 * float(act.float().mean()):.1f} %"
    assert rows(text, "sure") == [[str(int(act.sum())), share, own]]
    total = sum(int(rows(text, name)[-1][0]) for name in REASONS)
    assert total == COUNT
    # Without a guard there is no such part.
    assert "Does it know this input?" not in plain
    assert not rows(plain, "sure")
    assert "familiarity" not in labelled().to_dict()
