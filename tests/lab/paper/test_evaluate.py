"""One method on one condition, against the formulas written out."""

import math

import pytest
import torch
from onesigma.lab.paper.evaluate import evaluate, predict, scores_of, spot
from torch import nn

from onesigma.baselines.backbone import backbone
from onesigma.baselines.mc_dropout import mc_dropout
from onesigma.decide.temperature import Temperature

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
