"""Ops we know and do not convert, each with the reason and the way out."""

from __future__ import annotations

import torch

from onesigma.rules.table import Reach, refuse

aten = torch.ops.aten

refuse(
    aten.lstm.input,
    aten.gru.input,
    aten.rnn_tanh.input,
    aten.rnn_relu.input,
    why="recurrent layers have no moment rule. Use onesigma.fit or convert(…, particles=8), or put "
    "the dropout after the recurrent part.",
)
refuse(
    aten.max_pool2d_with_indices.default,
    aten.max_pool3d_with_indices.default,
    why="the index of an uncertain maximum is itself uncertain. Pool without return_indices.",
)
refuse(
    aten.argmax.default,
    aten.argmin.default,
    why="an argmax has no mean or variance. Return the scores and take the argmax outside.",
)
refuse(
    *(aten.gt.Scalar, aten.ge.Scalar, aten.lt.Scalar, aten.le.Scalar),
    *(aten.gt.Tensor, aten.ge.Tensor, aten.lt.Tensor, aten.le.Tensor),
    *(aten.eq.Scalar, aten.ne.Scalar, aten.eq.Tensor, aten.ne.Tensor),
    why="whether an uncertain value is larger is itself uncertain. Write the choice as relu, "
    "leaky_relu, threshold, clamp or maximum.",
    reach=Reach.EACH,
)
