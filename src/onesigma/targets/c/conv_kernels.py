"""The C of convolutions: a driver, and kernels that are unrolled over the taps of a row.

A kernel sums the taps of some filters over neighbouring columns. It comes in two forms, of which
the compiler takes one. With vector instructions, long rows of sums in memory, which compilers
vectorise. Without them, tiles of sums in registers: 4 filters by 4 columns need 8 loads for 16
multiply-adds.
"""

from __future__ import annotations

from dataclasses import dataclass

from onesigma.targets.c.render import filled

SPAN = 256  # columns of sums at once, in the form for vector instructions
_COLUMNS = 4  # of a tile
_UNROLLED = 25  # taps; a kernel with more has a loop over its rows, or over their taps

STRUCTS = """\
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

typedef void kernel(const float *x, const float *w, const struct lane *lane, int filter, float *y,
                    int pitch, int count, const struct conv *g);

#ifndef VECTORS
#if defined(__SSE__) || defined(__ARM_NEON) || defined(__ARM_FEATURE_MVE) || defined(__riscv_v)
#define VECTORS 1
#else
#define VECTORS 0
#endif
#endif
"""

STRIP = """\
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
}
"""

PLAIN = """\
    if (lane->power == 1)
        return w;
"""

CONV = """\
/* The weights of some filters as a lane wants them. */
static const float *prepared(const weight *w, int count, const struct lane *lane, float *to)
{
@plain@    int i = 0;
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
                      const struct lane *lane, int filter, float *y, int filters, int rows)
{
    const int step = g->row_stride * g->row_pitch, plane = g->rows * g->columns;
    int r = 0;
#if VECTORS
    /* Rows of a strip follow one another: several are one long row, with gaps to be left out. */
    const int most = g->stride == 1 && g->row_stride == 1 ? @span@ / g->row_pitch : 0;
    while (most > 1 && r + 1 < rows) {
        float sums[4 * @span@];
        const int n = rows - r < most ? rows - r : most;
        run(x + r * step, w, lane, filter, sums, @span@, (n - 1) * step + g->columns, g);
        for (int f = 0; f < filters; ++f)
            for (int k = 0; k < n; ++k)
                for (int i = 0; i < g->columns; ++i)
                    y[f * plane + (r + k) * g->columns + i] = sums[f * @span@ + k * step + i];
        r += n;
    }
#else
    (void)filters;
#endif
    for (; r < rows; ++r)
        run(x + r * step, w, lane, filter, y + r * g->columns, plane, g->columns, g);
}

/* Lanes share the weights: while a block of filters is at hand, each lane goes through it. */
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
                    conv_rows(g, n == 4 ? four : one, x, v, &lanes[l], filter, y, n, rows);
                }
            }
        }
    }
}
"""

_KERNEL = """\
static void @name@(const float *x, const float *w, const struct lane *lane, int filter, float *y,
@space@int pitch, int count, const struct conv *g)
{
@constants@
#if VECTORS
@rows@
#else
@tiles@
#endif
}
"""

_ROWS = """\
@targets@
    for (int i = 0; i < count; ++i) {
@starts@
    }
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
    for (int i = 0; i < count; ++i) {
@ends@
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
    loops: str


def kernel(shape: tuple[int, int], stride: int, dilation: int, filters: int) -> tuple[str, str]:
    """Name and text of the kernel for a shape (rows, taps of a row)."""
    strided = f"_stride{stride}" if stride > 1 else ""
    dilated = f"_dilation{dilation}" if dilation > 1 else ""
    name = f"taps{shape[0]}x{shape[1]}{strided}{dilated}_x{filters}"
    factor = "    const float f{0} = lane->factor ? lane->factor[filter + {0}] : 1.0f;"
    bias = "    const float b{0} = lane->bias ? lane->bias[filter + {0}] : 0.0f;"
    row = _row(shape[1], stride, dilation)
    window = _window(shape, row, stride)
    text = filled(
        _KERNEL,
        name=name,
        space=" " * (len(name) + 13),
        constants="\n".join(line.format(f) for f in range(filters) for line in (factor, bias)),
        rows=_rows(row, shape[0], filters),
        tiles="\n".join(_tile(window, filters, columns) for columns in (_COLUMNS, 1)),
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


def _window(shape: tuple[int, int], row: _Taps, stride: int) -> _Taps:
    """All rows of a kernel: unrolled too, if these are not too many taps."""
    rows = shape[0]
    if rows == 1:
        return row
    if rows * shape[1] > _UNROLLED:
        places = [(pointer, f"k * g->kernel_pitch + {place}") for pointer, place in row.places]
        return _Taps(places, row.pointers, f"for (int k = 0; k < {rows}; ++k) {row.loops}")
    places, pointers = [], {}
    for k in range(rows):
        below = {name: f"r{stride * k + int(name[1:])}" for name in ("r0", *row.pointers)}
        places += [(below[pointer], place) for pointer, place in row.places]
        if k:
            pointers[below["r0"]] = f"r0 + {k} * g->kernel_pitch"
        for name in row.pointers:
            pointers[below[name]] = f"{below['r0']} + {name[1:]} * g->phase"
    return _Taps(places, pointers, "")


def _declared(taps: _Taps, indent: int) -> str:
    lines = (f"const float *{name} = {start};" for name, start in taps.pointers.items())
    return "\n".join(" " * indent + line for line in lines)


def _rows(row: _Taps, kernel_rows: int, filters: int) -> str:
    indent = " " * 16
    taps, each = range(len(row.places)), range(filters)
    products = [" + ".join(f"w{t}_{f} * x{t}" for t in taps) for f in each]
    lines = {
        "targets": [f"    float *restrict y{f} = y + {f} * pitch;" for f in each],
        "starts": [f"        y{f}[i] = 0.0f;" for f in each],
        "weights": [
            f"{indent}const float w{t}_{f} = w[{t * filters + f}];" for t in taps for f in each
        ],
        "loads": [
            f"{indent}    const float x{t} = {r}[i + {k}];" for t, (r, k) in enumerate(row.places)
        ],
        "sums": [f"{indent}    y{f}[i] += {products[f]};" for f in each],
        "ends": [f"        y{f}[i] = y{f}[i] * f{f} + b{f};" for f in each],
    }
    parts = {name: "\n".join(text) for name, text in lines.items()}
    parts |= {"pointers": _declared(row, 12), "loop": row.loops}
    return filled(_ROWS, kernel_rows=kernel_rows, step=len(row.places) * filters, **parts)


def _tile(window: _Taps, filters: int, columns: int) -> str:
    indent = " " * 16
    each, across = range(filters), range(columns)
    sums = []
    for pointer, place in window.places:
        loads = ", ".join(f"x{p} = {pointer}[{place} + {p}]" for p in across)
        sums += [f"{indent}{{", f"{indent}    const float {loads};", f"{indent}    float q;"]
        for f in each:
            products = " ".join(f"s{f}{p} += q * x{p};" for p in across)
            sums.append(f"{indent}    q = *v++; {products}")
        sums.append(f"{indent}}}")
    end = "        y[{0} * pitch + {1}] = s{0}{1} * f{0} + b{0};"
    lines = {
        "starts": [f"        float {', '.join(f's{f}{p} = 0.0f' for p in across)};" for f in each],
        "sums": sums,
        "moves": [f"            {r} += g->channel_pitch;" for r in ("r0", *window.pointers)],
        "ends": [end.format(f, p) for f in each for p in across],
    }
    parts = {name: "\n".join(text) for name, text in lines.items()}
    parts |= {"pointers": _declared(window, 8), "loop": window.loops}
    return filled(_TILE, columns=columns, **parts)
