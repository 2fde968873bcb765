/* sharpen.c - gradient descent on entropy: queries are changed until they attend to two keys.
 *
 *     cc sharpen.c $(pkg-config --cflags --libs headlight) -lm && ./a.out
 *
 * The loss is the mean over rows of (H - ln 2)^2.  dH/dq comes from the fused backward pass, which
 * makes no attention matrix. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <headlight.h>

enum { N_HEADS = 4, N_ROWS = 64, D_HEAD = 16, N_STEPS = 60 };

typedef float rows[N_HEADS][N_ROWS][D_HEAD];

static rows  q, k, v, dq;
static float lse[N_HEADS][N_ROWS], entropy[N_HEADS][N_ROWS], slope[N_HEADS][N_ROWS];

/* Fills an array with nearly normal numbers: sums of twelve numbers between -1/2 and 1/2. */
static void fill(rows values)
{
    for (int i = 0; i < N_HEADS * N_ROWS * D_HEAD; i++) {
        float sum = 0.0f;
        for (int n = 0; n < 12; n++)
            sum += (float)rand() / (float)RAND_MAX - 0.5f;
        (&values[0][0][0])[i] = sum;
    }
}

/* Returns the loss and computes its derivative with respect to each entropy. */
static double loss_of(void)
{
    double loss = 0.0;

    for (int head = 0; head < N_HEADS; head++)
        for (int row = 0; row < N_ROWS; row++) {
            double off       = (double)entropy[head][row] - log(2.0);
            slope[head][row] = (float)(2.0 * off / (N_HEADS * N_ROWS));
            loss += off * off / (N_HEADS * N_ROWS);
        }
    return loss;
}

int main(void)
{
    hl_attention problem = {
        .n_batch    = 1,
        .n_heads    = N_HEADS,
        .n_kv_heads = N_HEADS,
        .n_queries  = N_ROWS,
        .n_keys     = N_ROWS,
        .d_head     = D_HEAD,
        .d_value    = D_HEAD,
        .q          = { .data = q },
        .k          = { .data = k },
        .v          = { .data = v },
    };
    hl_attention_result   found    = { .lse = &lse[0][0], .entropy = &entropy[0][0] };
    hl_attention_upstream upstream = {
        .grad_entropy = &slope[0][0],
        .lse          = &lse[0][0],
        .entropy      = &entropy[0][0],
    };
    hl_attention_gradient gradient = { .dq = { .data = dq } };
    hl_status             status   = HL_OK;

    srand(1);
    fill(q), fill(k), fill(v);
    for (int step = 0; status == HL_OK && step <= N_STEPS; step++) {
        status      = hl_attention_forward(&found, &problem);
        double loss = status == HL_OK ? loss_of() : NAN;
        if (status == HL_OK && step % 20 == 0)
            printf("step %2d  loss %.4f\n", step, loss);
        if (status == HL_OK)
            status = hl_attention_backward(&gradient, &problem, &upstream);
        for (int i = 0; status == HL_OK && i < N_HEADS * N_ROWS * D_HEAD; i++)
            (&q[0][0][0])[i] -= 100.0f * (&dq[0][0][0])[i];
    }
    if (status != HL_OK)
        fprintf(stderr, "%s\n", hl_error_message());
    return status == HL_OK ? 0 : 3;
}
