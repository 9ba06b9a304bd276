"""Deep ensembles (Lakshminarayanan et al. 2017): the same network, trained several times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor, nn

from onesigma.arguments import typed
from onesigma.baselines.backbone import Backbone, Totals, backbone
from onesigma.errors import InputError
from onesigma.prediction import Prediction


@typed
def ensemble(
    models: Iterable[nn.Module],
    *,
    task: str = "classification",
    class_dim: int | None = None,
    output: str | int | None = None,
) -> Ensemble:
    """An ensemble of trained networks, with the same ``Prediction`` as a converted one.

    Args:
        models: the members, alike in what they take and return; dropout is off in each.
        task: "classification" or "regression".
        class_dim: dimension of the classes; 1, or that of the members' final softmax.
        output: which of several outputs is the answer, as for ``convert``.

    Returns:
        A callable: the mean and (unbiased) variance of the members' logits, the average of their
        softmax, and as epistemic part the mutual information of answer and member.
    """
    members = tuple(
        backbone(model, task=task, class_dim=class_dim, output=output) for model in models
    )
    if not members:
        raise InputError("An ensemble needs at least one model.")
    return Ensemble(members)


@dataclass
class Ensemble:
    """See ``ensemble``. Each member is captured at the first call, from the input it gets."""

    members: tuple[Backbone, ...]

    def __call__(self, *inputs: Tensor) -> Prediction:
        """Mean and variance over the members; their softmax averaged."""
        first = self.members[0].original(inputs)
        totals = Totals(first.settings.task, first.settings.class_dim)
        shape = None
        for index, member in enumerate(self.members):
            logits = member.logits(*inputs)
            shape = shape or logits.shape
            if logits.shape != shape:
                raise InputError(
                    f"Member {index} of the ensemble returns {tuple(logits.shape)}, the first "
                    f"{tuple(shape)}: the members must have the same classes."
                )
            totals.add(logits.unsqueeze(0))
        return totals.prediction()
