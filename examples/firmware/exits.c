/* A smartwatch that runs on harvested power: it answers windows as early as it can, and goes on
   after power cuts. Here the power fails in the middle of every segment, once. */
#include <stdio.h>
#include <string.h>

#include "board.h"
#include "model.h"
#include "windows.h"

static struct model_state state; /* on a device: in memory that outlives a power cut */

/* Half of what the segment wrote is there; the slot is not valid, because that is written last. */
static void cut_power(const struct model_state *before)
{
    for (int i = 0; i < 2; ++i)
        if (memcmp(&state.slots[i], &before->slots[i], sizeof state.slots[i]) != 0) {
            state.slots[i].turn = 0;
            memset(state.slots[i].values, 0, sizeof state.slots[i].values / 2);
        }
}

static int answer(const float *samples, struct model_prediction *out, int cuts)
{
    static struct model_state before;
    int found = model_begin(&state, samples);

    while (found == MODEL_GOES_ON) {
        if (cuts) {
            before = state;
            model_continue(&state, out);
            cut_power(&before);
        }
        found = model_continue(&state, out);
    }
    return found;
}

int main(void)
{
    static struct model_prediction steady, interrupted;

    for (unsigned i = 0; i < sizeof windows / sizeof windows[0]; ++i) {
        const uint32_t before = instructions();
        if (answer(windows[i].samples, &steady, 0) != MODEL_ANSWERED)
            return 1;
        const uint32_t took = instructions() - before;
        if (answer(windows[i].samples, &interrupted, 1) != MODEL_ANSWERED)
            return 2;
        printf("%s: %s %.3f at exit %d of %d (%lu instructions), after power cuts %s\n",
               windows[i].name, model_class_names[steady.label],
               (double)steady.probs[steady.label], steady.exit, MODEL_SEGMENTS - 1,
               (unsigned long)took,
               memcmp(&steady, &interrupted, sizeof steady) == 0 ? "the same" : "ANOTHER");
    }
    return 0;
}
