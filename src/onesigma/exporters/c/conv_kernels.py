"""The inner loops of convolutions, unrolled over the taps of a filter.

A kernel sums the taps of some filters over neighbouring columns. It comes in two forms, of which
the compiler takes one. With vector instructions, long rows of sums in memory, which compilers
vectorise: in an array of the kernel's own, for these to know that nothing else lies there. Without
them, tiles of sums in registers: 4 filters by 4 columns need 8 loads for 16 multiply-adds.
"""

from __future__ import annotations

from dataclasses import dataclass

from onesigma.exporters.c.conv_driver import SLACK, SPAN
from onesigma.exporters.c.render import filled

_COLUMNS = 4  # of a tile
_UNROLLED = 25  # taps; a kernel with more has a loop over its rows, or over their taps

_KERNEL = """\
static void @name@(const float *x, const float *w, const struct lane *lane, int filter, float *y,
@space@int rows, int columns, const struct conv *g)
{
    const int step = g->row_stride * g->row_pitch, plane = g->rows * g->columns;
@constants@
#if VECTORS
@rows@
#else
@tiles@
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

_TILES = """\
    for (; rows > 0; --rows, x += step - columns, y += g->columns - columns) {
        int count = columns;
@tiles@
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
        tiles=filled(_TILES, tiles="\n".join(_tile(window, filters, n) for n in (_COLUMNS, 1))),
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
        "weights": [
            f"{indent}const float w{t}_{f} = w[{t * filters + f}];" for t in taps for f in each
        ],
        "loads": [
            f"{indent}    const float x{t} = {r}[i + {k}];" for t, (r, k) in enumerate(row.places)
        ],
        # From left to right: each product is a fused multiply-add where the chip has one.
        "sums": [f"{indent}    s{f}[i] = s{f}[i] + {products[f]};" for f in each],
        "ends": [
            f"            to[{f} * plane + i] = s{f}[r * step + i] * f{f} + b{f};" for f in each
        ],
    }
    parts = {name: "\n".join(text) for name, text in lines.items()}
    parts |= {"pointers": _declared(row, 12), "loop": row.loops}
    parts |= {"sums_of": ", ".join(f"s{f}[{SPAN}]" for f in each), "slack": str(SLACK)}
    parts |= {"zeros": " = ".join(f"s{f}[i]" for f in each)}
    return filled(_ROWS, kernel_rows=kernel_rows, step=len(row.places) * filters, **parts)


def _tile(window: _Taps, filters: int, columns: int) -> str:
    indent = " " * 20
    each, across = range(filters), range(columns)
    sums = []
    for pointer, place in window.places:
        loads = ", ".join(f"x{p} = {pointer}[{place} + {p}]" for p in across)
        sums += [f"{indent}{{", f"{indent}    const float {loads};", f"{indent}    float q;"]
        for f in each:
            products = " ".join(f"s{f}{p} += q * x{p};" for p in across)
            sums.append(f"{indent}    q = *v++; {products}")
        sums.append(f"{indent}}}")
    end = "            y[{0} * plane + {1}] = s{0}{1} * f{0} + b{0};"
    lines = {
        "starts": [
            f"            float {', '.join(f's{f}{p} = 0.0f' for p in across)};" for f in each
        ],
        "sums": sums,
        "moves": [f"                {r} += g->channel_pitch;" for r in ("r0", *window.pointers)],
        "ends": [end.format(f, p) for f in each for p in across],
    }
    parts = {name: "\n".join(text) for name, text in lines.items()}
    parts |= {"pointers": _declared(window, 12), "loop": window.loops}
    return filled(_TILE, columns=columns, **parts)
