"""Layers with weights as C. The mean and the variance are two lanes of one layer.

A linear layer computes four outputs at once, for all lanes in the same loop.

A convolution copies a few rows of the input at a time into a strip, padded with zeros and sorted by
the strides, so that the taps of a kernel always read neighbours, and the rows follow one another.
If nothing is padded and the strides are 1, the input is read in place. Then four filters at once
run over the strip, once for the mean and once for the variance. The variance needs squared weights:
those of four filters at a time are squared in scratch memory.

A kernel of a convolution sums the taps of some filters over neighbouring columns. It comes in two
forms; the compiler takes one. With vector instructions: ``vector_tiles.py``. Without them: tiles of
sums in registers; 4 filters by 4 columns need 8 loads for 16 multiply-adds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np

from onesigma.exporters.c.loops import File, render_argmax, render_take
from onesigma.exporters.c.nodes import Array, Node, Shape, Window
from onesigma.exporters.c.text import piece_lines
from onesigma.exporters.c.vector_tiles import TILE_FOUR, TILE_ONE, add_vector_rows

_BLOCK = 4  # filters at once
_SLACK = TILE_ONE - 1  # floats behind a strip, so that columns can be rounded up to a whole tile
# A strip may have about this many columns, so that squared weights and overlapping rows are used
# often. A kernel of one row, without squares, needs only one row. A small strip may have them all.
_STRIP_COLUMNS = 64
_STRIP_FLOATS = 1024
_TILE_COLUMNS = 4
_WORD_COLUMNS = 128  # of a row, where it may be cut, if it is copied
_UNROLLED = 25  # taps; a kernel with more has a loop over its rows, or over their taps


def add_lane(
    file: File, x: str, y: str, bias: Array | None, factor: Array | None, power: int
) -> str:
    """A ``struct lane`` in C."""
    file.function("lane")
    tables = ["NULL" if array is None else file.table(array) for array in (bias, factor)]
    return f"{{{', '.join([x, y, *tables, str(power)])}}}"


def _lanes(node: Node, groups: int, file: File) -> tuple[str, list[str]]:
    """Write the weights of a layer; returns the name of their table, and its ``lanes`` in C."""
    table = file.table(interleave(node.lanes[0].attributes["weight"], groups))
    lines = []
    for x, y, lane in zip(node.reads, node.writes, node.lanes, strict=True):
        bias, factor, power = (lane.attributes[name] for name in ("bias", "factor", "power"))
        members = add_lane(file, file.pointer(x), file.pointer(y), bias, factor, power)
        lines.append(f"    {members},")
    return table, [f"const struct lane lanes[{len(lines)}] = {{", *lines, "};"]


def interleave(weight: Array, groups: int = 1) -> Array:
    """Weights (filters, taps) so that those of four filters for one tap are neighbours."""
    return np.concatenate([np.ravel(block) for block in in_blocks(weight, groups)])


def in_blocks(weight: Array, groups: int) -> Iterator[Array]:
    """Weights (filters, taps, …) as (taps, filters, …) of four filters, then of one at a time."""
    for group in np.split(weight, groups):
        whole = len(group) // _BLOCK * _BLOCK
        starts = [*range(0, whole, _BLOCK), *range(whole, len(group) + 1)]
        yield from (group[a:b].swapaxes(0, 1) for a, b in pairwise(starts))


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
    file.function("lane")
    file.function("lane_sum")
    return file.function(name, "dense", blocks=blocks)


def _dense_block(n: int, first: str, last: str, powers: Sequence[int]) -> list[str]:
    outputs, lanes = range(n), range(len(powers))
    # The sum of one lane is made of several, so that none waits for the one before it; two lanes
    # do not gain by it.
    ways = range(1 if len(powers) > 1 else 4 if n > 1 else 8)
    parts = {(a, k): [f"s{a}{k}{u}" for u in ways] for a in lanes for k in outputs}
    starts = [f"const float *x{a} = lanes[{a}].x + row * inputs;" for a in lanes]
    starts += [f"float *y{a} = lanes[{a}].y + row * outputs;" for a in lanes]
    starts += [f"float {', '.join(f'{s} = 0.0f' for s in each)};" for each in parts.values()]

    def sums(way: int) -> list[str]:
        lines = [f"const float e{a}{way} = x{a}[i + {way}];" for a in lanes]
        for k in outputs:
            w = f"w{k}{way}"
            lines.append(f"const float {w} = v[{way * n + k}];")
            for a in lanes:
                factor = w if powers[a] == 1 else f"({w} * {w})"
                lines.append(f"{parts[a, k][way]} += {factor} * e{a}{way};")
        return [f"    {line}" for line in lines]

    most = len(ways)
    loops = [f"for (int i = 0; i < inputs - inputs % {most}; i += {most}, v += {most * n}) {{"]
    loops += [*(line for way in ways for line in sums(way)), "}"]
    if most > 1:
        loops.append(f"for (int i = inputs - inputs % {most}; i < inputs; ++i, v += {n}) {{")
        loops += [*sums(0), "}"]
    store = "y{0}[o + {1}] = lane_sum(&lanes[{0}], o + {1}, {2});"
    stores = [store.format(a, k, " + ".join(each)) for (a, k), each in parts.items()]
    ends = {"n": n, "first": first, "last": last}
    return piece_lines("dense_block", **ends, starts=starts, loops=loops, stores=stores)


@dataclass(frozen=True)
class Geometry:
    """A convolution in two dimensions (rows, columns); ``sizes`` are those of ``struct conv``."""

    kernel: Shape
    stride: Shape
    dilation: Shape
    sizes: dict[str, int]

    def place(self, k: int, t: int) -> tuple[int, int, int]:
        """Where the tap of a kernel's row and column is: plane, row, column."""
        (row, row_phase), (column, phase) = (
            divmod(index * d, s)
            for index, d, s in zip((k, t), self.dilation, self.stride, strict=True)
        )
        return row_phase * self.sizes["phases"] + phase, row, column

    def places(self) -> list[int]:
        """All taps, in floats from the first."""
        taps = [self.place(k, t) for k in range(self.kernel[0]) for t in range(self.kernel[1])]
        plane, pitch = self.sizes["plane"], self.sizes["pitch"]
        return [p * plane + row * pitch + column for p, row, column in taps]


def _squares(node: Node) -> bool:
    return any(lane.attributes["power"] == 2 for lane in node.lanes)


def _geometry(node: Node) -> Geometry:
    layer = node.lanes[0].attributes
    return geometry(node, layer["window"], layer["weight"].shape[1], squares=_squares(node))


def geometry(
    node: Node, window: Window, taps: int, *, squares: bool = False, words: bool = False
) -> Geometry:
    """The sizes of a convolution by so many taps; its strip holds floats, or words of two codes."""
    (x, *_), (y, *_) = node.reads, node.writes
    pairs = _pairs(x.shape[2:], y.shape[2:], window, _WORD_COLUMNS if words else None)
    size, kernel, stride, dilation, before, out = pairs
    groups = x.shape[1] * prod(kernel) // taps
    axes = list(zip(kernel, dilation, stride, strict=True))
    phases = [1 + max(k * d % s for k in range(n)) for n, d, s in axes]
    channels = -(-x.shape[1] // groups // (2 if words else 1))
    sizes = {"groups": groups, "channels": channels, "filters": y.shape[1] // groups}
    sizes |= {"height": size[0], "width": size[1], "top": before[0], "left": before[1]}
    sizes |= {"rows": out[0], "columns": out[1], "row_stride": stride[0], "stride": stride[1]}
    sizes |= {"row_phases": phases[0], "phases": phases[1], "taps": taps, "window": prod(kernel)}
    plain = not any(window.pads) and stride == (1, 1) and not words
    if plain and _flat(out[0], out[1], size[1]) >= TILE_ONE:
        layout = {"strip": out[0], "depth": 0, "pitch": size[1], "plane": 0, "shared": 0}
        sizes |= {**layout, "channel_pitch": prod(size)}
    else:
        several = squares or words or kernel[0] > 1
        sizes |= _strip(sizes, [(n - 1) * d // s for n, d, s in axes], several)
    return Geometry(kernel, stride, dilation, sizes)


def _flat(rows: int, columns: int, pitch: int) -> int:
    """The length of all rows as one, up to the last column of the last."""
    return (rows - 1) * pitch + columns


def _strip(sizes: dict[str, int], beyond: Sequence[int], several: bool) -> dict[str, int]:
    """The layout of a strip: the highest of those that need the fewest tiles.

    ``beyond`` are the rows and columns that a plane has more than the output.
    """
    rows, columns, channels = sizes["rows"], sizes["columns"], sizes["channels"]
    tile = TILE_FOUR if sizes["filters"] >= _BLOCK else TILE_ONE
    shared = _shared_zeros(sizes, columns + beyond[1])
    pitch, layouts = columns + beyond[1] - shared, []
    for strip in range(1, rows + 1):
        depth = strip + beyond[0]
        layout = {"strip": strip, "depth": depth, "pitch": pitch, "shared": shared}
        layout |= {"plane": depth * pitch + shared}
        layout |= {"channel_pitch": layout["plane"] * sizes["row_phases"] * sizes["phases"]}
        small = channels * layout["channel_pitch"] <= _STRIP_FLOATS
        if strip == 1 or small or (several and (strip - 1) * columns < _STRIP_COLUMNS):
            strips = [min(strip, rows - first) for first in range(0, rows, strip)]
            tiles = sum(-(-_flat(each, columns, pitch) // tile) for each in strips)
            layouts.append((tiles, -strip, layout))
    return min(layouts, key=lambda each: each[:2])[2]


def _shared_zeros(sizes: dict[str, int], phase: int) -> int:
    """How many zeros every row of a strip both begins and ends with."""
    counts = []
    for p in range(sizes["phases"]):
        columns = [i * sizes["stride"] + p - sizes["left"] for i in range(phase)]
        before = sum(column < 0 for column in columns)
        counts += [before, sum(column >= sizes["width"] for column in columns)]
    return min(*counts, phase - sizes["columns"])


def _pairs(size: Shape, out: Shape, window: Window, most: int | None) -> Iterable[Shape]:
    """All sizes in two dimensions.

    Rows that do not depend on one another are one long row, or rows of ``most`` columns or fewer.
    """
    numbers = [size, window.kernel, window.strides, window.dilations]
    size, kernel, stride, dilation, out = ((1, *sizes)[-2:] for sizes in (*numbers, out))
    before = (0, *window.pads[: len(window.kernel)])[-2:]
    pairs = (size, kernel, stride, dilation, before, out)
    if size[1] == kernel[1] == out[1] == 1 and before[1] == 0:  # upright
        return [pair[::-1] for pair in pairs]
    if kernel == stride == (1, 1) and not any(window.pads):
        area = prod(size)
        columns = max(n for n in range(1, min(area, most or area) + 1) if area % n == 0)
        rows = (area // columns, columns)
        return (rows, kernel, stride, dilation, before, rows)
    return pairs


def _conv_scratch(node: Node) -> int:
    """Floats for the strips of all lanes, and for four filters that are squared."""
    g = _geometry(node)
    strips = len(node.reads) * g.sizes["channels"] * g.sizes["channel_pitch"] + _SLACK
    weights = _BLOCK * g.sizes["taps"] if _squares(node) else 0
    return (strips if g.sizes["depth"] else 0) + weights


def _render_conv(node: Node, file: File) -> list[str]:
    g = _geometry(node)
    table, lanes = _lanes(node, g.sizes["groups"], file)
    file.function("conv_types")
    file.function("fill_strip", slack=_SLACK)
    loads = [f"const float a{i} = w[i + {i}];" for i in range(8)]
    squares = [f"to[i + {i}] = a{i} * a{i};" for i in range(8)]
    file.function("conv", loads=loads, squares=squares)
    add_vector_rows(file)
    filters = g.sizes["filters"]
    blocks = (_BLOCK if filters >= _BLOCK else 1, 1 if filters % _BLOCK else _BLOCK)
    four, one = (_add_kernel(file, g, n) for n in blocks)
    sizes = {**g.sizes, "places": file.table(np.array(g.places()), "int32")}
    return [
        *shape_lines("conv", sizes),
        *lanes,
        f"conv(&shape, {table}, lanes, {len(node.reads)}, {four}, {one}, {file.scratch});",
    ]


def shape_lines(kind: str, sizes: Mapping[str, object]) -> list[str]:
    """The sizes of a convolution as a struct of that kind."""
    members = [f".{name} = {n}" for name, n in sizes.items()]
    rows = [f"    {', '.join(members[i : i + 6])}," for i in range(0, len(members), 6)]
    return [f"static const struct {kind} shape = {{", *rows, "};"]


SCRATCH = {"Conv": _conv_scratch}
RENDERERS: dict[str, Callable[[Node, File], list[str]]] = {
    "ArgMax": render_argmax,
    "Conv": _render_conv,
    "Dense": _render_dense,
    "Take": render_take,
}


@dataclass(frozen=True)
class _Taps:
    """The taps that are unrolled, each as pointer and index, and the loop over the others."""

    places: list[tuple[str, int]]
    pointers: dict[str, str]  # besides r0
    loop: str = ""
    inner: tuple[str, ...] = ()  # pointers that are set in the loop


def _add_kernel(file: File, g: Geometry, filters: int) -> str:
    """The kernel for some filters at once; returns its name."""
    name = f"taps{g.kernel[0]}x{g.kernel[1]}"
    for what, (rows, columns) in (("stride", g.stride), ("dilation", g.dilation)):
        name += f"_{what}{rows}x{columns}" if rows * columns > 1 else ""
    name += f"_x{filters}"
    factor = "const float f{0} = lane->factor ? lane->factor[filter + {0}] : 1.0f;"
    bias = "const float b{0} = lane->bias ? lane->bias[filter + {0}] : 0.0f;"
    taps = _taps(g)
    return file.function(
        name,
        "kernel",
        space=" " * (len(name) + 13),
        filters=filters,
        constants=[line.format(f) for f in range(filters) for line in (factor, bias)],
        tiles=_tile(taps, filters, _TILE_COLUMNS) + _tile(taps, filters, 1),
    )


def _taps(g: Geometry) -> _Taps:
    """All taps of the kernel, or those of one row, or one, unrolled."""
    rows, columns = g.kernel
    if columns > _UNROLLED:
        loop = f"for (int k = 0; k < {rows * columns}; ++k) "
        return _Taps([("a0", 0)], {}, loop, ("const float *a0 = r0 + g->places[k];",))
    if rows * columns > _UNROLLED:
        row = [g.place(0, t) for t in range(columns)]
        loop = f"for (int k = 0; k < {rows}; ++k) "
        inner = [f"const float *a0 = r0 + g->places[k * {columns}];"]
        others = sorted({phase for phase, _, _ in row} - {0})
        inner += [f"const float *a{phase} = a0 + {phase} * g->plane;" for phase in others]
        return _Taps([(f"a{phase}", column) for phase, _, column in row], {}, loop, tuple(inner))
    taps = [g.place(k, t) for k in range(rows) for t in range(columns)]
    names = {key: f"r{i}" for i, key in enumerate(dict.fromkeys((p, row) for p, row, _ in taps))}
    pointers = {name: f"r0 + {p} * g->plane + {row} * g->pitch" for (p, row), name in names.items()}
    del pointers["r0"]
    return _Taps([(names[p, row], column) for p, row, column in taps], pointers)


def _tile(taps: _Taps, filters: int, columns: int) -> list[str]:
    each, across = range(filters), range(columns)
    sums = []
    for pointer, place in taps.places:
        loads = ", ".join(f"x{p} = {pointer}[{place + p}]" for p in across)
        sums += ["{", f"    const float {loads};", "    float q;"]
        for f in each:
            products = " ".join(f"s{f}{p} += q * x{p};" for p in across)
            sums.append(f"    q = *v++; {products}")
        sums.append("}")
    end = "y[{0} * plane + {1}] = s{0}{1} * f{0} + b{0};"
    return piece_lines(
        "kernel_tile",
        columns=columns,
        pointers=[f"const float *{name} = {start};" for name, start in taps.pointers.items()],
        starts=[f"float {', '.join(f's{f}{p} = 0.0f' for p in across)};" for f in each],
        loop=taps.loop,
        inner=list(taps.inner),
        sums=sums,
        moves=[f"{r} += g->channel_pitch;" for r in ("r0", *taps.pointers)],
        ends=[end.format(f, p) for f in each for p in across],
    )
