"""Every entry of the table: one op as ONNX, in onnxruntime, against PyTorch."""

import operator
import re

import numpy as np
import pytest
import torch
from torch import fx

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from onesigma.exporters.onnx import Interface  # noqa: E402
from onesigma.exporters.onnx.ops import OPS, UnwritableError  # noqa: E402
from onesigma.exporters.onnx.writer import write  # noqa: E402

aten = torch.ops.aten


def randn(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape) + len(shape))
    return torch.randn(*shape, generator=generator)


X = 3 * randn(4, 6)
POSITIVE = X.abs() + 0.1
SIGNAL, IMAGE, VOLUME = randn(2, 4, 8), randn(2, 4, 8, 6), randn(2, 2, 4, 4, 4)
TRUTH = X > 0
HEADS, LONGER = randn(2, 3, 4, 5), randn(2, 3, 6, 5)
KEPT = randn(2, 1, 4, 6) > 0
KEPT[0, 0, 1] = False  # a row in which all is masked
BIAS = randn(4, 6).masked_fill(~KEPT[0, 0], -torch.inf)
SMALL = torch.tensor([[-1e-3, -1e-6, -1e-9, 0.0, 1e-12, 1e-7, 1e-4, 0.3, 5.0, -0.7]])

# ATen op → calls of it; tensors are inputs of the graph.
CASES = {
    **{
        op: [(X,)]
        for op in (
            *(aten.abs.default, aten.neg.default, aten.erf.default, aten.exp.default),
            *(aten.reciprocal.default, aten.relu.default, aten.selu.default, aten.sigmoid.default),
            *(aten.tanh.default, aten.hardswish.default, aten.hardsigmoid.default),
            *(aten.mish.default, aten.silu.default, aten.log_sigmoid.default),
            *(aten.square.default, aten.relu6.default, aten.t.default, aten.zeros_like.default),
            *(aten.alias.default, aten.clone.default, aten.contiguous.default),
            *(aten.detach.default, aten.lift_fresh_copy.default, aten.ones_like.default),
            *(aten.sin.default, aten.cos.default, aten.sign.default),
            *(aten.floor.default, aten.round.default),
        )
    },
    **{op: [(POSITIVE,)] for op in (aten.log.default, aten.sqrt.default, aten.rsqrt.default)},
    **{op: [(SMALL,)] for op in (aten.expm1.default, aten.log1p.default)},
    **{
        op: [(X, POSITIVE), (X, X[:1])]
        for op in (
            *(aten.div.Tensor, aten.mul.Tensor, aten.maximum.default, aten.minimum.default),
            *(aten.gt.Tensor, aten.ge.Tensor, aten.lt.Tensor, aten.le.Tensor, aten.eq.Tensor),
        )
    },
    **{
        op: [(X, 2), (X, 0.5)]
        for op in (
            *(aten.div.Scalar, aten.mul.Scalar, aten.gt.Scalar, aten.ge.Scalar, aten.lt.Scalar),
            *(aten.le.Scalar, aten.eq.Scalar, aten.clamp_min.default, aten.clamp_max.default),
        )
    },
    **{op: [(TRUTH, X > 1)] for op in (aten.__and__.Tensor, aten.bitwise_and.Tensor)},
    **{op: [(TRUTH, X > 1)] for op in (aten.__or__.Tensor, aten.bitwise_or.Tensor)},
    aten.logical_and.default: [(TRUTH, X > 1)],
    aten.logical_or.default: [(TRUTH, X > 1)],
    aten.logical_not.default: [(TRUTH,)],
    aten.bitwise_not.default: [(TRUTH,)],
    aten.where.self: [(TRUTH, X, POSITIVE)],
    aten.where.Scalar: [(TRUTH, 1.0, -1.0)],
    aten.where.ScalarOther: [(TRUTH, X, 0.0)],
    aten.where.ScalarSelf: [(TRUTH, 1.5, X)],
    aten.add.Tensor: [(X, POSITIVE), (X, 2), (X, POSITIVE, {"alpha": 3})],
    aten.add.Scalar: [(X, 2.0)],
    aten.sub.Tensor: [(X, POSITIVE), (X, POSITIVE, {"alpha": 0.5})],
    aten.sub.Scalar: [(X, 2.0)],
    aten.rsub.Scalar: [(X, 1), (X, 1.0, 2.0)],
    aten.pow.Tensor_Scalar: [(X, 2), (POSITIVE, 1.5), (X, 3)],
    aten.clamp.default: [(X, -1, 2), (X, 0.5), (X, None, 0.5), (X, {"max": 1.0})],
    aten.hardtanh.default: [(X,), (X, -2.0, 0.5)],
    aten.gelu.default: [(X,), (X, {"approximate": "tanh"})],
    aten.leaky_relu.default: [(X,), (X, 0.3)],
    aten.prelu.default: [(SIGNAL, randn(4)), (IMAGE, randn(1)), (X, randn(1))],
    aten.threshold.default: [(X, 0.1, -2), (X, -0.5, 3.0)],
    aten.elu.default: [(X,), (X, 0.7)],
    aten.softplus.default: [(X,), (40 * X,)],
    aten.softmax.int: [(X, 1), (SIGNAL, -1)],
    aten.log_softmax.int: [(X, 1), (SIGNAL, 1)],
    aten.dropout.default: [(X, 0.5, False)],
    aten.feature_dropout.default: [(X, 0.5, False)],
    aten.matmul.default: [(X, randn(6, 3)), (SIGNAL, randn(8, 3))],
    aten.mm.default: [(X, randn(6, 3))],
    aten.bmm.default: [(SIGNAL, randn(2, 8, 3))],
    aten.linear.default: [
        *((X, randn(3, 6)), (X, randn(3, 6), randn(3))),
        *((SIGNAL, randn(3, 8)), (SIGNAL, randn(3, 8), randn(3))),
    ],
    aten.addmm.default: [(randn(3), X, randn(6, 3))],
    aten.conv1d.padding: [
        (SIGNAL, randn(3, 4, 4), None, [1], "same", [2]),
        (SIGNAL, randn(3, 4, 3), randn(3), [2], "valid"),
    ],
    aten.conv2d.padding: [(IMAGE, randn(4, 2, 4, 3), randn(4), [1, 1], "same", [1, 2], 2)],
    aten.conv3d.padding: [(VOLUME, randn(3, 2, 2, 3, 3), None, [1], "same")],
    aten.conv1d.default: [
        (SIGNAL, randn(3, 4, 3)),
        (SIGNAL, randn(4, 2, 3), randn(4), [2], [1], [2], 2),
    ],
    aten.conv2d.default: [
        (IMAGE, randn(3, 4, 3, 2), randn(3)),
        (IMAGE, randn(3, 4, 3, 2), None, [2, 1], [1, 0], [1, 2]),
    ],
    aten.conv3d.default: [(VOLUME, randn(3, 2, 3, 2, 2), randn(3))],
    aten.conv_transpose1d.default: [(SIGNAL, randn(4, 3, 3), randn(3), [2], [1], [1])],
    aten.conv_transpose2d.input: [(IMAGE, randn(4, 3, 3, 3), None, [2, 1], [1, 1], [1, 0])],
    aten.conv_transpose3d.input: [(VOLUME, randn(2, 3, 2, 2, 2))],
    aten.batch_norm.default: [
        (IMAGE, randn(4), randn(4), randn(4), POSITIVE[0, :4], False, 0.1, 1e-3, False),
        (SIGNAL, None, None, randn(4), POSITIVE[0, :4], False, 0.1, 1e-3, False),
    ],
    aten.layer_norm.default: [(SIGNAL, [8], randn(8), randn(8)), (SIGNAL, [4, 8], randn(4, 8))],
    aten.mean.dim: [(IMAGE, [2, 3]), (IMAGE, [-1], True)],
    aten.cumsum.default: [(SIGNAL, 1), (SIGNAL, -1)],
    aten.sum.dim_IntList: [(IMAGE, [1]), (IMAGE, [2, 3], True)],
    aten.amax.default: [(IMAGE, [2, 3]), (IMAGE, [-1], True)],
    aten.avg_pool1d.default: [
        *((SIGNAL, [2]), (SIGNAL, [3], [2], [1])),
        *((SIGNAL, [3], [2], [1], True), (SIGNAL, [3], [2], [1], True, False)),
    ],
    aten.avg_pool2d.default: [
        *((IMAGE, [3, 2], [2], [1], False, False), (IMAGE, [3], [2], [1], False, False, 1)),
        *((IMAGE, [3, 2], [2], [0], True, True, 5), (IMAGE, [3, 4], [3, 4], [1], True, False)),
    ],
    aten.avg_pool3d.default: [(VOLUME, [2]), (VOLUME, [3], [2], [1], True, False)],
    aten.max_pool1d.default: [
        (SIGNAL, [2]),
        (SIGNAL, [3], [2], [1]),
        (SIGNAL, [3], [], [0], [1], True),
    ],
    aten.max_pool2d.default: [
        *((IMAGE, [3, 2], [2], [1], [2]), (IMAGE, [3], [2], [0], [1], True)),
        *((IMAGE, [3], [2], [1], [2], True), (IMAGE, [3, 2], [4, 3], [1], [1], True)),
    ],
    aten.max_pool3d.default: [(VOLUME, [2]), (VOLUME, [3], [2], [1], [1], True)],
    aten.adaptive_avg_pool1d.default: [(SIGNAL, [1]), (SIGNAL, [4]), (SIGNAL, [3])],
    aten.adaptive_avg_pool2d.default: [(IMAGE, [1, 1]), (IMAGE, [4, 2]), (IMAGE, [3, 2])],
    aten.adaptive_avg_pool3d.default: [(VOLUME, [1, 2, 4]), (VOLUME, [3, 3, 3])],
    aten.upsample_nearest1d.vec: [(SIGNAL, None, [2.0])],
    aten.upsample_nearest2d.vec: [(IMAGE, None, [2.0, 3.0])],
    aten.upsample_nearest3d.vec: [(VOLUME, None, [2.0, 2.0, 2.0])],
    aten.upsample_linear1d.vec: [(SIGNAL, None, False, [2.0])],
    aten.upsample_bilinear2d.vec: [(IMAGE, None, False, [2.0, 2.0])],
    aten.reshape.default: [(IMAGE, [2, -1]), (IMAGE, [-1, 6])],
    **{op: [(IMAGE, [2, 4, -1])] for op in (aten.view.default, aten._unsafe_view.default)},
    aten.unflatten.int: [(IMAGE, -1, [1, -1]), (IMAGE, 1, [-1, 1])],
    aten.flatten.using_ints: [(IMAGE,), (IMAGE, 1), (IMAGE, 1, 2), (IMAGE, -2)],
    aten.unsqueeze.default: [(X, 1), (X, -1)],
    aten.squeeze.dim: [(X[:, :1], 1), (X[:, :1], -1)],
    aten.permute.default: [(SIGNAL, [0, 2, 1]), (SIGNAL, [0, 1, -1])],
    aten.transpose.int: [(SIGNAL, 1, 2), (SIGNAL, -1, 0)],
    aten.movedim.int: [(IMAGE, 1, -1), (IMAGE, -1, 1), (IMAGE, 1, 1)],
    aten.cat.default: [([X, POSITIVE], 1), ([X, POSITIVE],)],
    aten.stack.default: [([X, POSITIVE], 1), ([X, POSITIVE], -1)],
    aten.select.int: [(SIGNAL, 2, 3), (SIGNAL, 1, -1)],
    aten.index_select.default: [(SIGNAL, 1, torch.tensor([2, 0, 2]))],
    aten.gather.default: [(X, 1, torch.tensor([[0, 3], [1, 1], [5, 2], [4, 4]]))],
    aten.embedding.default: [(X, torch.tensor([[0, 3], [1, 1]]))],
    aten.slice.Tensor: [(SIGNAL, 2, 1, 7, 2), (SIGNAL, 1, -2), (SIGNAL, 2, None, -1), (SIGNAL, 1)],
    aten.narrow.default: [(SIGNAL, 2, 1, 3), (SIGNAL, 1, -2, 2)],
    aten.expand_as.default: [(X[:1], X)],
    aten.expand.default: [(X[:, :1], [-1, 5]), (X, [2, -1, -1])],
    aten.full_like.default: [(X, 0.25), (X, 3)],
    aten.flip.default: [(SIGNAL, [1]), (SIGNAL, [0, -1])],
    aten.full.default: [([2, 3], 0.5)],
    aten.masked_fill.Scalar: [(X, TRUTH, -1.5)],
    aten.masked_fill.Tensor: [(X, TRUTH, torch.tensor(2.0))],
    **{op: [([2, 3],)] for op in (aten.ones.default, aten.zeros.default)},
    **{op: [(X, [2, 3])] for op in (aten.new_ones.default, aten.new_zeros.default)},
    aten.split.Tensor: [(SIGNAL, 3, 2), (SIGNAL, 2, -2)],
    aten.unsafe_split.Tensor: [(SIGNAL, 2, 1)],
    aten.split_with_sizes.default: [(SIGNAL, [1, 5, 2], -1)],
    aten.chunk.default: [(SIGNAL, 3, 2)],
    aten.unbind.int: [(SIGNAL, 1)],
    aten.scaled_dot_product_attention.default: [
        *((HEADS, HEADS, HEADS), (HEADS, LONGER, LONGER), (HEADS, HEADS, HEADS, None, 0.0, True)),
        *((HEADS, LONGER, LONGER, KEPT), (HEADS, LONGER, LONGER, BIAS, {"scale": 0.3})),
    ],
    aten.to.dtype: [(X, torch.float64), (TRUTH, torch.float32), (X, torch.float32)],
    aten.to.dtype_layout: [(X, {"dtype": torch.float64})],
    aten._to_copy.default: [(X, {"dtype": torch.int64})],
    aten.pad.default: [
        *((SIGNAL, [2, 1]), (SIGNAL, [1, 0, 2, 3], "constant", 0.5)),
        *((SIGNAL, [2, 1], "reflect"), (SIGNAL, [2, 1], "replicate")),
    ],
    aten.constant_pad_nd.default: [(SIGNAL, [1, 2], 2.0)],
}
# See test_onnx_file.py
SIZES = {aten.sym_size.int, operator.add, operator.mul, operator.floordiv, operator.getitem}
RECURRENT = {op for op in OPS if re.search("lstm|gru|rnn", str(op))}  # see test_recurrent.py
CALLS = [
    pytest.param(op, call, id=f"{op}-{i}")
    for op, calls in CASES.items()
    for i, call in enumerate(calls)
]


def one_op(op, call) -> tuple[fx.GraphModule, list[torch.Tensor]]:
    graph, tensors = fx.Graph(), []

    def node(argument):
        if isinstance(argument, torch.Tensor):
            tensors.append(argument)
            return graph.placeholder(f"x{len(tensors)}")
        return [node(a) for a in argument] if isinstance(argument, list) else argument

    args = [a for a in call if not isinstance(a, dict)]
    kwargs = {k: v for a in call if isinstance(a, dict) for k, v in a.items()}
    made = graph.call_function(op, tuple(node(a) for a in args), kwargs)
    several = isinstance(op(*args, **kwargs), tuple | list)
    graph.output((graph.call_function(operator.getitem, (made, 1)) if several else made,))
    return fx.GraphModule({}, graph), tensors


def written(op, call, opset: int = 18):
    module, tensors = one_op(op, call)
    names = [f"in{i}" for i in range(len(tensors))]
    model = write(module, tuple(tensors), Interface(opset, names, ["out"], dynamic=False))
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (found,) = session.run(None, {n: x.numpy() for n, x in zip(names, tensors, strict=True)})
    (expected,) = module(*tensors)
    return found, expected.numpy()


def test_no_entry_is_without_a_case():
    assert set(CASES) | SIZES | RECURRENT == set(OPS)


@pytest.mark.parametrize(("op", "call"), CALLS)
def test_entry(op, call):
    found, expected = written(op, call)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("op", [aten.expm1.default, aten.log1p.default])
def test_small_arguments_keep_their_digits(op):
    found, _ = written(op, (SMALL,))
    exact = getattr(np, op._overloadpacket.__name__)(SMALL.double().numpy())
    np.testing.assert_allclose(found, exact, rtol=5e-7)


@pytest.mark.parametrize("op", [aten.mean.dim, aten.amax.default, aten.sum.dim_IntList])
def test_reductions_in_opset_17(op):
    found, expected = written(op, (IMAGE, [2, 3], True), opset=17)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("op", "call"),
    [
        (aten.elu.default, (X, 1.0, 2.0)),
        (aten.softplus.default, (X, 2.0)),
        (aten.feature_dropout.default, (IMAGE, 0.5, True)),
        (aten.conv1d.default, (SIGNAL[0], randn(3, 4, 3))),
        (aten.max_pool2d.default, (IMAGE, [2], [3], [1], [2], True)),
        (aten.adaptive_avg_pool1d.default, (randn(1, 2, 400), [150])),
        (aten.upsample_bilinear2d.vec, (IMAGE, [16, 12], False, None)),
        (aten.upsample_bilinear2d.vec, (IMAGE, None, True, [2.0, 2.0])),
        (aten.squeeze.dim, (X, 1)),
        (aten.layer_norm.default, (SIGNAL, [8])),
        (aten.pad.default, (SIGNAL, [2, 1], "circular")),
        (aten.sinh.default, (X,)),
        (aten.scaled_dot_product_attention.default, (HEADS, HEADS, HEADS, None, 0.5)),
        (aten.mul.Tensor, (X, TRUTH)),
        (aten.mul.Tensor, (X, X.double())),
        (aten.mul.Tensor, (X.int(), 0.5)),
        (aten.div.Tensor, (X.int(), X.int())),
        (aten.where.self, (TRUTH, X, X.double())),
        (aten.sum.dim_IntList, (TRUTH, [1])),
        (aten.softmax.int, (X, 1, torch.float64)),
    ],
)
def test_what_is_not_covered_is_refused(op, call):
    with pytest.raises(UnwritableError):
        written(op, call)
