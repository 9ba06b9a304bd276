/* Recurrent layers, in pieces: each after a line "//: name", with @names@ to fill in. */
//: recurrent_types
/* A recurrent layer in one direction. */
struct recurrent {
    const float *w, *r;     /* weights of the input and of the state, for all gates */
    struct lane in, back;    /* input and state, and where their gates go */
    float *h, *c, *y;        /* state and cell, before and after all steps; all states, or NULL */
    int inputs, units, rows; /* of one step */
    int steps, x_step, y_step;
};

static inline float sigmoid(float x)
{
    return 1.0f / (1.0f + exp_float(-x));
}

//: recurrent
static void @name@(const struct recurrent *g)
{
    struct lane in = g->in;
    const int n = g->units, gates = @gates@ * n;
    for (int t = 0; t < g->steps; ++t) {
        in.x = g->in.x + t * g->x_step;
        @dense@(g->w, g->inputs, gates, g->rows, &in);
        @dense@(g->r, n, gates, g->rows, &g->back);
        for (int row = 0; row < g->rows; ++row) {
            const float *a = in.y + row * gates, *b = g->back.y + row * gates;
            @states@
            for (int k = 0; k < n; ++k) {
                @body@
            }
        }
        if (g->y)
            for (int k = 0; k < g->rows * n; ++k)
                g->y[t * g->y_step + k] = g->h[k];
    }
}

//: lstm
const float add = sigmoid(a[k] + b[k]);
const float show = sigmoid(a[n + k] + b[n + k]);
const float kept = sigmoid(a[2 * n + k] + b[2 * n + k]);
c[k] = kept * c[k] + add * tanhf(a[3 * n + k] + b[3 * n + k]);
h[k] = show * tanhf(c[k]);

//: gru
const float kept = sigmoid(a[k] + b[k]);
const float reset = sigmoid(a[n + k] + b[n + k]);
const float next = tanhf(a[2 * n + k] + reset * b[2 * n + k]);
h[k] = next + kept * (h[k] - next);

//: rnn_tanh
h[k] = tanhf(a[k] + b[k]);

//: rnn_relu
const float sum = a[k] + b[k];
h[k] = sum < 0.0f ? 0.0f : sum;
