/* fuzz_verify_case.c - arbitrary bytes as a golden attention case.
 *
 * They are refused with a message, or accepted; then the operator runs forward on them, on every
 * back end.  Shapes, strides, lengths and numbers are those of the file, including NaN and
 * infinities: no memory outside the arrays may be read or written, and no call may hang. */
#include "fuzz.h"
#include "measure/verify_case.h"

/* Enough for all paths of the kernels, and small enough for many runs per second. */
enum { MAX_PRODUCTS = 1 << 16 };

static bool is_small(const hl_attention *p)
{
    double products = (double)p->n_batch * (double)p->n_heads * (double)p->n_queries *
                      (double)p->n_keys * (double)(p->d_head + p->d_value);

    return products <= MAX_PRODUCTS && p->n_batch * p->n_heads * p->n_queries < 1000;
}

static void run(const hl_attention *problem)
{
    size_t              n_rows = (size_t)(problem->n_batch * problem->n_heads * problem->n_queries);
    float              *out    = malloc((n_rows * (size_t)problem->d_value + 1) * sizeof *out);
    float              *entropy = malloc((n_rows + 1) * sizeof *entropy);
    int64_t            *argmax  = malloc((n_rows + 1) * sizeof *argmax);
    hl_attention_result result  = { .out = { .data = out }, .entropy = entropy, .argmax = argmax };

    for (const char *const *name = hl_backend_names(); *name != NULL; name++) {
        hl_backend_select(*name);
        if (hl_attention_forward(&result, problem) != HL_OK)
            break;
        for (size_t i = 0; i < n_rows; i++)
            PROMISE(argmax[i] >= -1 && argmax[i] < problem->n_keys);
    }
    free(argmax);
    free(entropy);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    hl_verify_case *golden = NULL;

    if (hl_verify_case_parse(&golden, bytes, n_bytes, "fuzz") != HL_OK)
        return refused(golden);
    hl_attention problem = golden->problem;
    problem.n_threads    = 1;
    if (is_small(&problem))
        run(&problem);
    hl_verify_case_close(golden);
    return 0;
}
