"""One trial: each method on each condition, against the formulas; kept as long as it is valid."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from lab.paper import small_task
from lab.paper.small_task import PLAN
from torch import nn

from onesigma.baselines.backbone import backbone
from onesigma.baselines.mc_dropout import mc_dropout
from onesigma.decide.temperature import Temperature
from onesigma.lab.paper import trial
from onesigma.lab.paper.methods import Pools
from onesigma.lab.paper.trial import evaluate, predict, scores_of, spot
from onesigma.lab.training.pool import Pool
from onesigma.lab.training.train import Trained

torch.manual_seed(0)
NETWORK = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3)).eval()
INPUTS = torch.randn(60, 4)
LABELS = torch.arange(60) % 3


def test_figures_of_the_plain_network():
    figures = evaluate(predict(backbone(NETWORK), INPUTS), LABELS, Temperature(2.0))
    with torch.no_grad():
        logits = NETWORK(INPUTS)
    assert figures["accuracy"] == pytest.approx(float((logits.argmax(1) == LABELS).float().mean()))
    loss = nn.functional.cross_entropy
    assert figures["NLL"] == pytest.approx(float(loss(logits, LABELS)), rel=1e-5)
    assert figures["NLL, T"] == pytest.approx(float(loss(logits / 2, LABELS)), rel=1e-5)
    assert figures["temperature"] == 2
    entropy = torch.distributions.Categorical(logits=logits).entropy()
    right = logits.argmax(1) == LABELS
    assert figures["entropy wrong"] == pytest.approx(float(entropy[~right].mean()), rel=1e-5)
    assert math.isnan(figures["Gaussian NLL"])
    assert "error AUROC, epistemic" not in figures


def test_a_method_with_spread_has_the_papers_nll_and_an_epistemic_part():
    figures = evaluate(predict(mc_dropout(NETWORK, 20), INPUTS), LABELS, Temperature(1.0))
    assert math.isfinite(figures["Gaussian NLL"])
    assert 0 <= figures["error AUROC, epistemic"] <= 1
    assert figures["NLL, T"] == pytest.approx(figures["NLL"], rel=1e-5)


def test_large_batches_are_cut_and_joined():
    many = torch.randn(600, 4)
    with torch.no_grad():
        expected = NETWORK(many).softmax(1)
    torch.testing.assert_close(predict(backbone(NETWORK), many).probs, expected)


def test_each_method_offers_its_own_scores():
    plain, sampled = (predict(m, INPUTS) for m in (backbone(NETWORK), mc_dropout(NETWORK, 5)))
    assert list(scores_of(plain)) == ["max-probability", "entropy", "energy"]
    assert list(scores_of(sampled)) == ["entropy", "epistemic"]


def test_spotting_counts_pairs():
    """AUROC is the share of pairs in which the foreign input scores higher."""
    plain = backbone(NETWORK)
    known, foreign = (predict(plain, x) for x in (INPUTS, 3 * INPUTS.flip(0)[:40]))
    found = spot(known, foreign)
    energies = [-torch.logsumexp(p.mean, 1) for p in (known, foreign)]
    share = (energies[1][None] > energies[0][:, None]).double().mean()
    assert found["energy"]["auroc"] == pytest.approx(float(share))
    assert spot(known, known)["entropy"]["auroc"] == pytest.approx(0.5)


@pytest.mark.parametrize("kept", [None, "{", "[]", '{"key": "of another study"}'])
def test_what_is_absent_damaged_or_of_another_study_is_made_again(kept, tmp_path, monkeypatch):
    path = tmp_path / "trial-0.json"
    if kept is not None:
        path.write_text(kept)
    monkeypatch.setattr(trial, "run_trial", lambda *_: {"labelled": [float("nan")]})
    study = trial.Study(SimpleNamespace(), SimpleNamespace(), [], {})
    monkeypatch.setattr(trial.Study, "digest", lambda *_: "this one")
    made = trial.run_or_read(study, PLAN, 0, path, lambda line: None)
    assert made == {"key": "this one", "trial": 0, "labelled": [None]}
    assert [p.name for p in tmp_path.iterdir()] == ["trial-0.json"]


def test_the_digest_changes_with_what_decides_the_outcome():
    splits = small_task.load("hhar").splits
    pools = [Pool((Trained(nn.Linear(2, 2), None),) * count) for count in (3, 1)]
    study = trial.Study(splits, Pools(*pools), [], {"words": torch.zeros(2)})
    other = replace(study, foreign={"words": torch.ones(2)})
    assert study.digest(PLAN, 0) == study.digest(replace(PLAN, trials=9), 0)
    assert study.digest(PLAN, 0) != study.digest(replace(PLAN, seed=9), 0)
    assert study.digest(PLAN, 0) != other.digest(PLAN, 0)
