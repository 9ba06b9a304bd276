"""The paper's own numbers: its Table "Accuracy, F1 Score, and Negative Log-Likelihood".

"The Benefit of the Doubt: Uncertainty Aware Sensing for Edge Computing Platforms". They belong
beside results on the SAME dataset, by its exact name; a stand-in has no place for them.
"""

from __future__ import annotations

from onesigma.lab.paper.methods import COLUMNS

CITATION = (
    "“The Benefit of the Doubt: Uncertainty Aware Sensing for Edge Computing Platforms”, the table "
    "of accuracy, F1 score and NLL (there without standard deviations)"
)

_TABLE = {
    "HHAR": {
        "accuracy": (94.79, 91.5, 78.55, 92.67, 92, 91.33, 92.56, 92.51, 92.66, 92.83),
        "F1": (0.792, 0.671, 0.601, 0.671, 0.678, 0.677, 0.712, 0.702, 0.704, 0.708),
        "NLL": (2.558, 42.14, 3.75, 30.14, 8.01, 5.58, 4.13, 23.54, 7.18, 4.36),
    },
    "Opportunity": {
        "accuracy": (86.80, 83.85, 80.03, 83.24, 82.81, 83.85, 84.63, 82.35, 82.99, 84.06),
        "F1": (0.808, 0.732, 0.701, 0.741, 0.742, 0.744, 0.765, 0.743, 0.746, 0.755),
        "NLL": (2.39, 12.35, 4.00, 12.31, 9.38, 8.38, 2.28, 9.21, 7.98, 3.60),
    },
    "Speech Commands": {
        "accuracy": (82.12, 78.45, 71.15, 78.48, 80.02, 80.65, 81.01, 79.33, 80.45, 81.01),
        "F1": (0.733, 0.622, 0.589, 0.624, 0.628, 0.633, 0.706, 0.596, 0.599, 0.675),
        "NLL": (1.01, 2.11, 1.97, 1.44, 1.20, 1.13, 1.08, 1.44, 1.18, 1.08),
    },
}


def numbers(data: str) -> dict[str, dict[str, float]]:
    """Figure → column → the paper's number, accuracy as a share; empty for any other dataset."""
    return {
        figure: {
            column: value / 100 if figure == "accuracy" else value
            for column, value in zip(COLUMNS, values, strict=True)
        }
        for figure, values in _TABLE.get(data, {}).items()
    }
