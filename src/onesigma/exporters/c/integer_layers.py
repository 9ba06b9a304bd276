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

from onesigma.exporters.c.loops import File
from onesigma.exporters.c.nodes import Array, Node
from onesigma.exporters.c.text import piece_lines
from onesigma.exporters.c.weighted_layers import Geometry, geometry, in_blocks, shape_lines

_BLOCK = 4  # filters at once
_COLUMNS = {_BLOCK: 2, 1: 8}  # at once, by the filters
_MOST_TAPS = 64  # of a kernel of one channel, which is always unrolled
_MOST_WORDS = 32  # of a kernel that is unrolled; one with more looks up where each word is
_STRIP = 1024  # words of a strip of one channel, about
_WORDS = 12  # that are unrolled at least, if there are channels enough


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
    return np.concatenate([_pack(block) for block in in_blocks(words, groups)])


def _conv_scratch(node: Node) -> int:
    """Floats for a strip and the weights of four filters."""
    g = _geometry(node)
    if _is_single(node, g):
        sizes = _single_sizes(g)
        return sizes["depth"] * sizes["pitch"] + sizes["words"] + 1
    strip = g.sizes["channels"] * g.sizes["channel_pitch"]
    return strip + _BLOCK * len(_words(node, g).taps) + 1


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


def _add_row_kernel(file: File, g: Geometry, sizes: dict[str, int]) -> str:
    """The kernel for four columns of one filter; returns its name."""
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
    return file.function(name, "row8", step=2 * step, sums=lines)


def _render_single(node: Node, g: Geometry, file: File) -> list[str]:
    sizes: dict[str, object] = {**_single_sizes(g), "zero": node.attributes["zero"]}
    file.function("depth8")
    kernel = _add_row_kernel(file, g, _single_sizes(g))
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
    return shape_lines("conv8", {k: n for k, n in sizes.items() if k not in ("taps", "window")})


def _render_conv(node: Node, file: File) -> list[str]:
    g, codes = _geometry(node), node.attributes["codes"]
    file.function("smlad")
    file.function("conv8")
    if _is_single(node, g):
        return _render_single(node, g, file)
    words, filters = _words(node, g), g.sizes["filters"]
    table = "" if words.step else file.table(np.array(words.places), "int32")
    kernels = [
        _add_kernel(file, g, words, table, n, columns) if used else "NULL"
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


def _add_kernel(
    file: File, g: Geometry, words: _Words, table: str, filters: int, columns: int
) -> str:
    """The kernel for some filters and columns at once; returns its name."""
    unrolled = words.places if words.step else [0]
    sizes = [*g.kernel, *g.stride, *g.dilation, g.sizes["pitch"], g.sizes["plane"], words.step]
    name = "_".join(["sums", *map(str, sizes), *table.split(), f"{filters}x{columns}"])
    start = "int32_t " + ", ".join(f"s{{0}}{p} = filter[{{1}}]" for p in range(columns)) + ";"
    products = [_products(i, place, filters, columns) for i, place in enumerate(unrolled)]
    return file.function(
        name,
        "kernel8",
        space=" " * (len(name) + 13),
        starts=[start.format(f, 4 * f) for f in range(filters)],
        places=[f"const int32_t *place = {table};"] if table else ["const word *r = x;"],
        place=["const word *r = x + *place++;"] if table else [],
        sums=[line for lines in products for line in lines],
        used=len(unrolled) * filters,
        move=[] if table else [f"r += {words.step};"],
        ends=[line for f in range(filters) for line in _ends(f, columns)],
    )


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


def _render_dense(node: Node, file: File) -> list[str]:
    (x,), (y,), codes = node.reads, node.writes, node.attributes["codes"]
    outputs, inputs = codes.shape
    file.function("smlad")
    file.function("dense8", blocks=_dense_block(_BLOCK) + _dense_block(1))
    taps = np.arange(-(-inputs // 4) * 4)
    taps = np.where(taps < inputs, taps, -1).reshape(-1, 2, 2)
    table = file.table(_weights(codes, taps, 1), "uint32")
    return [
        f"dense8({table}, {inputs}, {outputs}, {prod(x.shape[:-1])}, {_filters(node, file)},",
        f"       {file.pointer(x)}, {file.pointer(y)}, (word *)({file.scratch}));",
    ]


def _dense_block(n: int) -> list[str]:
    sum_ = "q = v[{0}]; s{0} = smlad(sxtb16(q), a, s{0}); s{0} = smlad(sxtb16_next(q), b, s{0});"
    end = "y[o + {0}] = requantised(s{0}, filter[{1}], filter[{2}], filter[{3}]);"
    return piece_lines(
        "dense8_block",
        n=n,
        numbers=4 * n,
        starts=", ".join(f"s{k} = filter[{4 * k}]" for k in range(n)),
        sums=[sum_.format(k) for k in range(n)],
        ends=[end.format(k, 4 * k + 1, 4 * k + 2, 4 * k + 3) for k in range(n)],
    )


# Of a linear layer, floats for its input as words.
SCRATCH: dict[str, Callable[[Node], int]] = {
    "Conv8": _conv_scratch,
    "Dense8": lambda node: -(-node.reads[0].shape[-1] // 4) * 2,
}
RENDERERS: dict[str, Callable[[Node, File], list[str]]] = {
    "Conv8": _render_conv,
    "Dense8": _render_dense,
}
