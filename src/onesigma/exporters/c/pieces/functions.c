/* Functions that expressions call, in pieces: each after a line "//: name", with @names@ to fill in. */
//: exp_float
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

//: erf_float
/* erf to 4e-7; a fifth of the instructions of most libraries. */
static inline float erf_float(float x)
{
    const float u = x * x;
    float p = 2.01177936e-06f;
    p = p * u + 0.000287598464f;
    p = p * u + 0.00391717615f;
    p = p * u + 0.0532066152f;
    p = p * u + 0.194032235f;
    p = p * u + 1.12837901f;
    float q = 3.78399865e-05f;
    q = q * u + 0.00119816869f;
    q = q * u + 0.0152704134f;
    q = q * u + 0.115589336f;
    q = q * u + 0.505288079f;
    q = q * u + 1.0f;
    p = x * p / q;
    p = x > 3.95f ? 1.0f : p;
    return x < -3.95f ? -1.0f : p;
}

//: clip
static inline float clip(float x, float low, float high)
{
    x = x < low ? low : x;
    return x > high ? high : x;
}

//: to_code
static inline uint8_t to_code(int32_t x)
{
    x = x < 0 ? 0 : x;
    return (uint8_t)(x > 255 ? 255 : x);
}

//: quantised
/* The nearest code, the even one of two, for a value in steps. */
static inline uint8_t quantised(float steps, int32_t zero)
{
    union { float value; int32_t bits; } sum;
    steps = steps < (float)-zero ? (float)-zero : steps;
    steps = steps > (float)(255 - zero) ? (float)(255 - zero) : steps;
    sum.value = steps + 12582912.0f; /* 1.5 * 2^23: the integer is in the last bits */
    return (uint8_t)(sum.bits - 0x4b400000 + zero);
}

//: requantised
/* sum * multiplier / 2^(32 + shift) + zero, halves rounded up: they are in high. */
static inline uint8_t requantised(int32_t sum, int32_t multiplier, int32_t high, int32_t shift)
{
    return to_code(((int32_t)(((int64_t)sum * multiplier) >> 32) + high) >> shift);
}

//: softplus
static inline float softplus(float x)
{
    return (x > 0.0f ? x : 0.0f) + log1pf(expf(-fabsf(x)));
}
