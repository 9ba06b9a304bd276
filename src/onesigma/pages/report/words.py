"""The report's plain language: what each number says, and what it does not."""

from __future__ import annotations

from html import escape
from typing import TypeAlias

from onesigma.pages.html.page import facts

Terms: TypeAlias = tuple[tuple[str, str], ...]

FLOW = (
    "Read from top to bottom, one row for each operation. Doubt enters at the dropouts (ringed); "
    "every line and bar is coloured by how large the doubt is there, relative to the signal "
    "(root mean squares). A line beside another is a branch: a residual connection runs straight "
    "down past the operations it skips. Hover over a row for its rule and figures."
)
SHARES = (
    "Share of the doubt: the output’s variance under Monte Carlo with only that source of noise "
    "on, beside the sum of all of these. It tells where the doubt comes from, not how to set a "
    "rate."
)
FIDELITY = (
    "Monte-Carlo dropout is the reference: run the original network many times with dropout on, "
    "and look at how its values scatter. One pass computes that scatter in closed form. Here both "
    "are held against each other, on your inputs and layer by layer. No labels are needed."
)
SPREAD = (
    "Each dot is the median of one layer’s spread over Monte Carlo’s, the bar reaches from the "
    "5th to the 95th percentile of its elements. At 1 they agree, left of it one pass is too "
    "sure; the shaded band is ± 10 %."
)
AUDIT_FIGURES: Terms = (
    (
        "spread ratio",
        "standard deviation of one pass over that of Monte Carlo, median over elements; 1 is "
        "perfect, below 1 says that one pass is too sure there",
    ),
    (
        "mean error",
        "how far the mean is off, in Monte-Carlo standard deviations, median over elements; "
        "some of it is the noise of a finite number of passes",
    ),
    (
        "correlation",
        "of log variances: does one pass know WHERE the doubt is? 1 is perfect",
    ),
    (
        "KL",
        "distance of the predicted class probabilities from Monte Carlo’s, in nats, mean over "
        "inputs; that of the plain network is what ignoring the doubt would cost",
    ),
)  # fmt: skip
NO_LABELS = (
    "No labels were given, so nothing here says whether the answers are right. With "
    "<code>--labels y.npy</code> (the true class of each input) this part also shows "
    "accuracy, NLL, ECE and Brier score of the plain network, one pass and Monte Carlo, a "
    "reliability diagram, the doubt of right and wrong answers apart, and a threshold at which to "
    "abstain, with a guarantee."
)
NO_TRUTH = (
    "No true values were given, so nothing here says whether the answers are right. With "
    "<code>--labels y.npy</code> (the true value of each input) this part also shows the "
    "error, how often the truth lies within one and two standard deviations, and whether the doubt "
    "finds the large errors."
)
CLASS_FIGURES: Terms = (
    ("accuracy", "how often the most probable class is the true one"),
    ("F1 macro", "the balance of finding a class and not crying wolf, averaged over classes"),
    (
        "NLL",
        "negative log-likelihood of the true class, in nats: what being sure and wrong costs; "
        "lower is better",
    ),
    ("Brier", "squared distance of the probabilities from the truth, 0 to 2; lower is better"),
    (
        "ECE",
        "expected calibration error: how far “80 % sure” is from right 80 % of the time, "
        "in 15 bins; lower is better, and a few hundredths are noise on a few hundred inputs",
    ),
    (
        "AUROC wrong",
        "how well entropy puts wrong answers above right ones: 0.5 is chance, 1 perfect",
    ),
    (
        "AURC",
        "area under the risk–coverage curve: the mean error rate if one acts on the surest "
        "inputs only, over all shares of them; lower is better",
    ),
)  # fmt: skip
NUMBER_FIGURES: Terms = (
    ("RMSE, mean error", "distance of the answer from the truth, squared or not"),
    ("NLL", "of the truth under a normal distribution with the answer’s mean and variance"),
    (
        "within 1 std, 2 std",
        "share of the true values within one and two standard deviations of the answer. Doubt "
        "from dropout leaves out the noise of the measurement itself, so less than the 68 % and "
        "95 % of a normal distribution is to be expected",
    ),
)
RELIABILITY = (
    "Answers grouped by how sure the network is (across), against how often they are right (up). "
    "On the dotted line it is as right as it says; below the line it is over-confident. The larger "
    "a dot, the more inputs it stands for."
)
RISK_COVERAGE = (
    "Act on the surest inputs only: how many (across), and how many of those are wrong (up), "
    "inputs ordered by entropy. A curve that rises to the right says that the doubt is worth "
    "listening to."
)
ENTROPY = (
    "Predictive entropy of one pass: 0 is certain. Wrong answers should lie further right than "
    "right ones."
)
EPISTEMIC = (
    "How much the sub-networks that dropout leaves disagree (mutual information). Input unlike "
    "the training data shows up here; ambiguous but familiar input does not."
)
STD = "The spread of the answer that comes from the network’s own doubt, over all inputs."
ERROR_CURVE = (
    "Keep the surest inputs only: the mean error of those kept. A curve that rises to the right "
    "says that the doubt is worth listening to."
)
SAMPLES = (
    "The inputs about which one pass is most and least sure; of neighbours in the file only one. "
    "Look at these first: a network that is sure of the wrong thing, or unsure of something plain, "
    "shows itself here. All drawings share one scale for each channel."
)
LIMITS = (
    "This page is about the data it was given: on other data the figures are other ones.",
    "Faithful to Monte-Carlo dropout is not the same as calibrated. If dropout itself is too sure "
    "or too unsure on your data, so is its one-pass form; the labelled figures say.",
    "One variance is carried for each element. Elements of a layer that share dropped units are "
    "correlated, which this leaves out: the spread is then too small, above all behind averages "
    "over many elements, channel dropout and residual joins. onesigma.calibrate repairs most of it "
    "from unlabelled inputs.",
    "The doubt is that of dropout (and of the input prior, if there is one): it does not know of "
    "sensors that fail in ways that the training data never showed, or of labels that are wrong.",
)


def noise(inputs: int, error: float) -> str:
    return (
        f"Bold is best. On {inputs:,} inputs the accuracy has a standard error of "
        f"{100 * error:.1f} %: smaller differences may be chance, in the other figures too."
    )


def of_rule(own: bool) -> str:
    if own:
        return "The rule is the model’s own, attached with <code>with_abstain</code>."
    return (
        "The threshold was chosen on these very inputs. Its guarantee is for new inputs like them, "
        "not training’s; attach it with <code>converted.with_abstain(onesigma.threshold(…))</code>."
    )


def terms(pairs: Terms) -> str:
    return facts(((name, escape(text)) for name, text in pairs), "terms")
