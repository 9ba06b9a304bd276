/* A smartwatch that answers windows of its sensors, or abstains. Semihosting stands in for what a
   product would do with the answer. */
#include <stdio.h>

#include "board.h"
#include "model.h"
#include "windows.h"

int main(void)
{
    static struct model_prediction answer;

    for (unsigned i = 0; i < sizeof windows / sizeof windows[0]; ++i) {
        const uint32_t before = instructions();
        if (model_predict(windows[i].samples, &answer) != 0)
            return 1;
        const uint32_t took = instructions() - before;

        printf("%s: %s %.3f, entropy %.3f, epistemic %.3f -> %s (%lu instructions)\n",
               windows[i].name, model_class_names[answer.label],
               (double)answer.probs[answer.label], (double)answer.entropy,
               (double)answer.epistemic, answer.act ? "act" : "abstain", (unsigned long)took);
    }
    return 0;
}
