"""Layers with weights as C. The mean and the variance are two lanes of one layer.

A linear layer computes four outputs at once, for all lanes in the same loop.

A convolution copies a few rows of the input at a time into a strip, padded with zeros and sorted by
the stride, so that the taps of a kernel always read neighbours. If nothing is padded and the stride
is 1, the input is read in place. Then four filters at once run over the strip, for the mean and for
the variance, whose weights are squared four filters at a time into scratch memory.

A kernel of a convolution sums the taps of some filters over neighbouring columns. It comes in two
forms; the compiler takes one. With vector instructions: long rows of sums in memory, which it can
vectorise; they lie in an array of the kernel's own, so it knows that nothing else lies there.
Without them: tiles of sums in registers; 4 filters by 4 columns need 8 loads for 16 multiply-adds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from onesigma.exporters.c.loops import File, fill, render_argmax, render_take
from onesigma.exporters.c.nodes import Array, Node, Shape, Window
from onesigma.exporters.c.plan import Loop, Step
from onesigma.exporters.c.weights import int8_steps

_BLOCK = 4  # filters at once
_SPAN = 256  # columns of sums at once, in the form for vector instructions
_SLACK = 7  # floats behind a strip, so that columns can be rounded up to a whole vector
# A strip has at least this many columns, so that squared weights and overlapping rows are used
# often. A kernel of one row, without squares, needs only one row.
_STRIP_COLUMNS = 64
_TILE_COLUMNS = 4
_UNROLLED = 25  # taps; a kernel with more has a loop over its rows, or over their taps

_LANE = """\
typedef @weight@ weight;

/* One value that goes through a layer: a mean, or a variance, for which weights are squared. */
struct lane {
    const float *x;
    float *y;
    const float *bias;
    const float *factor; /* of each filter: multiplies its weights, or their squares */
    int power;
};
"""


def weight_table(
    file: File, weight: Array, steps: Array, groups: int = 1
) -> tuple[str, Array | None]:
    """Write weights, in eight bits by steps if that is wanted: the table, and each row's factor."""
    codes = np.rint(weight / steps[:, None]) if file.int8 else weight
    table = file.table(_interleave(codes, groups), "int8" if file.int8 else "float32")
    return table, steps if file.int8 else None


def _add_struct(file: File) -> None:
    file.function("lane", fill(_LANE, weight="int8_t" if file.int8 else "float"))


def add_lane(
    file: File, x: str, y: str, bias: Array | None, factor: Array | None, power: int
) -> str:
    """A ``struct lane`` in C."""
    _add_struct(file)
    tables = ["NULL" if array is None else file.table(array) for array in (bias, factor)]
    return f"{{{', '.join([x, y, *tables, str(power)])}}}"


def _lanes(node: Node, groups: int, file: File) -> tuple[str, list[str]]:
    """Write the weights of a layer; returns the name of their table, and its ``lanes`` in C."""
    weight = node.lanes[0].attributes["weight"]
    table, steps = weight_table(file, weight, int8_steps(weight), groups)
    lines = []
    for x, y, lane in zip(node.reads, node.writes, node.lanes, strict=True):
        bias, factor, power = (lane.attributes[name] for name in ("bias", "factor", "power"))
        if steps is not None:
            factor = (1.0 if factor is None else factor) * steps**power
        members = add_lane(file, file.pointer(x), file.pointer(y), bias, factor, power)
        lines.append(f"    {members},")
    return table, [f"const struct lane lanes[{len(lines)}] = {{", *lines, "};"]


def _interleave(weight: Array, groups: int) -> Array:
    """Weights (filters, taps) so that those of four filters for one tap are neighbours."""
    parts = []
    for group in np.split(weight, groups):
        whole = len(group) // _BLOCK * _BLOCK
        parts += [np.ravel(group[i : i + _BLOCK].T) for i in range(0, whole, _BLOCK)]
        parts += list(group[whole:])
    return np.concatenate(parts)


_DENSE = """\
static void @name@(const weight *w, int inputs, int outputs, int rows, const struct lane *lanes)
{
    const int blocks = outputs - outputs % 4;
    for (int row = 0; row < rows; ++row) {
        const weight *v = w;
        @blocks@
    }
}
"""

_DENSE_BLOCK = """\
for (int o = @first@; o < @last@; o += @n@) {
    @starts@
    for (int i = 0; i < inputs; ++i, v += @n@) {
        @sums@
    }
    @stores@
}"""

_LANE_SUM = """\
static inline float lane_sum(const struct lane *lane, int filter, float sum)
{
    if (lane->factor)
        sum *= lane->factor[filter];
    return lane->bias ? sum + lane->bias[filter] : sum;
}
"""


def _render_dense(node: Node, file: File) -> list[str]:
    x, (outputs, inputs) = node.reads[0], node.lanes[0].attributes["weight"].shape
    table, lanes = _lanes(node, 1, file)
    name = add_dense(file, [lane.attributes["power"] for lane in node.lanes])
    return [*lanes, f"{name}({table}, {inputs}, {outputs}, {prod(x.shape[:-1])}, lanes);"]


def add_dense(file: File, powers: Sequence[int]) -> str:
    """The function of linear layers with such lanes; returns its name."""
    name = "dense_" + "".join(map(str, powers))
    blocks = _dense_block(_BLOCK, "0", "blocks", powers)
    blocks += _dense_block(1, "blocks", "outputs", powers)
    _add_struct(file)
    file.function("lane_sum", _LANE_SUM)
    return file.function(name, fill(_DENSE, name=name, blocks=blocks))


def _dense_block(n: int, first: str, last: str, powers: Sequence[int]) -> list[str]:
    outputs, lanes = range(n), range(len(powers))
    starts = [f"const float *x{a} = lanes[{a}].x + row * inputs;" for a in lanes]
    starts += [f"float *y{a} = lanes[{a}].y + row * outputs;" for a in lanes]
    starts += [f"float {', '.join(f's{a}{k} = 0.0f' for k in outputs)};" for a in lanes]
    sums = [f"const float e{a} = x{a}[i];" for a in lanes]
    for k in outputs:
        sums.append(f"const float w{k} = (float)v[{k}];")
        for a in lanes:
            factor = f"w{k}" if powers[a] == 1 else f"(w{k} * w{k})"
            sums.append(f"s{a}{k} += {factor} * e{a};")
    store = "y{0}[o + {1}] = lane_sum(&lanes[{0}], o + {1}, s{0}{1});"
    stores = [store.format(a, k) for a in lanes for k in outputs]
    parts = {"starts": starts, "sums": sums, "stores": stores}
    return fill(_DENSE_BLOCK, n=n, first=first, last=last, **parts).split("\n")


_STRUCTS = """\
/* Sizes of a convolution. A strip is a few rows of the input, padded and sorted by the stride. */
struct conv {
    int groups, channels, filters;          /* channels and filters of one group */
    int height, width, top, left;           /* of the input; zeros above it and to its left */
    int rows, columns;                      /* of the output */
    int row_stride, stride;                 /* from row to row, from column to column */
    int taps;                               /* weights of one filter */
    int strip, strip_height;                /* output rows at once; rows of a strip, 0: in place */
    int phase, row_pitch, kernel_pitch, channel_pitch; /* of a strip, or of the input */
};

/* Some columns of some rows, of some filters. */
typedef void kernel(const float *x, const float *w, const struct lane *lane, int filter, float *y,
                    int rows, int columns, const struct conv *g);

#ifndef VECTORS
#if defined(__SSE__) || defined(__ARM_NEON) || defined(__ARM_FEATURE_MVE) || defined(__riscv_v)
#define VECTORS 1
#else
#define VECTORS 0
#endif
#endif
"""

_STRIP = """\
static void fill_strip(const struct conv *g, const float *x, int first, float *strip)
{
    for (int c = 0; c < g->channels; ++c) {
        for (int r = first; r < first + g->strip_height; ++r) {
            const int inside = r >= 0 && r < g->height;
            const float *row = x + (c * g->height + (inside ? r : 0)) * g->width;
            for (int p = 0; p < g->stride; ++p) {
                int i = 0;
                if (inside) {
                    int column = p - g->left;
                    for (; i < g->phase && column < 0; ++i, column += g->stride)
                        *strip++ = 0.0f;
                    for (; i < g->phase && column < g->width; ++i, column += g->stride)
                        *strip++ = row[column];
                }
                for (; i < g->phase; ++i)
                    *strip++ = 0.0f;
            }
        }
    }
    for (int i = 0; i < @slack@; ++i)
        *strip++ = 0.0f;
}
"""

_CONV = """\
/* The weights of some filters as a lane needs them: plain or squared. */
static const float *prepared(const weight *w, int count, const struct lane *lane, float *to)
{
    @plain@
    int i = 0;
    if (lane->power == 1)
        for (; i < count; ++i)
            to[i] = (float)w[i];
    for (; i + 4 <= count; i += 4) {
        const float a = (float)w[i], b = (float)w[i + 1], c = (float)w[i + 2], d = (float)w[i + 3];
        to[i] = a * a;
        to[i + 1] = b * b;
        to[i + 2] = c * c;
        to[i + 3] = d * d;
    }
    for (; i < count; ++i)
        to[i] = (float)w[i] * (float)w[i];
    return to;
}

static void conv_rows(const struct conv *g, kernel *run, const float *x, const float *w,
                      const struct lane *lane, int filter, float *y, int rows)
{
#if VECTORS
    /* Rows of a strip follow one another: several are one long row, with gaps to leave out. */
    const int joined = g->stride == 1 && g->row_stride == 1 ? @span@ / g->row_pitch : 1;
    const int most = joined > 1 ? joined : 1, step = g->row_stride * g->row_pitch;
    for (int r = 0; r < rows; r += most)
        for (int i = 0; i < g->columns; i += @span@)
            run(x + r * step + i, w, lane, filter, y + r * g->columns + i,
                rows - r < most ? rows - r : most,
                g->columns - i < @span@ ? g->columns - i : @span@, g);
#else
    run(x, w, lane, filter, y, rows, g->columns, g);
#endif
}

/* Lanes share the weights: all lanes use one block of filters before the next one is read. */
static void conv(const struct conv *g, const weight *w, const struct lane *lanes, int count,
                 kernel *four, kernel *one, float *scratch)
{
    const int plane = g->rows * g->columns;
    const int strip = g->strip_height ? g->channels * g->channel_pitch : 0;
    float *const squares = scratch + count * strip;
    for (int group = 0; group < g->groups; ++group) {
        const int channel = group * g->channels * g->height * g->width;
        for (int row = 0; row < g->rows; row += g->strip) {
            const int rows = g->rows - row < g->strip ? g->rows - row : g->strip;
            const int first = row * g->row_stride - g->top;
            if (strip)
                for (int l = 0; l < count; ++l)
                    fill_strip(g, lanes[l].x + channel, first, scratch + l * strip);
            for (int f = 0, n; f < g->filters; f += n) {
                n = g->filters - f >= 4 ? 4 : 1;
                const int filter = group * g->filters + f;
                for (int l = 0; l < count; ++l) {
                    const float *x = strip ? scratch + l * strip
                                           : lanes[l].x + channel + first * g->row_pitch;
                    const weight *own = w + filter * g->taps;
                    const float *v = prepared(own, n * g->taps, &lanes[l], squares);
                    float *y = lanes[l].y + filter * plane + row * g->columns;
                    conv_rows(g, n == 4 ? four : one, x, v, &lanes[l], filter, y, rows);
                }
            }
        }
    }
}
"""


@dataclass(frozen=True)
class _Geometry:
    """A convolution in two dimensions (rows, columns); ``sizes`` are those of ``struct conv``."""

    kernel: Shape
    stride: Shape
    dilation: Shape
    squares: bool
    sizes: dict[str, int]


def _geometry(node: Node) -> _Geometry:
    (x, *_), (y, *_), window = node.reads, node.writes, node.lanes[0].attributes["window"]
    size, kernel, stride, dilation, before, out = _pairs(x.shape[2:], y.shape[2:], window)
    taps = node.lanes[0].attributes["weight"].shape[1]
    groups = x.shape[1] * prod(kernel) // taps
    squares = any(lane.attributes["power"] == 2 for lane in node.lanes)
    phase = out[1] + (kernel[1] - 1) * dilation[1] // stride[1]
    if not any(window.pads) and stride[1] == 1:  # in place
        strip, strip_height, row_pitch = out[0], 0, size[1]
    else:
        several = squares or kernel[0] > 1
        strip = min(out[0], -(-_STRIP_COLUMNS // out[1]) if several else 1)
        strip_height = (strip - 1) * stride[0] + (kernel[0] - 1) * dilation[0] + 1
        row_pitch = phase * stride[1]
    sizes = {"groups": groups, "channels": x.shape[1] // groups, "filters": y.shape[1] // groups}
    sizes |= {"height": size[0], "width": size[1], "top": before[0], "left": before[1]}
    sizes |= {"rows": out[0], "columns": out[1], "row_stride": stride[0], "stride": stride[1]}
    sizes |= {"taps": taps, "strip": strip, "strip_height": strip_height, "phase": phase}
    sizes |= {"row_pitch": row_pitch, "kernel_pitch": row_pitch * dilation[0]}
    sizes |= {"channel_pitch": row_pitch * (strip_height or size[0])}
    return _Geometry(kernel, stride, dilation, squares, sizes)


def _pairs(size: Shape, out: Shape, window: Window) -> Iterable[Shape]:
    """All sizes in two dimensions. Rows that do not depend on one another are one long row."""
    numbers = [size, window.kernel, window.strides, window.dilations]
    size, kernel, stride, dilation, out = ((1, *sizes)[-2:] for sizes in (*numbers, out))
    before = (0, *window.pads[: len(window.kernel)])[-2:]
    pairs = (size, kernel, stride, dilation, before, out)
    if size[1] == kernel[1] == out[1] == 1 and before[1] == 0:  # upright
        return [pair[::-1] for pair in pairs]
    if kernel == stride == (1, 1) and not any(window.pads):
        return ((1, prod(size)), kernel, stride, dilation, before, (1, prod(size)))
    return pairs


def scratch_size(step: Step, int8: bool) -> int:
    """Floats for the strips of all lanes, and for four filters that are squared or unpacked."""
    if isinstance(step, Loop) or step.kind != "Conv":
        return 0
    g = _geometry(step)
    strips = len(step.reads) * g.sizes["channels"] * g.sizes["channel_pitch"] + _SLACK
    weights = _BLOCK * g.sizes["taps"] if g.squares or int8 else 0
    return (strips if g.sizes["strip_height"] else 0) + weights


def _render_conv(node: Node, file: File) -> list[str]:
    g = _geometry(node)
    table, lanes = _lanes(node, g.sizes["groups"], file)
    file.function("struct conv", _STRUCTS)
    file.function("fill_strip", fill(_STRIP, slack=_SLACK))
    plain = [] if file.int8 else ["if (lane->power == 1)", "    return w;"]
    file.function("conv", fill(_CONV, span=_SPAN, plain=plain))
    filters = g.sizes["filters"]
    blocks = (_BLOCK if filters >= _BLOCK else 1, 1 if filters % _BLOCK else _BLOCK)
    four, one = (file.function(*_kernel(g, n)) for n in blocks)
    members = [f".{name} = {n}" for name, n in g.sizes.items()]
    return [
        "static const struct conv shape = {",
        *(f"    {', '.join(members[i : i + 6])}," for i in range(0, len(members), 6)),
        "};",
        *lanes,
        f"conv(&shape, {table}, lanes, {len(node.reads)}, {four}, {one}, {file.scratch});",
    ]


RENDERERS: dict[str, Callable[[Node, File], list[str]]] = {
    "ArgMax": render_argmax,
    "Conv": _render_conv,
    "Dense": _render_dense,
    "Take": render_take,
}


_KERNEL = """\
static void @name@(const float *x, const float *w, const struct lane *lane, int filter, float *y,
@space@int rows, int columns, const struct conv *g)
{
    const int step = g->row_stride * g->row_pitch, plane = g->rows * g->columns;
    @constants@
#if VECTORS
    @rows@
#else
    for (; rows > 0; --rows, x += step - columns, y += g->columns - columns) {
        int count = columns;
        @tiles@
    }
#endif
}
"""

_ROWS = """\
float @sums_of@;
const int slack = g->strip_height ? @slack@ : 0; /* there is nothing behind an input */
const int count = ((rows - 1) * step + columns + slack) & ~slack;
for (int i = 0; i < count; ++i)
    @zeros@ = 0.0f;
for (int c = 0; c < g->channels; ++c) {
    for (int k = 0; k < @kernel_rows@; ++k) {
        const float *r0 = x + c * g->channel_pitch + k * g->kernel_pitch;
        @pointers@
        @loop@{
            @weights@
            for (int i = 0; i < count; ++i) {
                @loads@
                @sums@
            }
            w += @step@;
        }
    }
}
for (int r = 0; r < rows; ++r) {
    float *to = y + r * g->columns;
    for (int i = 0; i < columns; ++i) {
        @ends@
    }
}"""

_TILE = """\
for (; count >= @columns@; count -= @columns@, x += @columns@, y += @columns@) {
    const float *v = w, *r0 = x;
    @pointers@
    @starts@
    for (int c = 0; c < g->channels; ++c) {
        @loop@{
            @sums@
        }
        @moves@
    }
    @ends@
}"""


@dataclass(frozen=True)
class _Taps:
    """The taps that are unrolled, each as pointer and index, and the loops over the others."""

    places: list[tuple[str, str]]
    pointers: dict[str, str]  # besides r0
    loop: str

    def declarations(self) -> list[str]:
        return [f"const float *{name} = {start};" for name, start in self.pointers.items()]


def _kernel(g: _Geometry, filters: int) -> tuple[str, str]:
    """Name and text of the kernel for some filters at once."""
    (rows, taps), stride, dilation = g.kernel, g.stride[1], g.dilation[1]
    strided = f"_stride{stride}" if stride > 1 else ""
    dilated = f"_dilation{dilation}" if dilation > 1 else ""
    name = f"taps{rows}x{taps}{strided}{dilated}_x{filters}"
    factor = "const float f{0} = lane->factor ? lane->factor[filter + {0}] : 1.0f;"
    bias = "const float b{0} = lane->bias ? lane->bias[filter + {0}] : 0.0f;"
    row = _row(taps, stride, dilation)
    window = _all_rows(rows, row, stride)
    text = fill(
        _KERNEL,
        name=name,
        space=" " * (len(name) + 13),
        constants=[line.format(f) for f in range(filters) for line in (factor, bias)],
        rows=_long_rows(row, rows, filters),
        tiles=_tile(window, filters, _TILE_COLUMNS) + _tile(window, filters, 1),
    )
    return name, text


def _row(taps: int, stride: int, dilation: int) -> _Taps:
    """One row of a kernel. Columns that are a stride apart are neighbours in a strip."""
    if taps > _UNROLLED:
        place = f"t * {dilation} % {stride} * g->phase + t * {dilation} / {stride}"
        return _Taps([("r0", place)], {}, f"for (int t = 0; t < {taps}; ++t) ")
    columns = [t * dilation for t in range(taps)]
    places = [(f"r{column % stride}", str(column // stride)) for column in columns]
    phases = sorted({column % stride for column in columns} - {0})
    return _Taps(places, {f"r{phase}": f"r0 + {phase} * g->phase" for phase in phases}, "")


def _all_rows(rows: int, row: _Taps, stride: int) -> _Taps:
    """All rows of a kernel, unrolled as well if these are not too many taps."""
    if rows == 1:
        return row
    if row.loop or rows * len(row.places) > _UNROLLED:
        places = [(pointer, f"k * g->kernel_pitch + {place}") for pointer, place in row.places]
        return _Taps(places, row.pointers, f"for (int k = 0; k < {rows}; ++k) {row.loop}")
    places, pointers = [], {}
    for k in range(rows):
        below = {name: f"r{stride * k + int(name[1:])}" for name in ("r0", *row.pointers)}
        places += [(below[pointer], place) for pointer, place in row.places]
        if k:
            pointers[below["r0"]] = f"r0 + {k} * g->kernel_pitch"
        for name in row.pointers:
            pointers[below[name]] = f"{below['r0']} + {name[1:]} * g->phase"
    return _Taps(places, pointers, "")


def _long_rows(row: _Taps, kernel_rows: int, filters: int) -> list[str]:
    taps, each = range(len(row.places)), range(filters)
    products = [" + ".join(f"w{t}_{f} * x{t}" for t in taps) for f in each]
    return fill(
        _ROWS,
        sums_of=", ".join(f"s{f}[{_SPAN}]" for f in each),
        slack=_SLACK,
        zeros=" = ".join(f"s{f}[i]" for f in each),
        kernel_rows=kernel_rows,
        pointers=row.declarations(),
        loop=row.loop,
        weights=[f"const float w{t}_{f} = w[{t * filters + f}];" for t in taps for f in each],
        loads=[f"const float x{t} = {r}[i + {k}];" for t, (r, k) in enumerate(row.places)],
        # From left to right: each product is a fused multiply-add where the chip has one.
        sums=[f"s{f}[i] = s{f}[i] + {products[f]};" for f in each],
        step=len(taps) * filters,
        ends=[f"to[{f} * plane + i] = s{f}[r * step + i] * f{f} + b{f};" for f in each],
    ).split("\n")


def _tile(window: _Taps, filters: int, columns: int) -> list[str]:
    each, across = range(filters), range(columns)
    sums = []
    for pointer, place in window.places:
        loads = ", ".join(f"x{p} = {pointer}[{place} + {p}]" for p in across)
        sums += ["{", f"    const float {loads};", "    float q;"]
        for f in each:
            products = " ".join(f"s{f}{p} += q * x{p};" for p in across)
            sums.append(f"    q = *v++; {products}")
        sums.append("}")
    end = "y[{0} * plane + {1}] = s{0}{1} * f{0} + b{0};"
    return fill(
        _TILE,
        columns=columns,
        pointers=window.declarations(),
        starts=[f"float {', '.join(f's{f}{p} = 0.0f' for p in across)};" for f in each],
        loop=window.loop,
        sums=sums,
        moves=[f"{r} += g->channel_pitch;" for r in ("r0", *window.pointers)],
        ends=[end.format(f, p) for f in each for p in across],
    ).split("\n")
