/* What a compiler for a Cortex-M4 has in a header of this name, for tests on other processors. */
#include <stdint.h>
#include <string.h>

typedef int32_t int16x2_t;
typedef int32_t int8x4_t;

static inline int32_t __smlad(int16x2_t a, int16x2_t b, int32_t sum)
{
    int16_t x[2], y[2];
    memcpy(x, &a, 4);
    memcpy(y, &b, 4);
    return sum + x[0] * y[0] + x[1] * y[1];
}

static inline int16x2_t __sxtb16(int8x4_t a)
{
    int8_t bytes[4];
    memcpy(bytes, &a, 4);
    const int16_t values[2] = {bytes[0], bytes[2]};
    int16x2_t result;
    memcpy(&result, values, 4);
    return result;
}
