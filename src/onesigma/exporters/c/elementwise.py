"""The elementwise ops, each a line: ONNX op → C expression of its operands and attributes.

Operands are names or literals, so an expression may use one twice. Comparisons are written so that
a NaN is passed on. A maximum by ``?:`` takes three instructions; ``fmaxf`` is a call on most cores.
"""

from __future__ import annotations

import math

ELEMENTWISE = {
    "Abs": "fabsf({0})",
    "Add": "{0} + {1}",
    "AddCodes": "to_code(({0} * {first} + {1} * {second} + {offset}) >> {shift})",
    "And": "{0} && {1}",
    "Ceil": "ceilf({0})",
    "Celu": "{0} > 0.0f ? {0} : {alpha} * expm1f({0} / {alpha})",
    "Cos": "cosf({0})",
    "Dequantize": "(float)({0} - {zero}) * {scale}",
    "Div": "{0} / {1}",
    "Elu": "{0} > 0.0f ? {0} : {alpha} * expm1f({0})",
    "Equal": "{0} == {1}",
    "Erf": "erf_float({0})",
    "Exp": "exp_float({0})",
    "Floor": "floorf({0})",
    "Greater": "{0} > {1}",
    "GreaterOrEqual": "{0} >= {1}",
    "HardSigmoid": "clip({alpha} * {0} + {beta}, 0.0f, 1.0f)",
    "HardSwish": "{0} * clip({0} / 6.0f + 0.5f, 0.0f, 1.0f)",
    "Identity": "{0}",
    "IsInf": "isinf({0}) != 0",
    "IsNaN": "isnan({0}) != 0",
    "LeakyRelu": "{0} < 0.0f ? {alpha} * {0} : {0}",
    "Less": "{0} < {1}",
    "LessOrEqual": "{0} <= {1}",
    "Log": "logf({0})",
    "Lookup": "{codes}[{0}]",
    "Max": "{0} < {1} ? {1} : {0}",
    "Min": "{0} > {1} ? {1} : {0}",
    "Mish": "{0} * tanhf(softplus({0}))",
    "Mul": "{0} * {1}",
    "MulCodes": "requantised(({0} - {first}) * ({1} - {second}) * {left}, {rounding})",
    "Neg": "-{0}",
    "Not": "!{0}",
    "Or": "{0} || {1}",
    "PRelu": "{0} < 0.0f ? {1} * {0} : {0}",
    "Pow": "powf({0}, {1})",
    "Quantize": "quantised({0} / {scale}, {zero})",
    "Reciprocal": "1.0f / {0}",
    "Relu": "{0} < 0.0f ? 0.0f : {0}",
    "Requantize": "requantised(({0} - {zeros}) * {left}, {rounding})",
    "Round": "nearbyintf({0})",
    "Selu": "{gamma} * ({0} > 0.0f ? {0} : {alpha} * expm1f({0}))",
    "Sigmoid": "1.0f / (1.0f + exp_float(-{0}))",
    "Sign": "(float)(({0} > 0.0f) - ({0} < 0.0f))",
    "Sin": "sinf({0})",
    "Softplus": "softplus({0})",
    "Softsign": "{0} / (1.0f + fabsf({0}))",
    "Sqrt": "sqrtf({0})",
    "Sub": "{0} - {1}",
    "Tanh": "tanhf({0})",
    "ThresholdedRelu": "{0} > {alpha} ? {0} : 0.0f",
    "Truncate": "truncf({0})",
    "Truth": "{0} != 0.0f",
    "UnTruth": "{0} ? 1.0f : 0.0f",
    "Where": "{0} ? {1} : {2}",
    "Xor": "{0} != {1}",
}

# What an accumulator starts at, and what an element does to it.
REDUCTIONS = {
    "ReduceMax": ("-INFINITY", "{0} < {1} ? {1} : {0}"),
    "ReduceMin": ("INFINITY", "{0} > {1} ? {1} : {0}"),
    "ReduceProd": ("1.0f", "{0} * {1}"),
    "ReduceSum": ("0.0f", "{0} + {1}"),
}


def literal(number: float) -> str:
    """A float as C writes it, to the last bit."""
    if math.isnan(number):
        return "NAN"
    if math.isinf(number):
        return "INFINITY" if number > 0 else "-INFINITY"
    text = f"{number:.9g}"
    return text + ("f" if "." in text or "e" in text else ".0f")


def expression(kind: str, operands: list[str], attributes: dict[str, float | str]) -> str:
    """The op as C; what is no float is written as it is."""
    numbers = {k: literal(v) if isinstance(v, float) else v for k, v in attributes.items()}
    # In brackets, because a minus before a negative number would be a decrement.
    names = [f"({x})" if x.startswith("-") else x for x in operands]
    return ELEMENTWISE[kind].format(*names, **numbers)
