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

from onesigma.exporters.c.loops import fill

TILE_FOUR, TILE_ONE = 16, 32  # columns of the largest tiles
_SPAN = 256  # columns of sums at once
_SUMS = _SPAN + 2 * TILE_ONE  # with room for what a tile has too much on either side

_TILE = """\
@target@static void @name@(const float *x, const float *w, const struct conv *g, float *to)
{
    typedef float vector __attribute__((vector_size(@bytes@)));
    typedef float anywhere __attribute__((vector_size(@bytes@), aligned(4), may_alias));
    @starts@
    for (int c = 0; c < g->channels; ++c, x += g->channel_pitch) {
        for (int t = 0; t < g->window; ++t, w += @filters@) {
            /* volatile, or gcc would read them again for each filter */
            const volatile anywhere *from = (const volatile anywhere *)(x + g->places[t]);
            @loads@
            @sums@
        }
    }
    @ends@
}
"""

_ROWS = """\
#if VECTORS
typedef void tile(const float *x, const float *w, const struct conv *g, float *to);

struct tiles {
    tile *four, *one;
    int floats; /* of a vector */
};

@tiles@

static struct tiles best_tiles(void)
{
#if VECTORS == 32 && !defined(__AVX__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return (struct tiles){narrow_four, narrow_one, 4};
#endif
#if VECTORS == 32
    return (struct tiles){wide_four, wide_one, 8};
#else
    return (struct tiles){narrow_four, narrow_one, 4};
#endif
}

static void vector_rows(const float *x, const float *w, const struct lane *lane, int filter,
                        int filters, float *y, int rows, const struct conv *g)
{
    float sums[4 * @room@];
    const struct tiles tiles = best_tiles();
    tile *const run = filters == 4 ? tiles.four : tiles.one;
    const int width = tiles.floats * (filters == 4 ? 2 : 4), plane = g->rows * g->columns;
    /* Behind a strip there is room. Behind an input there is none: the last tile begins earlier. */
    const int all = (rows - 1) * g->pitch + g->columns, last = g->depth ? all : all - width;
    const int most = g->pitch < @span@ ? @span@ / g->pitch : 1; /* rows at once */
    for (int r = 0; r < rows; r += most) {
        for (int i = 0; i < g->columns; i += @span@) {
            const int some = rows - r < most ? rows - r : most;
            const int columns = g->columns - i < @span@ ? g->columns - i : @span@;
            const int first = r * g->pitch + i, end = first + (some - 1) * g->pitch + columns;
            for (int j = first; j < end; j += width) {
                const int at = j < last ? j : last;
                run(x + at, w, g, sums + @before@ + at - first);
            }
            for (int f = 0; f < filters; ++f) {
                const float factor = lane->factor ? lane->factor[filter + f] : 1.0f;
                const float bias = lane->bias ? lane->bias[filter + f] : 0.0f;
                for (int k = 0; k < some; ++k) {
                    const float *from = sums + f * @room@ + @before@ + k * g->pitch;
                    float *to = y + f * plane + (r + k) * g->columns + i;
                    for (int j = 0; j < columns; ++j)
                        to[j] = from[j] * factor + bias;
                }
            }
        }
    }
}
#endif
"""

_AVX2 = """\
#if !defined(__AVX__)
__attribute__((target("avx2,fma")))
#endif
"""


def vector_rows() -> str:
    """The function of this name, and the tiles that it uses."""
    narrow = _tile("narrow_four", 16, 4, 2) + "\n" + _tile("narrow_one", 16, 1, 4)
    wide = _tile("wide_four", 32, 4, 2, _AVX2) + "\n" + _tile("wide_one", 32, 1, 4, _AVX2)
    tiles = ["#if VECTORS < 32 || !defined(__AVX__)", *narrow.split("\n"), "#endif", ""]
    tiles += ["#if VECTORS == 32", *wide.split("\n"), "#endif"]
    return fill(_ROWS, tiles=tiles, span=_SPAN, room=_SUMS, before=TILE_ONE)


def _tile(name: str, size: int, filters: int, vectors: int, target: str = "") -> str:
    each, across = range(filters), range(vectors)
    return fill(
        _TILE,
        name=name,
        bytes=size,
        filters=filters,
        target=target,
        starts=[f"vector {', '.join(f's{f}{v} = {{0}}' for v in across)};" for f in each],
        loads=[f"const vector {', '.join(f'x{v} = from[{v}]' for v in across)};"],
        sums=[" ".join(f"s{f}{v} += w[{f}] * x{v};" for v in across) for f in each],
        ends=[f"((anywhere *)(to + {f * _SUMS}))[{v}] = s{f}{v};" for f in each for v in across],
    )
