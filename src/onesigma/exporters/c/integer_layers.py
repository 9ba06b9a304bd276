"""Layers on codes of 8-bit values as C: words of two values, 32-bit sums, codes again.

A word holds two 16-bit values. One instruction of a processor with DSP instructions adds both
products of two words to a sum (``smlad``); elsewhere it is a line of C with the same result. A
convolution copies a few rows of its input into a strip, as that of floats (``weighted_layers.py``)
does, of words: a word is the same place of two channels or, if a group has one channel, of two
neighbouring columns. Padding is the code of zero. The weights of four filters are unpacked to words
for each strip; a linear layer unpacks them as it goes. Kernels are unrolled for the strip's layout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np

from onesigma.exporters.c.loops import File, fill
from onesigma.exporters.c.nodes import Array, Node
from onesigma.exporters.c.plan import Loop, Step
from onesigma.exporters.c.weighted_layers import Geometry, geometry

_BLOCK = 4  # filters at once
_COLUMNS = {_BLOCK: 2, 1: 4}  # at once, by the filters
_MOST_WORDS = 32  # of a kernel that is unrolled; one with more looks up where each word is
_WORDS = 12  # that are unrolled at least, if there are channels enough

TYPES = """\
/* Parts of the arena as other types than float. */
#if defined(__GNUC__)
#define MAY_ALIAS __attribute__((may_alias))
#else
#define MAY_ALIAS
#endif
typedef int32_t sum32 MAY_ALIAS;
typedef uint32_t word MAY_ALIAS; /* two values of 16 bits */
"""

_SIMD = """\
#if defined(__ARM_FEATURE_DSP) && defined(__ARM_FEATURE_SIMD32)
#include <arm_acle.h>
#endif

/* sum and both products of two words. */
static inline int32_t smlad(uint32_t a, uint32_t b, int32_t sum)
{
#if defined(__ARM_FEATURE_DSP) && defined(__ARM_FEATURE_SIMD32)
    return __smlad((int16x2_t)a, (int16x2_t)b, sum);
#else
    return sum + (int16_t)a * (int16_t)b + (int16_t)(a >> 16) * (int16_t)(b >> 16);
#endif
}

/* The first and the third of four signed bytes as a word. */
static inline uint32_t sxtb16(uint32_t bytes)
{
#if defined(__ARM_FEATURE_DSP) && defined(__ARM_FEATURE_SIMD32)
    return (uint32_t)__sxtb16((int8x4_t)bytes);
#else
    return (uint16_t)(int8_t)bytes | (uint32_t)(int8_t)(bytes >> 16) << 16;
#endif
}

/* The second and the fourth. */
static inline uint32_t sxtb16_next(uint32_t bytes)
{
    return sxtb16(bytes >> 8 | bytes << 24);
}
"""

_CONV = """\
/* Sizes of a convolution of codes; a strip is as that of floats, of words. */
struct conv8 {
    int groups, channels, filters;  /* of one group; channels are counted in words */
    int height, width, top, left;   /* of the input; zeros above it and to its left */
    int rows, columns;              /* of the output */
    int row_stride, stride;         /* from row to row, from column to column */
    int row_phases, phases;         /* of them, those that a tap reads */
    int strip, depth;               /* output rows at once; rows of a plane */
    int pitch, plane, channel_pitch; /* from one to the next */
    int shared;                     /* zeros that end one row and begin the next */
    int all, words, zero;           /* channels of a group; words of one filter; code of zero */
    const int32_t *places;          /* of a filter's words, if there are many */
};

/* Some rows of some filters. Each has four numbers: what its sums start at, and its rounding. */
typedef void kernel8(const word *x, const word *w, const int32_t *filter, uint8_t *y, int rows,
                     const struct conv8 *g);

static void fill_words(const struct conv8 *g, const uint8_t *x, int first, word *strip)
{
    const int stride = g->stride, pitch = g->pitch;
    const word pad = (word)g->zero * (g->all > 1 ? 0x10001u : 1u);
    for (int c = 0; c < g->all; c += 2, x += 2 * g->height * g->width) {
        const int next = c + 1 < g->all ? g->height * g->width : 0;
        for (int p = 0; p < g->row_phases * g->phases; ++p) {
            const int left = g->left - p % g->phases;
            const int zeros = left > 0 ? (left + stride - 1) / stride : 0;
            const int filled = (g->width + left + stride - 1) / stride;
            const int end = filled < pitch ? filled : pitch;
            for (int i = 0; i < g->depth; ++i, strip += pitch) {
                const int r = first + p / g->phases + i * g->row_stride;
                int j = 0;
                if (r >= 0 && r < g->height) {
                    for (; j < zeros && j < pitch; ++j)
                        strip[j] = pad;
                    const uint8_t *a = x + r * g->width + (j * stride - left), *b = a + next;
                    if (g->all > 1)
                        for (; j < end; ++j, a += stride, b += stride)
                            strip[j] = *a | (word)*b << 16;
                    else
                        for (; j < end; ++j, a += stride)
                            strip[j] = *a;
                }
                for (; j < pitch; ++j)
                    strip[j] = pad;
                if (g->all == 1)
                    for (j = 0; j < pitch; ++j)
                        strip[j] |= (j + 1 < pitch ? strip[j + 1] : pad) << 16;
            }
            for (int i = 0; i < g->shared; ++i)
                *strip++ = g->all > 1 ? pad : pad * 0x10001u;
        }
    }
}

static void conv8(const struct conv8 *g, const uint8_t *x, const uint32_t *w,
                  const int32_t *filters, uint8_t *y, kernel8 *four, kernel8 *one, word *scratch)
{
    const int plane = g->rows * g->columns;
    word *const weights = scratch + g->channels * g->channel_pitch;
    for (int group = 0; group < g->groups; ++group, x += g->all * g->height * g->width) {
        const uint32_t *own = w;
        for (int row = 0; row < g->rows; row += g->strip) {
            const int rows = g->rows - row < g->strip ? g->rows - row : g->strip;
            fill_words(g, x, row * g->row_stride - g->top, scratch);
            own = w;
            for (int f = 0, n; f < g->filters; f += n) {
                n = g->filters - f >= 4 ? 4 : 1;
                const int filter = group * g->filters + f, count = (n * g->words + 1) / 2;
                for (int i = 0; i < count; ++i) {
                    weights[2 * i] = sxtb16(own[i]);
                    weights[2 * i + 1] = sxtb16_next(own[i]);
                }
                own += count;
                (n == 4 ? four : one)(scratch, weights, filters + 4 * filter,
                                      y + filter * plane + row * g->columns, rows, g);
            }
        }
        w = own;
    }
}
"""

_KERNEL = """\
static void @name@(const word *x, const word *w, const int32_t *filter, uint8_t *y, int rows,
@space@const struct conv8 *g)
{
    const int plane = g->rows * g->columns;
    const word *const end = w + @filters@ * g->words;
    for (; rows > 0; --rows, x += g->pitch - g->columns) {
        int count = g->columns;
        @tiles@
    }
}
"""

_TILE = """\
for (; count >= @columns@; count -= @columns@, x += @columns@, y += @columns@) {
    const word *v = w, *r = x;
    @places@
    @starts@
    do {
        @sums@
        v += @used@;
        @move@
    } while (v != end);
    @ends@
}"""


@dataclass(frozen=True)
class _Words:
    """The words of one filter.

    ``taps`` are the two of each word, -1 for none. ``places`` are those in the strip that are
    unrolled; the next ones are ``step`` further or, if it is 0, one after another in a table.
    """

    taps: Array
    places: list[int]
    step: int


def _geometry(node: Node) -> Geometry:
    return geometry(node, node.attributes["window"], node.attributes["codes"].shape[1], words=True)


def _words(node: Node, g: Geometry) -> _Words:
    window, places, step = prod(g.kernel), g.places(), g.sizes["channel_pitch"]
    channels = node.attributes["codes"].shape[1] // window
    if channels == 1:
        pairs = _neighbours(g)
        taps, places = np.array(pairs), [places[first] for first, _ in pairs]
        together = 1
    else:
        first = np.arange(0, channels, 2)[:, None] * window + np.arange(window)
        second = np.where(first + window < channels * window, first + window, -1)
        taps = np.stack([first.ravel(), second.ravel()], 1)
        fits = [n for n in (2, 4, 8) if len(first) % n == 0 and n * window <= _WORDS]
        together = max(fits, default=1)
    if len(places) > _MOST_WORDS:
        many = [c * step + place for c in range(g.sizes["channels"]) for place in places]
        return _Words(taps, many, 0)
    return _Words(taps, [u * step + p for u in range(together) for p in places], together * step)


def _neighbours(g: Geometry) -> list[tuple[int, int]]:
    """Taps of one channel in pairs that are neighbours in the strip."""
    rows, columns = g.kernel
    left = {g.place(k, t): k * columns + t for k in range(rows) for t in range(columns)}
    pairs = []
    while left:
        plane, row, column = next(iter(left))
        first = left.pop((plane, row, column))
        pairs.append((first, left.pop((plane, row, column + 1), -1)))
    return pairs


def _pack(words: Array) -> Array:
    """Words (…, 2) of 8-bit codes, two of them in 32 bits, as ``sxtb16`` takes them out."""
    flat = words.reshape(-1, 2)
    pairs = np.concatenate([flat, np.zeros((len(flat) % 2, 2), flat.dtype)]).reshape(-1, 2, 2)
    return (pairs.swapaxes(1, 2).reshape(-1, 4) & 255) @ (1 << np.arange(0, 32, 8))


def _weights(codes: Array, taps: Array, groups: int) -> Array:
    """For each four filters, or each of the rest: word by word those of all filters."""
    words = np.concatenate([codes, np.zeros((len(codes), 1), codes.dtype)], 1)[:, taps]
    parts = []
    for group in np.split(words, groups):
        whole = len(group) // _BLOCK * _BLOCK
        parts += [_pack(group[i : i + _BLOCK].swapaxes(0, 1)) for i in range(0, whole, _BLOCK)]
        parts += [_pack(one) for one in group[whole:]]
    return np.concatenate(parts)


def scratch_size(step: Step) -> int:
    """Floats for a strip and the weights of four filters, or for the input of a linear layer."""
    if isinstance(step, Loop) or step.kind not in RENDERERS:
        return 0
    if step.kind == "Dense8":
        return -(-step.reads[0].shape[-1] // 4) * 2
    g = _geometry(step)
    strip = g.sizes["channels"] * g.sizes["channel_pitch"]
    return strip + _BLOCK * len(_words(step, g).taps) + 1


def _render_conv(node: Node, file: File) -> list[str]:
    g, codes = _geometry(node), node.attributes["codes"]
    words, filters = _words(node, g), g.sizes["filters"]
    file.function("smlad", _SIMD)
    file.function("conv8", _CONV)
    blocks = (_BLOCK if filters >= _BLOCK else 1, 1 if filters % _BLOCK else _BLOCK)
    four, one = (file.function(*_kernel(g, words, n)) for n in blocks)
    sizes: dict[str, object] = {k: n for k, n in g.sizes.items() if k not in ("taps", "window")}
    sizes |= {"all": codes.shape[1] // prod(g.kernel), "words": len(words.taps)}
    sizes |= {"zero": node.attributes["zero"]}
    if not words.step and len(words.places) > _MOST_WORDS:
        sizes["places"] = file.table(np.array(words.places), "int32")
    members = [f".{name} = {n}" for name, n in sizes.items()]
    table = file.table(_weights(codes, words.taps, g.sizes["groups"]), "uint32")
    return [
        "static const struct conv8 shape = {",
        *(f"    {', '.join(members[i : i + 6])}," for i in range(0, len(members), 6)),
        "};",
        f"conv8(&shape, {file.pointer(node.reads[0])}, {table}, {_filters(node, file)},",
        f"      {file.pointer(node.writes[0])}, {four}, {one}, (word *)({file.scratch}));",
    ]


def _filters(node: Node, file: File) -> str:
    return file.table(node.attributes["filters"], "int32")


def _kernel(g: Geometry, words: _Words, filters: int) -> tuple[str, str]:
    """Name and text of the kernel for some filters at once."""
    many = len(words.places) > _MOST_WORDS
    sizes = [] if many else [g.sizes["pitch"], g.sizes["plane"], words.step]
    name = "_".join(["sums", *(f"{a}x{b}" for a, b in (g.kernel, g.stride, g.dilation))])
    name = "_".join([name, *map(str, sizes), f"x{filters}"])
    columns = _COLUMNS[filters]
    tiles = _tile(words, filters, columns, many) + _tile(words, filters, 1, many)
    return name, fill(
        _KERNEL, name=name, space=" " * (len(name) + 13), filters=filters, tiles=tiles
    )


def _tile(words: _Words, filters: int, columns: int, many: bool) -> list[str]:
    each, across, sums = range(filters), range(columns), []
    unrolled = [0] if many else words.places
    for i, place in enumerate(unrolled):
        loads = ", ".join(f"x{p} = r[{place + p}]" for p in across)
        sums += ["{", f"    const word {loads};", "    word q;"]
        for f in each:
            products = " ".join(f"s{f}{p} = smlad(q, x{p}, s{f}{p});" for p in across)
            sums.append(f"    q = v[{i * filters + f}]; {products}")
        sums.append("}")
    end = "y[{0} * plane + {1}] = requantised(s{0}{1}, filter[{2}], filter[{3}], filter[{4}]);"
    starts = [f"int32_t {', '.join(f's{f}{p} = filter[{4 * f}]' for p in across)};" for f in each]
    return fill(
        _TILE,
        columns=columns,
        places=["const int32_t *place = g->places;", "r = x + *place++;"] if many else [],
        starts=starts,
        sums=sums,
        used=len(unrolled) * filters,
        move=["if (v != end)", "    r = x + *place++;"] if many else [f"r += {words.step};"],
        ends=[end.format(f, p, 4 * f + 1, 4 * f + 2, 4 * f + 3) for f in each for p in across],
    ).split("\n")


_DENSE = """\
static void dense8(const uint32_t *w, int inputs, int outputs, int rows, const int32_t *filters,
                   const uint8_t *x, uint8_t *y, word *scratch)
{
    for (int row = 0; row < rows; ++row, x += inputs, y += outputs) {
        const uint32_t *v = w;
        const int32_t *filter = filters;
        word *const end = scratch + (inputs + 3) / 4 * 2;
        for (int i = 0; i < inputs; i += 2)
            scratch[i / 2] = x[i] | (i + 1 < inputs ? (word)x[i + 1] << 16 : 0);
        if ((inputs + 3) % 4 < 2)
            end[-1] = 0;
        int o = 0;
        @blocks@
    }
}
"""

_DENSE_BLOCK = """\
for (; o + @n@ <= outputs; o += @n@, filter += @numbers@) {
    int32_t @starts@;
    for (const word *r = scratch; r != end; r += 2, v += @n@) {
        const word a = r[0], b = r[1];
        uint32_t q;
        @sums@
    }
    @ends@
}"""


def _render_dense(node: Node, file: File) -> list[str]:
    (x,), (y,), codes = node.reads, node.writes, node.attributes["codes"]
    outputs, inputs = codes.shape
    file.function("smlad", _SIMD)
    blocks = _dense_block(_BLOCK) + _dense_block(1)
    file.function("dense8", fill(_DENSE, blocks=blocks))
    taps = np.arange(-(-inputs // 4) * 4)
    taps = np.where(taps < inputs, taps, -1).reshape(-1, 2, 2)
    words = np.concatenate([codes, np.zeros((outputs, 1), codes.dtype)], 1)[:, taps]
    whole = outputs // _BLOCK * _BLOCK
    parts = [words[i : i + _BLOCK].swapaxes(0, 1) for i in range(0, whole, _BLOCK)]
    table = file.table(np.concatenate([_pack(p) for p in [*parts, *words[whole:]]]), "uint32")
    return [
        f"dense8({table}, {inputs}, {outputs}, {prod(x.shape[:-1])}, {_filters(node, file)},",
        f"       {file.pointer(x)}, {file.pointer(y)}, (word *)({file.scratch}));",
    ]


def _dense_block(n: int) -> list[str]:
    sum_ = "q = v[{0}]; s{0} = smlad(sxtb16(q), a, s{0}); s{0} = smlad(sxtb16_next(q), b, s{0});"
    end = "y[o + {0}] = requantised(s{0}, filter[{1}], filter[{2}], filter[{3}]);"
    return fill(
        _DENSE_BLOCK,
        n=n,
        numbers=4 * n,
        starts=", ".join(f"s{k} = filter[{4 * k}]" for k in range(n)),
        sums=[sum_.format(k) for k in range(n)],
        ends=[end.format(k, 4 * k + 1, 4 * k + 2, 4 * k + 3) for k in range(n)],
    ).split("\n")


RENDERERS: dict[str, Callable[[Node, File], list[str]]] = {
    "Conv8": _render_conv,
    "Dense8": _render_dense,
}
