"""The C around the kernels of convolutions: strips of the input, blocks of filters, lanes."""

SPAN = 256  # columns of sums at once, in the form for vector instructions
SLACK = 7  # floats behind a strip, that a count of columns may be rounded up to a whole vector

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
    for (int i = 0; i < @slack@; ++i)
        *strip++ = 0.0f;
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
                      const struct lane *lane, int filter, float *y, int rows)
{
#if VECTORS
    /* Rows of a strip follow one another: several are one long row, with gaps to be left out. */
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
                    conv_rows(g, n == 4 ? four : one, x, v, &lanes[l], filter, y, rows);
                }
            }
        }
    }
}
"""
