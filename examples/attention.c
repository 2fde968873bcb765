/* attention.c - one query, eight keys, three heads: how sharp is the attention of each head?
 *
 *     cc attention.c $(pkg-config --cflags --libs headlight) -lm && ./a.out
 *
 * The first head gives all keys the same score, the second prefers one key, the third attends to
 * that key only.  exp(entropy) is the effective number of keys. */
#include <headlight.h>
#include <math.h>
#include <stdio.h>

enum { N_HEADS = 3, N_KEYS = 8, D_HEAD = 4 };

int main(void)
{
    float   q[N_HEADS][D_HEAD] = { { 0.0f }, { 4.0f }, { 60.0f } }; /* (n_heads, 1 query, d_head) */
    float   k[N_KEYS][D_HEAD]  = { { 0.0f } }; /* (1 kv head, n_keys, d_head) */
    float   v[N_KEYS][D_HEAD];                 /* (1 kv head, n_keys, d_head) */
    float   out[N_HEADS][D_HEAD], entropy[N_HEADS], peak[N_HEADS];
    int64_t argmax[N_HEADS];

    k[5][0] = 1.0f; /* the preferred key is number 5 */
    for (int key = 0; key < N_KEYS; key++)
        for (int d = 0; d < D_HEAD; d++)
            v[key][d] = (float)key;

    hl_attention problem = {
        .n_batch    = 1,
        .n_heads    = N_HEADS,
        .n_kv_heads = 1,
        .n_queries  = 1,
        .n_keys     = N_KEYS,
        .d_head     = D_HEAD,
        .d_value    = D_HEAD,
        .q          = { .data = q },
        .k          = { .data = k },
        .v          = { .data = v },
    };
    hl_attention_result result = {
        .out     = { .data = out },
        .entropy = entropy,
        .peak    = peak,
        .argmax  = argmax,
    };
    if (hl_attention_forward(&result, &problem) != HL_OK) {
        fprintf(stderr, "%s\n", hl_error_message());
        return 1;
    }

    printf("head  entropy  keys looked at  most on      output\n");
    for (int head = 0; head < N_HEADS; head++)
        printf("H%d    %.3f    %.2f            %.3f (key %lld)  %.3f\n", head,
               (double)entropy[head], exp((double)entropy[head]), (double)peak[head],
               (long long)argmax[head], (double)out[head][0]);
    return 0;
}
