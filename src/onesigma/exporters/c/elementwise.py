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

# Functions that expressions call, by name; only those that are called are written.
SUPPORT = {
    "exp_float": """\
/* e^x to a relative 2e-7, infinite above 2e38; a third of the instructions of most libraries. */
static inline float exp_float(float x)
{
    /* Adding 1.5 * 2^23 rounds to an integer n, which is then in the last bits of the sum. */
    union { float value; uint32_t bits; } sum, power;
    sum.value = x * 1.44269504f + 12582912.0f;
    const float n = sum.value - 12582912.0f;
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 0.0083124778f;
    p = p * r + 0.0418905506f;
    p = p * r + 0.166671163f;
    p = p * r + 0.499992288f;
    p = p * (r * r) + r + 1.0f;
    power.bits = (sum.bits << 23) + 0x3f800000u;
    p *= power.value;
    p = x < -87.3f ? 0.0f : p;
    return x > 88.37f ? INFINITY : p;
}
""",
    "erf_float": """\
/* erf to 4e-7; a fifth of the instructions of most libraries. */
static inline float erf_float(float x)
{
    const float u = x * x;
    float p = 2.01177936e-06f;
    p = p * u + 0.000287598464f;
    p = p * u + 0.00391717615f;
    p = p * u + 0.0532066152f;
    p = p * u + 0.194032235f;
    p = p * u + 1.12837901f;
    float q = 3.78399865e-05f;
    q = q * u + 0.00119816869f;
    q = q * u + 0.0152704134f;
    q = q * u + 0.115589336f;
    q = q * u + 0.505288079f;
    q = q * u + 1.0f;
    p = x * p / q;
    p = x > 3.95f ? 1.0f : p;
    return x < -3.95f ? -1.0f : p;
}
""",
    "clip": """\
static inline float clip(float x, float low, float high)
{
    x = x < low ? low : x;
    return x > high ? high : x;
}
""",
    "to_code": """\
static inline uint8_t to_code(int32_t x)
{
    x = x < 0 ? 0 : x;
    return (uint8_t)(x > 255 ? 255 : x);
}
""",
    "quantised": """\
/* The nearest code, the even one of two, for a value in steps. */
static inline uint8_t quantised(float steps, int32_t zero)
{
    union { float value; int32_t bits; } sum;
    steps = steps < (float)-zero ? (float)-zero : steps;
    steps = steps > (float)(255 - zero) ? (float)(255 - zero) : steps;
    sum.value = steps + 12582912.0f; /* 1.5 * 2^23: the integer is in the last bits */
    return (uint8_t)(sum.bits - 0x4b400000 + zero);
}
""",
    "requantised": """\
/* sum * multiplier / 2^(32 + shift) + zero, halves rounded up: they are in high. */
static inline uint8_t requantised(int32_t sum, int32_t multiplier, int32_t high, int32_t shift)
{
    return to_code(((int32_t)(((int64_t)sum * multiplier) >> 32) + high) >> shift);
}
""",
    "softplus": """\
static inline float softplus(float x)
{
    return (x > 0.0f ? x : 0.0f) + log1pf(expf(-fabsf(x)));
}
""",
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
