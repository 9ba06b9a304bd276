"""What the columns and the figures of the report mean, in words."""

from __future__ import annotations

HOW = (
    "Ours is one forward pass of the trained network, converted, and calibrated against "
    "Monte-Carlo dropout of the same network on unlabelled training inputs. BackboneDNN, MCDrop "
    "and ours are the same weights. All networks were trained on clean input. When to stop "
    "training, and the temperatures, were decided on validation data; test data decided nothing. "
    "Under noise, figures are of inputs that lie in the noise as a whole. The paper’s input prior "
    "is not used."
)
METHODS = (
    ("Ours", "the converted network: mean and variance carried through every layer, one pass"),
    ("BackboneDNN", "the plain network and its softmax, dropout off"),
    (
        "ApDeepSense",
        "a network of five fully connected layers of 512, its moments carried through likewise, "
        "and one softmax of the mean",
    ),
    ("MCDrop-k", "Monte-Carlo dropout: k passes with dropout on, their softmax averaged"),
    ("DeepEnsemble-k", "k networks trained apart, their softmax averaged; needs k trainings"),
)
FIGURES = (
    ("accuracy, F1", "how often the answer is right; F1 averaged over classes (macro) or weighted"),
    (
        "NLL",
        "negative log-likelihood of the true class in nats: what being sure and wrong costs. "
        "Lower is better",
    ),
    (
        "Gaussian NLL",
        "the paper’s formula, on one-hot labels with mean and variance of the class "
        "probabilities. It is ruled by tiny variances, so NLL is the one to compare. Which of the "
        "two the paper prints, and which F1, it does not say",
    ),
    ("Brier", "squared distance of the probabilities from the truth; lower is better"),
    (
        "ECE",
        "expected calibration error: how far 80 % confidence is from right 80 % of the time, "
        "15 bins. Lower is better",
    ),
    ("…, T", "the same after one temperature, fitted on validation data, for each method its own"),
    (
        "error AUROC, entropy",
        "how well entropy puts wrong answers above right ones: 0.5 is chance, 1 perfect",
    ),
    (
        "AUROC, AUPR, FPR95",
        "how well a score tells foreign input from clean test input; FPR95 is the share of known "
        "input flagged when 95 % of the foreign is found, lower is better",
    ),
    (
        "epistemic",
        "mutual information of answer and network: how much the sub-networks that dropout "
        "leaves disagree. Entropy is all doubt; energy and max-probability are scores of the "
        "plain network",
    ),
    (
        "±",
        "one standard deviation over trials; in the table of goals, one standard error. Large "
        "ensembles share members between trials, so theirs is too small",
    ),
)
