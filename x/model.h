/* Written by onesigma 0.1.0. Do not edit.

                       in  bytes
------------------  -----  -----
weights and tables  flash    952
arena                 RAM  1,292
prediction            RAM     52

The code itself comes on top of the tables. */
#ifndef MODEL_H
#define MODEL_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MODEL_ARENA_SIZE 323 /* floats */
#define MODEL_INPUT_SIZE 4 /* 4 */
#define MODEL_CLASSES 3
struct model_prediction {
    float mean[3];
    float var[3];
    float probs[3];
    float entropy;
    float aleatoric;
    float epistemic;
    int label; /* the most probable class */
};

/* Answer one input. Returns 0, or -1 if a pointer is NULL. Not re-entrant: it uses an arena of its
   own, which is left out if MODEL_NO_ARENA is defined. */
int model_predict(const float *input, struct model_prediction *out);

/* The same in the caller's memory: MODEL_ARENA_SIZE floats, free for other use between two calls.
   Re-entrant. */
int model_predict_with(float *arena, const float *input,
                        struct model_prediction *out);

#ifdef __cplusplus
}
#endif

#endif
