/* Written by onesigma @version@. Do not edit.

@size_table@

The code itself comes on top of the tables. */
#ifndef @NAME@_H
#define @NAME@_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

#define @NAME@_ARENA_SIZE @arena@ /* floats */
@sizes@

#define @NAME@_NULL_POINTER (-1)
#define @NAME@_NOT_FINITE (-2) /* an input holds NaN or infinity */
@class_names@
struct @name@_prediction {
    @fields@
};

/* Answer one input. Returns 0, or one of the errors above, and then leaves *out as it was. Not
   re-entrant: it uses an arena of its own, which is left out if @NAME@_NO_ARENA is defined. */
int @name@_predict(@inputs@, struct @name@_prediction *out);

/* The same in the caller's memory: @NAME@_ARENA_SIZE floats, free for other use between two calls.
   Re-entrant. */
int @name@_predict_with(float *arena, @inputs@,
                        struct @name@_prediction *out);

#ifdef __cplusplus
}
#endif

#endif
