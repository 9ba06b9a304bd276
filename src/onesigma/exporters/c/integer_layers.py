"""Layers on codes of 8-bit values as C: words of two values, 32-bit sums, codes again.

A word holds two 16-bit values. One instruction of a processor with DSP instructions adds both
products of two words to a sum (``smlad``); elsewhere it is a line of C with the same result. A
convolution copies a few rows of its input into a strip, as that of floats (``weighted_layers.py``)
does, of words: a word is the same place of two channels or, if a group has one channel, two
neighbouring columns. Padding is the code of zero. The weights of some filters are unpacked to words
for each strip; a linear layer unpacks them as it goes. Kernels are unrolled for the strip's layout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from onesigma.exporters.c.loops import File, fill
from onesigma.exporters.c.nodes import Array, Node
from onesigma.exporters.c.plan import Loop, Step
from onesigma.exporters.c.weighted_layers import Geometry, geometry

_BLOCK = 4  # filters at once
_COLUMNS = {_BLOCK: 2, 1: 8}  # at once, by the filters
_MOST_TAPS = 64  # of a kernel of one channel, which is always unrolled
_MOST_WORDS = 32  # of a kernel that is unrolled; one with more looks up where each word is
_STRIP = 1024  # words of a strip of one channel, about
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

/* Loads that stay where they are written: gcc 12 would need more registers than there are. Two
   words are one instruction, for which they need not be aligned to eight bytes. */
#if defined(__ARM_FEATURE_DSP) && defined(__ARM_FEATURE_SIMD32)
typedef uint64_t two MAY_ALIAS;
#define LOAD(at) (*(const volatile word *)(at))
#define LOAD_TWO(a, b, at) \\
    const two a##b = *(const volatile two *)(at); \\
    const uint32_t a = (uint32_t)a##b, b = (uint32_t)(a##b >> 32)
#else
#define LOAD(at) (*(at))
#define LOAD_TWO(a, b, at) const uint32_t a = (at)[0], b = (at)[1]
#endif

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
};

/* Some filters (4 or 1) at neighbouring columns (2 or 8), or at one. A filter has four numbers:
   what its sum starts at, and its rounding. */
typedef void kernel8(const word *x, const word *w, const word *end, const int32_t *filter,
                     uint8_t *y, int plane);

static void fill_words(const struct conv8 *g, const uint8_t *x, int first, word *strip)
{
    const int stride = g->stride, pitch = g->pitch;
    const word pad = (word)g->zero * 0x10001u;
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
                    for (; j < end; ++j, a += stride, b += stride)
                        strip[j] = *a | (word)*b << 16;
                }
                for (; j < pitch; ++j)
                    strip[j] = pad;
            }
            for (int i = 0; i < g->shared; ++i)
                *strip++ = pad;
        }
    }
}

static void rows8(const struct conv8 *g, const word *x, const word *w, const int32_t *filter,
                  int filters, uint8_t *y, int rows, kernel8 *const *kernels)
{
    const int plane = g->rows * g->columns, columns = filters == 4 ? 2 : 8;
    const word *const end = w + filters * g->words;
    for (; rows > 0; --rows, x += g->pitch - g->columns) {
        int left = g->columns;
        for (; left >= columns; left -= columns, x += columns, y += columns)
            kernels[0](x, w, end, filter, y, plane);
        for (; left > 0; --left)
            kernels[1](x++, w, end, filter, y++, plane);
    }
}

static void conv8(const struct conv8 *g, const uint8_t *x, const uint32_t *w,
                  const int32_t *filters, uint8_t *y, kernel8 *const *kernels, word *scratch)
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
                for (word *to = weights; to != weights + 2 * count; to += 2) {
                    const uint32_t bytes = *own++;
                    to[0] = sxtb16(bytes);
                    to[1] = sxtb16_next(bytes);
                }
                rows8(g, scratch, weights, filters + 4 * filter, n,
                      y + filter * plane + row * g->columns, rows, kernels + (n == 4 ? 0 : 2));
            }
        }
        w = own;
    }
}
"""

_KERNEL = """\
static void @name@(const word *x, const word *w, const word *end,
@space@const int32_t *filter, uint8_t *y, int plane)
{
    @starts@
    @places@
    do {
        @place@
        @sums@
        w += @used@;
        @move@
    } while (w != end);
    @ends@
}
"""


_DEPTH = """\
/* One row of one filter. */
typedef void row8(const word *x, const word *w, const int32_t *filter, uint8_t *y, int columns);

static word two_at(const uint8_t *row, int i, const struct conv8 *g)
{
    const word first = i >= 0 && i < g->width ? row[i] : (word)g->zero;
    const word second = i + 1 >= 0 && i + 1 < g->width ? row[i + 1] : (word)g->zero;
    return first | second << 16;
}

/* A convolution of single channels; a word holds two neighbouring columns. */
static void depth8(const struct conv8 *g, const uint8_t *x, const uint32_t *w,
                   const int32_t *filter, uint8_t *y, row8 *kernel, word *scratch)
{
    word *const weights = scratch + g->depth * g->pitch;
    const word pad = (word)g->zero * 0x10001u;
    for (int group = 0; group < g->groups; ++group, x += g->height * g->width) {
        const int count = (g->words + 1) / 2;
        for (int row = 0; row < g->rows; row += g->strip) {
            const int rows = g->rows - row < g->strip ? g->rows - row : g->strip;
            const int first = row * g->row_stride - g->top;
            for (int i = 0; i < g->depth; ++i) {
                word *const strip = scratch + i * g->pitch;
                const uint8_t *const from = x + (first + i) * g->width;
                int j = 0;
                if (first + i >= 0 && first + i < g->height) {
                    for (; 2 * j < g->left && j < g->pitch; ++j)
                        strip[j] = two_at(from, 2 * j - g->left, g);
                    const uint8_t *pair = from + (2 * j - g->left);
                    const int filled = (g->left + g->width) / 2;
                    const int end = filled < g->pitch ? filled : g->pitch;
                    for (; j < end; ++j, pair += 2)
                        strip[j] = pair[0] | (word)pair[1] << 16;
                    if (j < g->pitch) {
                        strip[j] = two_at(from, 2 * j - g->left, g);
                        ++j;
                    }
                }
                for (; j < g->pitch; ++j)
                    strip[j] = pad;
            }
            for (int f = 0; f < g->filters; ++f) {
                const uint32_t *own = w + f * count;
                for (word *to = weights; to != weights + 2 * count; to += 2) {
                    const uint32_t bytes = *own++;
                    to[0] = sxtb16(bytes);
                    to[1] = sxtb16_next(bytes);
                }
                for (int r = 0; r < rows; ++r)
                    kernel(scratch + r * g->row_stride * g->pitch, weights, filter + 4 * f,
                           y + (f * g->rows + row + r) * g->columns, g->columns);
            }
        }
        w += g->filters * count;
        filter += 4 * g->filters;
        y += g->filters * g->rows * g->columns;
    }
}
"""

_ROW = """\
static void @name@(const word *x, const word *w, const int32_t *filter, uint8_t *y, int columns)
{
    const int32_t start = filter[0], multiplier = filter[1], high = filter[2], shift = filter[3];
    for (; columns > 0; columns -= 4, x += @step@, y += 4) {
        int32_t s0 = start, s1 = start, s2 = start, s3 = start;
        @sums@
        y[0] = requantised(s0, multiplier, high, shift);
        if (columns > 1)
            y[1] = requantised(s1, multiplier, high, shift);
        if (columns > 2)
            y[2] = requantised(s2, multiplier, high, shift);
        if (columns > 3)
            y[3] = requantised(s3, multiplier, high, shift);
    }
}
"""


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
    first = np.arange(0, channels, 2)[:, None] * window + np.arange(window)
    second = np.where(first + window < channels * window, first + window, -1)
    taps = np.stack([first.ravel(), second.ravel()], 1)
    fits = [n for n in (2, 4, 8) if len(first) % n == 0 and n * window <= _WORDS]
    together = max(fits, default=1)
    if len(places) > _MOST_WORDS:
        many = [c * step + place for c in range(g.sizes["channels"]) for place in places]
        return _Words(taps, many, 0)
    unrolled = [u * step + p for u in range(together) for p in places]
    return _Words(taps, unrolled, together * step)


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
    if _is_single(step, g):
        sizes = _single_sizes(g)
        return sizes["depth"] * sizes["pitch"] + sizes["words"] + 1
    strip = g.sizes["channels"] * g.sizes["channel_pitch"]
    return strip + _BLOCK * len(_words(step, g).taps) + 1


def _is_single(node: Node, g: Geometry) -> bool:
    """Whether it is one of single channels, whose columns are neighbours."""
    alone = node.attributes["codes"].shape[1] == prod(g.kernel) <= _MOST_TAPS
    return alone and g.stride[1] <= 2 and g.dilation[1] == 1


def _single_sizes(g: Geometry) -> dict[str, int]:
    """The layout of a strip of one channel, and the words of a filter."""
    (rows, columns), sizes = g.kernel, dict(g.sizes)
    reach, step = (rows - 1) * g.dilation[0] + 1, g.stride[1]
    tiles = -(-sizes["columns"] // 4) * 4
    sizes["pitch"] = -(-((tiles - 1) * step + columns + 1) // 2)
    fits = [n for n in range(1, sizes["rows"] + 1) if n * g.stride[0] * sizes["pitch"] <= _STRIP]
    sizes["strip"] = max(fits, default=1)
    sizes["depth"] = (sizes["strip"] - 1) * g.stride[0] + reach
    sizes["words"] = rows * sum(_row_words(columns, step))
    return sizes


def _row_words(columns: int, step: int) -> tuple[int, int]:
    """Words of a kernel's row at an even column, and at an odd one if there are any."""
    return -(-columns // 2), (columns // 2 + 1 if step == 1 else 0)


def _single_taps(g: Geometry) -> Array:
    """The taps of each word: those of each row at an even column, then at an odd one."""
    (rows, columns), taps = g.kernel, []
    for k in range(rows):
        for shift, count in enumerate(_row_words(columns, g.stride[1])):
            row = np.arange(2 * count) - shift
            taps.append(np.where((row >= 0) & (row < columns), k * columns + row, -1))
    return np.concatenate(taps).reshape(-1, 2)


def _row_kernel(g: Geometry, sizes: dict[str, int]) -> tuple[str, str]:
    """Name and text of the kernel for four columns of one filter."""
    (rows, columns), step, lines, used = g.kernel, g.stride[1], [], 0
    for k in range(rows):
        counts = _row_words(columns, step)
        last = (3 * step) // 2 + max(counts)
        place = k * g.dilation[0] * sizes["pitch"]
        lines.append("{")
        lines += [f"    const uint32_t x{i} = x[{place + i}];" for i in range(last)]
        for shift, count in enumerate(counts):
            for i in range(count):
                lines.append(f"    const uint32_t q{shift}{i} = w[{used}];")
                used += 1
        for p in range(4):
            at, shift = divmod(p * step, 2)
            sums = (f"s{p} = smlad(q{shift}{i}, x{at + i}, s{p});" for i in range(counts[shift]))
            lines.append(f"    {' '.join(sums)}")
        lines.append("}")
    numbers = [*g.kernel, step, g.dilation[0], sizes["pitch"]]
    name = "_".join(["row", *map(str, numbers)])
    return name, fill(_ROW, name=name, step=2 * step, sums=lines)


def _render_single(node: Node, g: Geometry, file: File) -> list[str]:
    sizes: dict[str, object] = {**_single_sizes(g), "zero": node.attributes["zero"]}
    file.function("depth8", _DEPTH)
    kernel = file.function(*_row_kernel(g, _single_sizes(g)))
    codes = node.attributes["codes"]
    weights = _weights(codes, _single_taps(g), len(codes))  # one filter after another
    return [
        *_shape(sizes),
        f"depth8(&shape, {file.pointer(node.reads[0])}, {file.table(weights, 'uint32')},",
        f"       {_filters(node, file)}, {file.pointer(node.writes[0])}, {kernel},",
        f"       (word *)({file.scratch}));",
    ]


def _shape(sizes: Mapping[str, object]) -> list[str]:
    """The lines of a ``struct conv8``."""
    members = [f".{k} = {n}" for k, n in sizes.items() if k not in ("taps", "window")]
    rows = [f"    {', '.join(members[i : i + 6])}," for i in range(0, len(members), 6)]
    return ["static const struct conv8 shape = {", *rows, "};"]


def _render_conv(node: Node, file: File) -> list[str]:
    g, codes = _geometry(node), node.attributes["codes"]
    file.function("smlad", _SIMD)
    file.function("conv8", _CONV)
    if _is_single(node, g):
        return _render_single(node, g, file)
    words, filters = _words(node, g), g.sizes["filters"]
    table = "" if words.step else file.table(np.array(words.places), "int32")
    kernels = [
        file.function(*_kernel(g, words, table, n, columns)) if used else "NULL"
        for n, used in ((_BLOCK, filters >= _BLOCK), (1, filters % _BLOCK))
        for columns in (_COLUMNS[n], 1)
    ]
    sizes: dict[str, object] = {**g.sizes, "zero": node.attributes["zero"]}
    sizes |= {"all": codes.shape[1] // prod(g.kernel), "words": len(words.taps)}
    weights = file.table(_weights(codes, words.taps, g.sizes["groups"]), "uint32")
    return [
        *_shape(sizes),
        f"static kernel8 *const kernels[4] = {{{', '.join(kernels)}}};",
        f"conv8(&shape, {file.pointer(node.reads[0])}, {weights}, {_filters(node, file)},",
        f"      {file.pointer(node.writes[0])}, kernels, (word *)({file.scratch}));",
    ]


def _filters(node: Node, file: File) -> str:
    return file.table(node.attributes["filters"], "int32")


def _kernel(g: Geometry, words: _Words, table: str, filters: int, columns: int) -> tuple[str, str]:
    """Name and text of the kernel for some filters and columns at once."""
    unrolled = words.places if words.step else [0]
    sizes = [*g.kernel, *g.stride, *g.dilation, g.sizes["pitch"], g.sizes["plane"], words.step]
    name = "_".join(["sums", *map(str, sizes), *table.split(), f"{filters}x{columns}"])
    start = "int32_t " + ", ".join(f"s{{0}}{p} = filter[{{1}}]" for p in range(columns)) + ";"
    products = [_products(i, place, filters, columns) for i, place in enumerate(unrolled)]
    text = fill(
        _KERNEL,
        name=name,
        space=" " * (len(name) + 13),
        starts=[start.format(f, 4 * f) for f in range(filters)],
        places=[f"const int32_t *place = {table};"] if table else ["const word *r = x;"],
        place=["const word *r = x + *place++;"] if table else [],
        sums=[line for lines in products for line in lines],
        used=len(unrolled) * filters,
        move=[] if table else [f"r += {words.step};"],
        ends=[line for f in range(filters) for line in _ends(f, columns)],
    )
    return name, text


def _ends(f: int, columns: int) -> list[str]:
    """Lines that store the codes of one filter."""
    numbers = (("multiplier", 1), ("high", 2), ("shift", 3))
    loads = ", ".join(f"{name} = filter[{4 * f + i}]" for name, i in numbers)
    store = f"    y[{f} * plane + {{0}}] = requantised(s{f}{{0}}, multiplier, high, shift);"
    stores = [store.format(p) for p in range(columns)]
    return ["{", f"    const int32_t {loads};", *stores, "}"]


def _products(index: int, place: int, filters: int, columns: int) -> list[str]:
    """Lines that add the products of one word of each filter."""
    lines = [f"const uint32_t x{p} = LOAD(r + {place + p});" for p in range(columns)]
    for f in range(0, filters, 2):
        at = f"w + {index * filters + f}"
        lines.append(
            f"LOAD_TWO(q{f}, q{f + 1}, {at});"
            if filters > 1
            else f"const uint32_t q0 = LOAD({at});"
        )
        for k in range(f, min(f + 2, filters)):
            lines.append(" ".join(f"s{k}{p} = smlad(q{k}, x{p}, s{k}{p});" for p in range(columns)))
    return ["{", *(f"    {line}" for line in lines), "}"]


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
