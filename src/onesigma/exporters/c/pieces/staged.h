/* Written by onesigma @version@. Do not edit. */
#ifndef @NAME@_H
#define @NAME@_H

#include <stdbool.h>
#include <stdint.h>

@includes@

#ifdef __cplusplus
extern "C" {
#endif

#define @NAME@_INPUT_SIZE @input@
#define @NAME@_SEGMENTS @count@
#define @NAME@_ANSWERED 0
#define @NAME@_GOES_ON 1
#define @NAME@_NULL_POINTER (-1)
#define @NAME@_NOT_FINITE (-2) /* an input holds NaN or infinity */
#define @NAME@_NO_STATE (-3) /* nothing was begun, or the power was cut while it was */
@class_names@

struct @name@_prediction {
    @fields@
    int label; /* the most probable class */
    int exit; /* which segment answered: 0 to @last@, the whole network */
};

/* Put it where it outlives a power cut. Its content is none of the caller's business. */
struct @name@_state {
    struct @name@_slot {
        volatile uint32_t turn; /* 0: not valid. Written last */
        uint32_t check, place;
        float values[@floats@];
    } slots[2];
};

/* Begin with an input; whatever the state held is lost. Returns @NAME@_GOES_ON or an error. */
int @name@_begin(struct @name@_state *state, @inputs@);

/* Run the next segment. Returns @NAME@_ANSWERED and fills *out, again and again once it has
   answered; or @NAME@_GOES_ON, or an error. Not re-entrant: it works in memory of its own. */
int @name@_continue(struct @name@_state *state, struct @name@_prediction *out);

#ifdef __cplusplus
}
#endif

#endif
