/* Written by onesigma 0.1.0. Do not edit. */
#include "model.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#ifndef MODEL_STEP
#define MODEL_STEP(number) /* for profiling: called before each step */
#endif

static const float k0[20] = {
    0.274287403f, 0.0741348267f, -0.350813806f, -0.245518804f, 0.196505725f, -0.0756540298f, -0.270102978f, -0.373881936f,
    0.474387228f, -0.107829213f, -0.164425075f, 0.0596840978f, -0.231286228f, -0.312655866f, -0.260335743f, -0.241733432f,
    0.0981884599f, -0.0975978971f, 0.0141213536f, 0.453290999f,
};
static const float k1[5] = {
    -0.358537078f, 0.0763581395f, 0.480573833f, -0.199874818f, -0.49921906f,
};
static const float k2[15] = {
    0.429908395f, 0.389656603f, 0.439952433f, 0.333303511f, 0.177378878f, 0.243031085f, 0.239747167f, -0.0184873268f,
    -0.312703013f, -0.231930673f, 0.394801319f, 0.367605329f, 0.242813572f, -0.164429501f, 0.430967778f,
};
static const float k3[3] = {
    0.226430625f, -0.109984018f, 0.0123971226f,
};
static const float k4[3] = {
    1.42857146f, 1.42857158f, 1.42857146f,
};
static const float k5[192] = {
    -0.0642578602f, 0.229682937f, -0.00720591191f, 0.356636733f, -0.928092897f, 0.960747182f, 1.46948397f, 0.712629974f,
    -1.14828968f, -0.808615208f, -0.0434317552f, 0.573284566f, -2.13003993f, 1.31136155f, 1.34572256f, 1.18377042f,
    -0.390263915f, -0.517194569f, 0.172901094f, 0.631726086f, 0.100841261f, -0.572271824f, -2.73674846f, -0.882146418f,
    -0.339254349f, 1.02340937f, 0.240550503f, 0.0604015589f, -0.249462336f, -0.78904283f, 0.84145999f, 0.140894353f,
    1.57278824f, -1.5785141f, -0.898817003f, -0.41819042f, -1.11546266f, 0.37069717f, -2.98408246f, 1.9582392f,
    -1.17967165f, 0.262589067f, 0.576593101f, 1.56664777f, -0.251240432f, -0.189420551f, -0.517982125f, 0.716639817f,
    -0.306808263f, 1.87675083f, -0.635073841f, 0.631245732f, -0.598390222f, 0.26395458f, 1.72490942f, 0.495734066f,
    -0.415690929f, -0.926966965f, -1.46397388f, 2.04960561f, -1.25076914f, 0.0270788688f, 0.460832179f, 0.794026494f,
    -0.737334311f, -1.74234676f, 0.0938481763f, 0.928947508f, 0.826345146f, -0.476300269f, -0.166087404f, -0.17752336f,
    -0.611715138f, 0.530177593f, 0.885719359f, 0.302954704f, -1.7703898f, -0.128420919f, 0.963543475f, 1.22692692f,
    0.465701997f, -1.89652622f, -0.353067636f, -1.22902155f, -0.745826125f, 0.764283061f, -0.534706056f, 1.20229673f,
    -0.0860436782f, 1.05717087f, 0.480577797f, 0.305063695f, -0.970724344f, -0.110355847f, -1.09184825f, 0.010989828f,
    0.0642578602f, -0.229682937f, 0.00720591191f, -0.356636733f, 0.928092897f, -0.960747182f, -1.46948397f, -0.712629974f,
    1.14828968f, 0.808615208f, 0.0434317552f, -0.573284566f, 2.13003993f, -1.31136155f, -1.34572256f, -1.18377042f,
    0.390263915f, 0.517194569f, -0.172901094f, -0.631726086f, -0.100841261f, 0.572271824f, 2.73674846f, 0.882146418f,
    0.339254349f, -1.02340937f, -0.240550503f, -0.0604015589f, 0.249462336f, 0.78904283f, -0.84145999f, -0.140894353f,
    -1.57278824f, 1.5785141f, 0.898817003f, 0.41819042f, 1.11546266f, -0.37069717f, 2.98408246f, -1.9582392f,
    1.17967165f, -0.262589067f, -0.576593101f, -1.56664777f, 0.251240432f, 0.189420551f, 0.517982125f, -0.716639817f,
    0.306808263f, -1.87675083f, 0.635073841f, -0.631245732f, 0.598390222f, -0.26395458f, -1.72490942f, -0.495734066f,
    0.415690929f, 0.926966965f, 1.46397388f, -2.04960561f, 1.25076914f, -0.0270788688f, -0.460832179f, -0.794026494f,
    0.737334311f, 1.74234676f, -0.0938481763f, -0.928947508f, -0.826345146f, 0.476300269f, 0.166087404f, 0.17752336f,
    0.611715138f, -0.530177593f, -0.885719359f, -0.302954704f, 1.7703898f, 0.128420919f, -0.963543475f, -1.22692692f,
    -0.465701997f, 1.89652622f, 0.353067636f, 1.22902155f, 0.745826125f, -0.764283061f, 0.534706056f, -1.20229673f,
    0.0860436782f, -1.05717087f, -0.480577797f, -0.305063695f, 0.970724344f, 0.110355847f, 1.09184825f, -0.010989828f,
};

/* e^x to a relative 2e-7, infinite above 2e38; a third of the instructions of most libraries. */
static inline float exp_float(float x)
{
    /* Adding 1.5 * 2^23 rounds to an integer n, which is then in the last bits of the sum. */
    union { float value; uint32_t bits; } sum, power;
    sum.value = x * 1.44269504f + 12582912.0f;
    const float n = sum.value - 12582912.0f;
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 0.0083124778f;
    p = p * r + 0.0418905506f;
    p = p * r + 0.166671163f;
    p = p * r + 0.499992288f;
    p = p * (r * r) + r + 1.0f;
    power.bits = (sum.bits << 23) + 0x3f800000u;
    p *= power.value;
    p = x < -87.3f ? 0.0f : p;
    return x > 88.37f ? INFINITY : p;
}

typedef float weight;

/* One value that goes through a layer: a mean, or a variance, for which weights are squared. */
struct lane {
    const float *x;
    float *y;
    const float *bias;
    const float *factor; /* of each filter: multiplies its weights, or their squares */
    int power;
};

static inline float lane_sum(const struct lane *lane, int filter, float sum)
{
    if (lane->factor)
        sum *= lane->factor[filter];
    return lane->bias ? sum + lane->bias[filter] : sum;
}

static void dense_1(const weight *w, int inputs, int outputs, int rows, const struct lane *lanes)
{
    const int blocks = outputs - outputs % 4;
    for (int row = 0; row < rows; ++row) {
        const weight *v = w;
        for (int o = 0; o < blocks; o += 4) {
            const float *x0 = lanes[0].x + row * inputs;
            float *y0 = lanes[0].y + row * outputs;
            float s00 = 0.0f, s01 = 0.0f, s02 = 0.0f, s03 = 0.0f;
            for (int i = 0; i < inputs; ++i, v += 4) {
                const float e0 = x0[i];
                const float w0 = (float)v[0];
                s00 += w0 * e0;
                const float w1 = (float)v[1];
                s01 += w1 * e0;
                const float w2 = (float)v[2];
                s02 += w2 * e0;
                const float w3 = (float)v[3];
                s03 += w3 * e0;
            }
            y0[o + 0] = lane_sum(&lanes[0], o + 0, s00);
            y0[o + 1] = lane_sum(&lanes[0], o + 1, s01);
            y0[o + 2] = lane_sum(&lanes[0], o + 2, s02);
            y0[o + 3] = lane_sum(&lanes[0], o + 3, s03);
        }
        for (int o = blocks; o < outputs; o += 1) {
            const float *x0 = lanes[0].x + row * inputs;
            float *y0 = lanes[0].y + row * outputs;
            float s00 = 0.0f;
            for (int i = 0; i < inputs; ++i, v += 1) {
                const float e0 = x0[i];
                const float w0 = (float)v[0];
                s00 += w0 * e0;
            }
            y0[o + 0] = lane_sum(&lanes[0], o + 0, s00);
        }
    }
}

static void dense_12(const weight *w, int inputs, int outputs, int rows, const struct lane *lanes)
{
    const int blocks = outputs - outputs % 4;
    for (int row = 0; row < rows; ++row) {
        const weight *v = w;
        for (int o = 0; o < blocks; o += 4) {
            const float *x0 = lanes[0].x + row * inputs;
            const float *x1 = lanes[1].x + row * inputs;
            float *y0 = lanes[0].y + row * outputs;
            float *y1 = lanes[1].y + row * outputs;
            float s00 = 0.0f, s01 = 0.0f, s02 = 0.0f, s03 = 0.0f;
            float s10 = 0.0f, s11 = 0.0f, s12 = 0.0f, s13 = 0.0f;
            for (int i = 0; i < inputs; ++i, v += 4) {
                const float e0 = x0[i];
                const float e1 = x1[i];
                const float w0 = (float)v[0];
                s00 += w0 * e0;
                s10 += (w0 * w0) * e1;
                const float w1 = (float)v[1];
                s01 += w1 * e0;
                s11 += (w1 * w1) * e1;
                const float w2 = (float)v[2];
                s02 += w2 * e0;
                s12 += (w2 * w2) * e1;
                const float w3 = (float)v[3];
                s03 += w3 * e0;
                s13 += (w3 * w3) * e1;
            }
            y0[o + 0] = lane_sum(&lanes[0], o + 0, s00);
            y0[o + 1] = lane_sum(&lanes[0], o + 1, s01);
            y0[o + 2] = lane_sum(&lanes[0], o + 2, s02);
            y0[o + 3] = lane_sum(&lanes[0], o + 3, s03);
            y1[o + 0] = lane_sum(&lanes[1], o + 0, s10);
            y1[o + 1] = lane_sum(&lanes[1], o + 1, s11);
            y1[o + 2] = lane_sum(&lanes[1], o + 2, s12);
            y1[o + 3] = lane_sum(&lanes[1], o + 3, s13);
        }
        for (int o = blocks; o < outputs; o += 1) {
            const float *x0 = lanes[0].x + row * inputs;
            const float *x1 = lanes[1].x + row * inputs;
            float *y0 = lanes[0].y + row * outputs;
            float *y1 = lanes[1].y + row * outputs;
            float s00 = 0.0f;
            float s10 = 0.0f;
            for (int i = 0; i < inputs; ++i, v += 1) {
                const float e0 = x0[i];
                const float e1 = x1[i];
                const float w0 = (float)v[0];
                s00 += w0 * e0;
                s10 += (w0 * w0) * e1;
            }
            y0[o + 0] = lane_sum(&lanes[0], o + 0, s00);
            y1[o + 0] = lane_sum(&lanes[1], o + 0, s10);
        }
    }
}

int model_predict_with(float *arena, const float *in_input,
                        struct model_prediction *out)
{
    if (arena == NULL || in_input == NULL || out == NULL)
        return -1;
    float *const b0_add_1 = arena + 0;
    float *const b1_log_softmax = arena + 0;
    float *const b2_log_softmax = arena + 192;
    float *const b3_log_softmax = arena + 256;
    float *const b4_log_softmax = arena + 256;
    float *const b5_sum_1 = arena + 192;
    float *const b6_linear = arena + 0;
    float *const b7_relu = arena + 0;
    float *const b8_mul_1 = arena + 5;
    float *const b9_linear_2 = arena + 256;
    float *const b10_sqrt = arena + 256;
    float *const b11_probs = arena + 320;
    float *const b12_mean = arena + 0;
    float *const b13_sum_2 = arena + 1;
    MODEL_STEP(0);
    { /* linear:0 */
        const struct lane lanes[1] = {
            {in_input, b6_linear, k1, NULL, 1},
        };
        dense_1(k0, 4, 5, 1, lanes);
    }
    MODEL_STEP(1);
    { /* relu:1 ... mul_1:3 */
        for (int i0 = 0; i0 < 5; ++i0) {
            const float x0 = b6_linear[i0];
            const float t1 = x0 < 0.0f ? 0.0f : x0;
            const float t2 = t1 * 0.300000012f;
            const float t3 = t2 * t1;
            b7_relu[i0] = t1;
            b8_mul_1[i0] = t3;
        }
    }
    MODEL_STEP(2);
    { /* mean, linear_2:6 */
        const struct lane lanes[2] = {
            {b7_relu, out->mean, k3, NULL, 1},
            {b8_mul_1, b9_linear_2, NULL, k4, 2},
        };
        dense_12(k2, 5, 3, 1, lanes);
    }
    MODEL_STEP(3);
    { /* sqrt:7 ... var */
        for (int i0 = 0; i0 < 3; ++i0) {
            const float x0 = b9_linear_2[i0];
            const float t1 = sqrtf(x0);
            const float t2 = fabsf(x0);
            b10_sqrt[i0] = t1;
            out->var[i0] = t2;
        }
    }
    MODEL_STEP(4);
    { /* mul_5:10 ... log_softmax:12 */
        for (int i0 = 0; i0 < 64; ++i0) {
            float s0 = -INFINITY;
            for (int i1 = 0; i1 < 3; ++i1) {
                const float x0 = b10_sqrt[i1];
                const float x1 = k5[i0 * 3 + i1];
                const float t2 = x0 * x1;
                const float x2 = out->mean[i1];
                const float t4 = x2 + t2;
                s0 = s0 < t4 ? t4 : s0;
                b0_add_1[i0 * 3 + i1] = t4;
            }
            b2_log_softmax[i0] = s0;
        }
    }
    MODEL_STEP(5);
    { /* log_softmax:12 */
        for (int i0 = 0; i0 < 64; ++i0) {
            float s0 = 0.0f;
            const float x1 = b2_log_softmax[i0];
            for (int i1 = 0; i1 < 3; ++i1) {
                const float x0 = b0_add_1[i0 * 3 + i1];
                const float t2 = x0 - x1;
                const float t3 = exp_float(t2);
                s0 = s0 + t3;
                b1_log_softmax[i0 * 3 + i1] = t2;
            }
            b3_log_softmax[i0] = s0;
        }
    }
    MODEL_STEP(6);
    { /* log_softmax:12 */
        for (int i0 = 0; i0 < 64; ++i0) {
            const float x0 = b3_log_softmax[i0];
            const float t1 = logf(x0);
            b4_log_softmax[i0] = t1;
        }
    }
    MODEL_STEP(7);
    { /* log_softmax:12 ... probs */
        for (int i = 0; i < 3; ++i)
            b11_probs[i] = 0.0f;
        for (int i0 = 0; i0 < 64; ++i0) {
            float s0 = 0.0f;
            const float x1 = b4_log_softmax[i0];
            for (int i1 = 0; i1 < 3; ++i1) {
                float s1 = b11_probs[i1];
                const float x0 = b1_log_softmax[i0 * 3 + i1];
                const float t2 = x0 - x1;
                const float t3 = exp_float(t2);
                const float t4 = t3 * t2;
                s0 = s0 + t4;
                s1 = s1 + t3;
                b11_probs[i1] = s1;
            }
            b5_sum_1[i0] = s0;
        }
    }
    MODEL_STEP(8);
    { /* mean:16 */
        float s0 = 0.0f;
        for (int i0 = 0; i0 < 64; ++i0) {
            const float x0 = b5_sum_1[i0];
            s0 = s0 + x0;
        }
        b12_mean[0] = s0;
    }
    MODEL_STEP(9);
    { /* probs ... sum_2:22 */
        float s0 = 0.0f;
        for (int i0 = 0; i0 < 3; ++i0) {
            const float x0 = b11_probs[i0];
            const float t1 = x0 * 0.015625f;
            const float t2 = t1 < 1.17549435e-38f ? 1.17549435e-38f : t1;
            const float t3 = logf(t2);
            const float t4 = t1 * t3;
            s0 = s0 + t4;
            out->probs[i0] = t1;
        }
        b13_sum_2[0] = s0;
    }
    MODEL_STEP(10);
    { /* mean:16 ... epistemic */
        const float x0 = b12_mean[0];
        const float t1 = x0 * 0.015625f;
        const float t2 = -t1;
        const float x1 = b13_sum_2[0];
        const float t4 = -x1;
        const float t5 = t4 - t2;
        const float t6 = t5 < 0.0f ? 0.0f : t5;
        (&out->aleatoric)[0] = t2;
        (&out->entropy)[0] = t4;
        (&out->epistemic)[0] = t6;
    }
    out->label = 0;
    for (int i = 1; i < 3; ++i)
        out->label = out->probs[i] > out->probs[out->label] ? i : out->label;
    return 0;
}

#ifndef MODEL_NO_ARENA
int model_predict(const float *in_input, struct model_prediction *out)
{
    static float arena[MODEL_ARENA_SIZE];
    return model_predict_with(arena, in_input, out);
}
#endif
