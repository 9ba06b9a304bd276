/* Layers of floats, in pieces: each after a line "//: name", with @names@ to fill in. */
//: lane
/* One value that goes through a layer: a mean, or a variance, for which weights are squared. */
struct lane {
    const float *x;
    float *y;
    const float *bias;
    const float *factor; /* of each filter: multiplies its weights, or their squares */
    int power;
};

//: lane_sum
static inline float lane_sum(const struct lane *lane, int filter, float sum)
{
    if (lane->factor)
        sum *= lane->factor[filter];
    return lane->bias ? sum + lane->bias[filter] : sum;
}

//: dense
static void @name@(const float *w, int inputs, int outputs, int rows, const struct lane *lanes)
{
    const int blocks = outputs - outputs % 4;
    for (int row = 0; row < rows; ++row) {
        const float *v = w;
        @blocks@
    }
}

//: dense_block
for (int o = @first@; o < @last@; o += @n@) {
    @starts@
    @loops@
    @stores@
}

//: conv_types
/* Sizes of a convolution. A strip is a few rows of the input, padded and sorted by the strides:
   of each channel, one plane for each phase, which is a row and a column modulo the strides. */
struct conv {
    int groups, channels, filters;  /* channels and filters of one group */
    int height, width, top, left;   /* of the input; zeros above it and to its left */
    int rows, columns;              /* of the output */
    int row_stride, stride;         /* from row to row, from column to column */
    int row_phases, phases;         /* of them, those that a tap reads */
    int taps, window;               /* weights of one filter, and of one of its channels */
    const int32_t *places;          /* of the window's taps, from an output's first one */
    int strip, depth;               /* output rows at once; rows of a plane, 0: read in place */
    int pitch, plane, channel_pitch; /* from one to the next */
    int shared;                     /* zeros that end one row and begin the next */
};

/* Some rows of some filters. */
typedef void kernel(const float *x, const float *w, const struct lane *lane, int filter, float *y,
                    int rows, const struct conv *g);

/* Bytes of the widest vectors. They are types of gcc and clang; 0 is the plain form. */
#ifndef VECTORS
#if defined(__GNUC__) && defined(__x86_64__) && __STDC_HOSTED__
#define VECTORS 32
#elif defined(__GNUC__) && (defined(__SSE2__) || defined(__ARM_NEON))
#define VECTORS 16
#else
#define VECTORS 0
#endif
#endif

//: fill_strip
static void fill_strip(const struct conv *g, const float *x, int first, float *strip)
{
    const int stride = g->stride, pitch = g->pitch;
    for (int c = 0; c < g->channels; ++c, x += g->height * g->width) {
        for (int p = 0; p < g->row_phases * g->phases; ++p) {
            const int left = g->left - p % g->phases;
            const int zeros = left > 0 ? (left + stride - 1) / stride : 0;
            const int filled = (g->width + left + stride - 1) / stride;
            const int end = filled < pitch ? filled : pitch;
            for (int i = 0; i < g->depth; ++i, strip += pitch) {
                const int r = first + p / g->phases + i * g->row_stride;
                int j = 0;
                if (r >= 0 && r < g->height) {
                    const float *row = x + r * g->width;
                    for (; j < zeros && j < pitch; ++j) /* of one condition, a call of memset */
                        strip[j] = 0.0f;
                    for (; j < end; ++j)
                        strip[j] = row[j * stride - left];
                }
                for (; j < pitch; ++j)
                    strip[j] = 0.0f;
            }
            for (int i = 0; i < g->shared; ++i)
                *strip++ = 0.0f;
        }
    }
    for (int i = 0; i < @slack@; ++i)
        *strip++ = 0.0f;
}

//: conv
/* The weights of some filters as a lane needs them: plain or squared. */
static const float *prepared(const float *w, int count, const struct lane *lane, float *to)
{
    if (lane->power == 1)
        return w;
    int i = 0;
    for (; i + 8 <= count; i += 8) {
        @loads@
        @squares@
    }
    for (; i < count; ++i)
        to[i] = w[i] * w[i];
    return to;
}

/* Lanes share the weights: all lanes use one block of filters before the next one is read. */
static void conv(const struct conv *g, const float *w, const struct lane *lanes, int count,
                 kernel *four, kernel *one, float *scratch)
{
    const int plane = g->rows * g->columns;
    const int strip = g->depth ? g->channels * g->channel_pitch : 0;
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
                    const float *x = strip ? scratch + l * strip : lanes[l].x + channel;
                    const float *own = w + filter * g->taps;
                    const float *v = prepared(own, n * g->taps, &lanes[l], squares);
                    float *y = lanes[l].y + filter * plane + row * g->columns;
                    (n == 4 ? four : one)(x, v, &lanes[l], filter, y, rows, g);
                }
            }
        }
    }
}

//: kernel
static void @name@(const float *x, const float *w, const struct lane *lane, int filter, float *y,
@space@int rows, const struct conv *g)
{
#if VECTORS
    vector_rows(x, w, lane, filter, @filters@, y, rows, g);
#else
    const int plane = g->rows * g->columns;
    @constants@
    for (; rows > 0; --rows, x += g->pitch - g->columns) {
        int count = g->columns;
        @tiles@
    }
#endif
}

//: kernel_tile
for (; count >= @columns@; count -= @columns@, x += @columns@, y += @columns@) {
    const float *v = w, *r0 = x;
    @pointers@
    @starts@
    for (int c = 0; c < g->channels; ++c) {
        @loop@{
            @inner@
            @sums@
        }
        @moves@
    }
    @ends@
}

//: vector_tile
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

//: vector_rows
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

//: take
const @kind@ *x = @x@;
@kind@ *y = @y@;
for (int a = 0; a < @outer@; ++a, x += @step@)
    for (int i = 0; i < @count@; ++i)
        for (int b = 0; b < @inner@; ++b)
            *y++ = x[@table@[i] * @inner@ + b];

//: argmax
const float *x = @x@;
float *y = @y@;
for (int a = 0; a < @size@; ++a, x += @n@) {
    int best = 0;
    for (int i = 1; i < @n@; ++i)
        best = x[i] > x[best] ? i : best;
    y[a] = (float)best;
}
