/* Written by onesigma @version@. Do not edit. */
#include "@name@.h"

#include <stddef.h>
#include <string.h>

typedef char answer_fits[sizeof(struct @name@_prediction) <= @floats@ * sizeof(float) ? 1 : -1];

/* FNV-1a over the words of a slot. */
static uint32_t check_of(const struct @name@_slot *slot, uint32_t turn)
{
    uint32_t sum = (2166136261u ^ turn) * 16777619u;
    sum = (sum ^ slot->place) * 16777619u;
    for (int i = 0; i < @floats@; ++i) {
        uint32_t word;
        memcpy(&word, &slot->values[i], sizeof word);
        sum = (sum ^ word) * 16777619u;
    }
    return sum;
}

static bool is_whole(const struct @name@_slot *slot)
{
    return slot->turn != 0 && slot->place <= @NAME@_SEGMENTS
           && slot->check == check_of(slot, slot->turn);
}

static void commit(struct @name@_slot *slot, uint32_t place, uint32_t turn)
{
    slot->place = place;
    slot->check = check_of(slot, turn);
    slot->turn = turn;
}

int @name@_begin(struct @name@_state *state, @given@)
{
    if (state == NULL || @checks@)
        return @NAME@_NULL_POINTER;
    state->slots[0].turn = state->slots[1].turn = 0;
    memset(state->slots[0].values, 0, sizeof state->slots[0].values);
    @begins@
    commit(&state->slots[0], 0, 1);
    return @NAME@_GOES_ON;
}

int @name@_continue(struct @name@_state *state, struct @name@_prediction *out)
{
    static float arena[@arena@];
    static union {
        @structs@
    } said;
    struct @name@_prediction answer;
    bool answered = true;
    int error = 0;

    if (state == NULL || out == NULL)
        return @NAME@_NULL_POINTER;
    const bool first = is_whole(&state->slots[0]), second = is_whole(&state->slots[1]);
    if (!first && !second)
        return @NAME@_NO_STATE;
    const int newer = second && (!first || state->slots[1].turn > state->slots[0].turn);
    const struct @name@_slot *const from = &state->slots[newer];
    struct @name@_slot *const to = &state->slots[!newer];
    const float *const in = from->values;
    if (from->place == @NAME@_SEGMENTS) {
        memcpy(out, in, sizeof *out);
        return @NAME@_ANSWERED;
    }
    to->turn = 0;
    memset(to->values, 0, sizeof to->values);
    memset(&answer, 0, sizeof answer);
    switch (from->place) {
    @cases@
    }
    if (error != 0)
        return error;
    if (answered)
        memcpy(to->values, &answer, sizeof answer);
    commit(to, answered ? @NAME@_SEGMENTS : from->place + 1, from->turn + 1);
    if (answered)
        *out = answer;
    return answered ? @NAME@_ANSWERED : @NAME@_GOES_ON;
}
