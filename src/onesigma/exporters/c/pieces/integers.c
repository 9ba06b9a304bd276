/* Layers of 8-bit codes, in pieces: each after a line "//: name", with @names@ to fill in. */
//: types
/* Parts of the arena as other types than float. */
#if defined(__GNUC__)
#define MAY_ALIAS __attribute__((may_alias))
#else
#define MAY_ALIAS
#endif
typedef int32_t sum32 MAY_ALIAS;
typedef uint32_t word MAY_ALIAS; /* two values of 16 bits */

//: smlad
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
#define LOAD_TWO(a, b, at) \
    const two a##b = *(const volatile two *)(at); \
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

//: conv8
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

//: kernel8
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

//: depth8
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

//: row8
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

//: dense8
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

//: dense8_block
for (; o + @n@ <= outputs; o += @n@, filter += @numbers@) {
    int32_t @starts@;
    for (const word *r = scratch; r != end; r += 2, v += @n@) {
        const word a = r[0], b = r[1];
        uint32_t q;
        @sums@
    }
    @ends@
}
