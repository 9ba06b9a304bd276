"""The rows of a convolution with vector instructions: tiles of sums in vector registers.

The rows of a strip follow one another, so they are one long row with gaps, which are left out at
the end. A tile is two vectors of its columns by four filters, or four vectors by one filter; it
reads each weight and each column once for every tap: 6 loads for 8 products of vectors.

The vectors are types that gcc and clang have for all chips. Of arrays in plain C neither makes
registers reliably: gcc 12 takes 2 to 30 times as long, by the size of the tile. On x86-64 there is
a second form of the tiles for AVX2. It is the only one if the file is compiled for that; else the
processor is asked.
"""

from __future__ import annotations

from onesigma.exporters.c.loops import File
from onesigma.exporters.c.text import fill_piece

TILE_FOUR, TILE_ONE = 16, 32  # columns of the largest tiles
_SPAN = 256  # columns of sums at once
_SUMS = _SPAN + 2 * TILE_ONE  # with room for what a tile has too much on either side

_AVX2 = """\
#if !defined(__AVX__)
__attribute__((target("avx2,fma")))
#endif
"""


def add_vector_rows(file: File) -> None:
    """The function ``vector_rows``, and the tiles that it uses."""
    narrow = _tile("narrow_four", 16, 4, 2) + "\n" + _tile("narrow_one", 16, 1, 4)
    wide = _tile("wide_four", 32, 4, 2, _AVX2) + "\n" + _tile("wide_one", 32, 1, 4, _AVX2)
    tiles = ["#if VECTORS < 32 || !defined(__AVX__)", *narrow.split("\n"), "#endif", ""]
    tiles += ["#if VECTORS == 32", *wide.split("\n"), "#endif"]
    file.function("vector_rows", tiles=tiles, span=_SPAN, room=_SUMS, before=TILE_ONE)


def _tile(name: str, size: int, filters: int, vectors: int, target: str = "") -> str:
    each, across = range(filters), range(vectors)
    return fill_piece(
        "vector_tile",
        name=name,
        bytes=size,
        filters=filters,
        target=target,
        starts=[f"vector {', '.join(f's{f}{v} = {{0}}' for v in across)};" for f in each],
        loads=[f"const vector {', '.join(f'x{v} = from[{v}]' for v in across)};"],
        sums=[" ".join(f"s{f}{v} += w[{f}] * x{v};" for v in across) for f in each],
        ends=[f"((anywhere *)(to + {f * _SUMS}))[{v}] = s{f}{v};" for f in each for v in across],
    )
