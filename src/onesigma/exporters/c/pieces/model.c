/* Written by onesigma @version@. Do not edit. */
#include "@name@.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#ifndef @NAME@_STEP
#define @NAME@_STEP(number) /* for profiling: called before each step */
#endif

@tables@

@class_names@
@functions@
/* By the bits of the exponent, so that it holds with -ffast-math, too. */
static bool is_finite(const float *values, int count)
{
    for (int i = 0; i < count; ++i) {
        const union { float value; uint32_t bits; } each = {values[i]};
        if ((each.bits & 0x7f800000u) == 0x7f800000u)
            return false;
    }
    return true;
}

int @name@_predict_with(float *arena, @given@,
                        struct @name@_prediction *out)
{
    if (arena == NULL || @checks@ || out == NULL)
        return @NAME@_NULL_POINTER;
    if (!(@finite@))
        return @NAME@_NOT_FINITE;
    @places@
    @steps@
    @ends@
    return 0;
}

#ifndef @NAME@_NO_ARENA
int @name@_predict(@given@, struct @name@_prediction *out)
{
    static float arena[@NAME@_ARENA_SIZE];
    return @name@_predict_with(arena, @arguments@, out);
}
#endif
