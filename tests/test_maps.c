/* test_maps.c - attention maps of other programs: their rows against the definition, against golden
 * statistics, and against each other. */
#include "support.h"

#include <math.h>

#include "base/dtype.h"
#include "base/hash.h"
#include "base/json.h"
#include "formats/safetensors.h"
#include "measure/maps.h"

static const char *folder;

static const char *here(const char *name)
{
    return in_folder(folder, name);
}

static int clear_folder(void **state)
{
    (void)state;
    visit_folder(folder, 1);
    return 0;
}

static double random_number(uint64_t *state) /* returns a number in [0, 1) */
{
    *state = hl_hash_pair(*state, 1);
    return (double)(*state >> 11) * 0x1p-53;
}

/* --------------------------------------------------------------------- writing */

static void write_tensors(const char *name, const hl_tensor *tensors, size_t n)
{
    hl_safetensors_writer *writer = NULL;

    assert_ok(hl_safetensors_writer_new(&writer));
    for (size_t i = 0; i < n; i++) {
        hl_tensor tensor = tensors[i];
        assert_ok(hl_tensor_bytes(&tensor.n_bytes, &tensor));
        hl_safetensors_add(writer, &tensor);
    }
    assert_ok(hl_safetensors_write(writer, here(name)));
    hl_safetensors_writer_free(writer);
}

/* --------------------------------------------------------------- what a tap gets */

enum { MAX_ROWS = 40000, MAX_PATTERN = 40000 };

/* All rows that the tap received, layer by layer. */
typedef struct heard {
    int64_t n_layers, n_batch, n_heads, n_rows, n_patterns, n_keys, start, n;
    float   lse[MAX_ROWS], entropy[MAX_ROWS], renyi2[MAX_ROWS], varentropy[MAX_ROWS];
    float   nosink[MAX_ROWS], peak[MAX_ROWS], self[MAX_ROWS], previous[MAX_ROWS];
    float   first[MAX_ROWS];
    int64_t argmax[MAX_ROWS];
    float   pattern[MAX_PATTERN];
    int64_t n_pattern;
} heard;

static heard result, other;

static hl_status hear(void *context, const hl_layer_rows *rows)
{
    heard  *out = context;
    int64_t n   = rows->n_batch * rows->n_heads * rows->n_rows;
    size_t  b   = (size_t)n * sizeof(float);

    assert_true(out->n + n <= MAX_ROWS);
    assert_int_equal(rows->layer, out->n_layers);
    assert_null(rows->rows->out.data);
    memcpy(out->lse + out->n, rows->rows->lse, b);
    memcpy(out->entropy + out->n, rows->rows->entropy, b);
    memcpy(out->renyi2 + out->n, rows->rows->renyi2, b);
    memcpy(out->varentropy + out->n, rows->rows->varentropy, b);
    memcpy(out->nosink + out->n, rows->rows->entropy_nosink, b);
    memcpy(out->peak + out->n, rows->rows->peak, b);
    memcpy(out->self + out->n, rows->rows->self, b);
    memcpy(out->previous + out->n, rows->rows->previous, b);
    memcpy(out->first + out->n, rows->rows->first, b);
    memcpy(out->argmax + out->n, rows->rows->argmax, (size_t)n * sizeof(int64_t));
    out->n += n;
    if (rows->pattern != NULL) {
        int64_t count = rows->n_batch * rows->n_heads * rows->n_patterns * rows->n_keys;
        assert_true(out->n_pattern + count <= MAX_PATTERN);
        memcpy(out->pattern + out->n_pattern, rows->pattern, (size_t)count * sizeof(float));
        out->n_pattern += count;
    }
    out->n_layers++;
    out->n_batch    = rows->n_batch;
    out->n_heads    = rows->n_heads;
    out->n_rows     = rows->n_rows;
    out->n_patterns = rows->n_patterns;
    out->n_keys     = rows->n_keys;
    out->start      = rows->start[0];
    return HL_OK;
}

static void feed_all(heard *out, const char *name, const hl_maps_options *options)
{
    hl_maps *maps = NULL;
    hl_tap   tap  = { .context = out, .layer = hear };

    memset(out, 0, sizeof *out);
    assert_ok(hl_maps_open(&maps, here(name), options));
    assert_ok(hl_maps_feed(maps, 0, hl_maps_get_info(maps)->n_batch, &tap));
    hl_maps_close(maps);
}

static void refuse(const char *name, const hl_maps_options *options, hl_status status,
                   const char *fragment)
{
    hl_maps *maps = (hl_maps *)&maps;

    assert_fails(status, fragment, hl_maps_open(&maps, here(name), options));
    assert_null(maps);
}

static void assert_close(double seen, double wanted, double tolerance)
{
    if (!(fabs(seen - wanted) <= tolerance))
        fail_msg("%.9g, wanted %.9g", seen, wanted);
}

/* ------------------------------------------------------------- the definition */

/* -sum p log p, and the rest straight from metrics: probabilities p that sum to 1. */
static void check_row(const heard *seen, int64_t at, const double *p, int64_t n_keys,
                      int64_t position, double tolerance)
{
    double  entropy = 0, square = 0, collision = 0, rest = 0, nosink = 0;
    int64_t top = 0;

    for (int64_t j = 0; j < n_keys; j++) {
        entropy -= p[j] > 0 ? p[j] * log(p[j]) : 0;
        square += p[j] > 0 ? p[j] * log(p[j]) * log(p[j]) : 0;
        collision += p[j] * p[j];
        rest += j > 0 ? p[j] : 0;
        top = p[j] > p[top] ? j : top;
    }
    for (int64_t j = 1; j < n_keys; j++)
        nosink -= p[j] > 0 ? p[j] / rest * log(p[j] / rest) : 0;
    assert_close(seen->entropy[at], entropy, tolerance);
    assert_close(seen->varentropy[at], square - entropy * entropy, 20 * tolerance);
    assert_close(seen->renyi2[at], -log(collision), tolerance);
    assert_close(seen->nosink[at], nosink, tolerance);
    assert_close(seen->peak[at], p[top], tolerance);
    assert_int_equal(seen->argmax[at], top);
    assert_close(seen->first[at], p[0], tolerance);
    assert_close(seen->self[at], position < n_keys ? p[position] : 0, tolerance);
    assert_close(seen->previous[at], position > 0 ? p[position - 1] : 0, tolerance);
}

/* Makes a softmax over n_seen keys of numbers of this size, as scores and probabilities. */
static void make_row(double *p, double *scores, int64_t n_seen, int64_t n_keys, double size,
                     uint64_t *state)
{
    double top = -INFINITY, sum = 0;

    for (int64_t j = 0; j < n_keys; j++) {
        scores[j] = j < n_seen ? size * (2 * random_number(state) - 1) : -INFINITY;
        top       = fmax(top, scores[j]);
    }
    for (int64_t j = 0; j < n_keys; j++)
        sum += exp(scores[j] - top);
    for (int64_t j = 0; j < n_keys; j++)
        p[j] = exp(scores[j] - top) / sum;
}

static void random_maps_agree_with_the_definition(void **state)
{
    (void)state;
    enum { L = 2, B = 3, H = 4, S = 17, N = L * B * H * S };
    static double p[N * S], scores[N * S];
    uint64_t      seed = 1;

    for (int causal = 0; causal < 2; causal++) {
        for (int64_t r = 0; r < N; r++)
            make_row(p + r * S, scores + r * S, causal ? r % S + 1 : S, S, r % 3 * 4.0, &seed);
        write_npy(here("p.npy"), "<f8", "(2, 3, 4, 17, 17)", p, sizeof p);
        write_npy(here("s.npy"), "<f8", "(2, 3, 4, 17, 17)", scores, sizeof scores);
        feed_all(&result, "p.npy", NULL);
        feed_all(&other, "s.npy", &(hl_maps_options){ .scores = true, .n_threads = 1 });
        assert_int_equal(result.n, N);
        assert_int_equal(result.n_layers, L);
        for (int64_t r = 0; r < N; r++) {
            check_row(&result, r, p + r * S, S, r % S, 1e-6);
            check_row(&other, r, p + r * S, S, r % S, 1e-6);
            assert_true(result.lse[r] == 0.0f);
            assert_close(other.lse[r], log(exp(scores[r * S]) / p[r * S]), 1e-5);
        }
    }
}

/* In 16 bits, rows do not sum to 1 exactly, but no entropy may exceed log n. */
static void short_types_are_divided_by_their_sum(void **state)
{
    (void)state;
    enum { S = 100 };
    static double   p[S * S], scores[S];
    static uint16_t bits[S * S];
    uint64_t        seed = 2;

    for (int64_t r = 0; r < S; r++)
        make_row(p + r * S, scores, S, S, r < 50 ? 0.0 : 3.0, &seed);
    for (int64_t i = 0; i < S * S; i++)
        bits[i] = hl_f32_to_bf16((float)p[i]);
    hl_tensor tensor = { "attention", HL_DTYPE_BF16, 3, { 1, S, S }, bits, 0 };
    write_tensors("b.safetensors", &tensor, 1);
    feed_all(&result, "b.safetensors", NULL);
    for (int64_t r = 0; r < S; r++) {
        double sum = 0;
        for (int64_t j = 0; j < S; j++)
            sum += p[r * S + j] = hl_bf16_to_f32(bits[r * S + j]);
        for (int64_t j = 0; j < S; j++)
            p[r * S + j] /= sum;
        check_row(&result, r, p + r * S, S, r, 1e-6);
        assert_true(result.entropy[r] <= logf(S) + 1e-6f);
    }
}

/* ------------------------------------------------------------------ golden files */

/* The first layer's maps in a golden file, compared with its statistics, which PyTorch computed. */
static void golden_patterns_have_golden_statistics(void **state)
{
    (void)state;
    static const char *const names[] = { "gpt_neox", "llama3", "phi3" };

    for (size_t i = 0; i < 3; i++) {
        char            path[256];
        hl_safetensors *golden = NULL;
        hl_maps        *maps   = NULL;
        hl_tap          tap    = { .context = &result, .layer = hear };

        snprintf(path, sizeof path, "tests/data/families/%s/expected.safetensors", names[i]);
        memset(&result, 0, sizeof result);
        assert_ok(hl_safetensors_open(&golden, path));
        assert_ok(hl_maps_open(&maps, path, NULL)); /* finds `pattern0` by itself */
        assert_true(hl_maps_get_info(maps)->is_causal);
        assert_int_equal(hl_maps_get_info(maps)->n_layers, 1);
        assert_ok(hl_maps_feed(maps, 0, 1, &tap));
        /* As PyTorch's golden files name them. */
        static const char *const statistics[] = { "entropy", "renyi2", "peak", "diagonal",
                                                  "first" };
        const float             *seen[] = { result.entropy, result.renyi2, result.peak, result.self,
                                            result.first };
        for (size_t k = 0; k < 5; k++) { /* (L,B,H,S): the first (H,S) is layer 0, sequence 0 */
            const hl_tensor *tensor = hl_safetensors_find(golden, statistics[k]);
            assert_non_null(tensor);
            assert_int_equal(tensor->shape[2] * tensor->shape[3], result.n);
            for (int64_t r = 0; r < result.n; r++) {
                double wanted = 0.0;
                assert_int_equal(tensor->dtype, HL_DTYPE_F64);
                memcpy(&wanted, (const char *)tensor->data + r * 8, sizeof wanted);
                assert_close(seen[k][r], wanted, 1e-6);
            }
        }
        hl_maps_close(maps);
        hl_safetensors_close(golden);
    }
}

/* Copies a head's matrix from the JSON of the GPT-2 activations. */
static void copy_matrix(float *out, const json_t *outputs, int layer, int head, const char *kind,
                        size_t n)
{
    char name[64];

    snprintf(name, sizeof name, "block_%d_attn_head_%d_%s", layer, head, kind);
    const json_t *rows = json_object_get(json_object_get(outputs, name), "data");
    assert_int_equal(json_array_size(rows), n);
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < n; j++) {
            const json_t *value = json_array_get(json_array_get(rows, i), j);
            out[i * n + j] = json_is_number(value) ? (float)json_number_value(value) : -INFINITY;
        }
    }
}

/* The real GPT-2's maps: probabilities agree with the masked scores that they were computed
 * from. */
static void maps_of_gpt2(void **state)
{
    (void)state;
    const char *path = in_shared("models/gpt2-124m-reference-activations/ex0.json");
    size_t      n_bytes;

    if (access(path, R_OK) != 0)
        skip();
    char         *text    = read_file(path, &n_bytes);
    json_t       *value   = json_loadb(text, n_bytes, 0, NULL);
    const json_t *outputs = json_object_get(value, "outputs");
    size_t        n       = json_array_size(json_object_get(value, "tokenIds"));
    float        *p       = calloc(12 * 12 * n * n, sizeof *p);
    float        *scores  = calloc(12 * 12 * n * n, sizeof *scores);
    char          shape[64];

    for (int layer = 0; layer < 12; layer++) {
        for (int head = 0; head < 12; head++) {
            size_t at = (size_t)(layer * 12 + head) * n * n;
            copy_matrix(p + at, outputs, layer, head, "attn_softmax", n);
            copy_matrix(scores + at, outputs, layer, head, "attn_scaled", n);
            for (size_t i = 0; i < n; i++) {
                for (size_t j = i + 1; j < n; j++)
                    scores[at + i * n + j] = -INFINITY;
            }
        }
    }
    snprintf(shape, sizeof shape, "(12, 12, %zu, %zu)", n, n);
    write_npy(here("p.npy"), "<f4", shape, p, 144 * n * n * sizeof *p);
    write_npy(here("s.npy"), "<f4", shape, scores, 144 * n * n * sizeof *scores);
    feed_all(&result, "p.npy", &(hl_maps_options){ .mask = HL_MAPS_MASK_CAUSAL });
    feed_all(&other, "s.npy", &(hl_maps_options){ .scores = true, .mask = HL_MAPS_MASK_CAUSAL });
    assert_int_equal(result.n, 144 * n);
    for (int64_t r = 0; r < result.n; r++) {
        assert_close(result.entropy[r], other.entropy[r], 1e-4);
        assert_close(result.peak[r], other.peak[r], 1e-5);
        assert_close(result.first[r], other.first[r], 1e-5);
    }
    free(p);
    free(scores);
    json_decref(value);
    free(text);
}

/* -------------------------------------------------------------------- layouts */

enum { S3 = 3 };
/* Makes a causal map of three positions, different for each number. */
static void small_map(float out[S3 * S3], int number)
{
    float a = 0.1f + 0.05f * (float)number;

    memcpy(out, (float[]){ 1, 0, 0, a, 1 - a, 0, a, a, 1 - 2 * a }, S3 * S3 * sizeof *out);
}

static void every_shape_is_understood(void **state)
{
    (void)state;
    static const struct {
        int     n_dims;
        int64_t shape[5];
        int64_t n_layers, n_batch, n_heads;
    } cases[] = {
        { 3, { 4, 3, 3 }, 1, 1, 4 },
        { 4, { 2, 2, 3, 3 }, 2, 1, 2 },
        { 5, { 2, 1, 2, 3, 3 }, 2, 1, 2 },
        { 5, { 1, 2, 2, 3, 3 }, 1, 2, 2 },
    };
    float data[4][S3 * S3];

    for (int i = 0; i < 4; i++)
        small_map(data[i], i);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hl_tensor tensor = { "x", HL_DTYPE_F32, cases[i].n_dims, { 0 }, data, 0 };
        hl_maps  *maps   = NULL;
        memcpy(tensor.shape, cases[i].shape, sizeof cases[i].shape);
        write_tensors("a.safetensors", &tensor, 1); /* a single tensor may have any name */
        assert_ok(hl_maps_open(&maps, here("a.safetensors"), NULL));
        const hl_maps_info *info = hl_maps_get_info(maps);
        assert_int_equal(info->n_layers, cases[i].n_layers);
        assert_int_equal(info->n_batch, cases[i].n_batch);
        assert_int_equal(info->n_heads, cases[i].n_heads);
        assert_true(info->is_causal);
        hl_maps_close(maps);
        feed_all(&result, "a.safetensors", NULL);
        for (int r = 0; r < 12; r++)
            assert_close(result.first[r], data[r / 3][r % 3 * 3], 1e-6);
    }
}

static void a_tensor_for_each_layer(void **state)
{
    (void)state;
    float     data[12][S3 * S3];
    char      names[12][64];
    hl_tensor tensors[13];

    for (int i = 0; i < 12; i++) { /* 10 comes after 9, not after 1 */
        small_map(data[i], i / 2);
        snprintf(names[i], sizeof names[i], "blocks.%d.attn.hook_pattern", i);
        tensors[i] = (hl_tensor){ names[i], HL_DTYPE_F32, 4, { 1, 1, 3, 3 }, data[i], 0 };
    }
    tensors[12] = (hl_tensor){
        "blocks.0.attn.hook_attn_scores", HL_DTYPE_F32, 4, { 1, 1, 3, 3 }, data[0], 0
    };
    write_tensors("a.safetensors", tensors, 13);
    feed_all(&result, "a.safetensors", NULL);
    assert_int_equal(result.n_layers, 12);
    for (int i = 0; i < 12; i++)
        assert_close(result.first[3 * i + 1], data[i][3], 1e-6);
    feed_all(&result, "a.safetensors", &(hl_maps_options){ .scores = true });
    assert_int_equal(result.n_layers, 1); /* only one layer has scores */

    tensors[3].name = "blocks.13.attn.hook_pattern";
    write_tensors("a.safetensors", tensors, 12);
    refuse("a.safetensors", NULL, HL_BAD_INPUT,
           "'blocks.4.attn.hook_pattern' where layer 3 should be");
    tensors[3] = (hl_tensor){ names[3], HL_DTYPE_F32, 4, { 1, 1, 1, 9 }, data[3], 0 };
    write_tensors("a.safetensors", tensors, 12);
    refuse("a.safetensors", NULL, HL_BAD_INPUT,
           "'blocks.3.attn.hook_pattern' of shape [1,1,1,9], wanted the layers to differ in heads");
    tensors[3] = (hl_tensor){ "layers.3.attn", HL_DTYPE_F32, 3, { 1, 3, 3 }, data[3], 0 };
    write_tensors("a.safetensors", tensors, 12);
    refuse("a.safetensors", NULL, HL_BAD_INPUT, "could be the maps");
}

static void padding_is_left_out(void **state)
{
    (void)state;
    float     data[2][S3 * S3];
    int64_t   lengths[2] = { 3, 1 };
    hl_tensor tensors[]  = { { "attn", HL_DTYPE_F32, 5, { 1, 2, 1, 3, 3 }, data, 0 },
                             { "lengths", HL_DTYPE_I64, 1, { 2 }, lengths, 0 } };
    hl_maps  *maps       = NULL;

    small_map(data[0], 1);
    for (int i = 0; i < 9; i++)
        data[1][i] = i == 0 ? 1.0f : 55.0f; /* values of padding do not matter */
    write_tensors("a.safetensors", tensors, 2);
    assert_ok(hl_maps_open(&maps, here("a.safetensors"), NULL));
    assert_int_equal(hl_maps_length(maps, 0), 3);
    assert_int_equal(hl_maps_length(maps, 1), 1);
    hl_maps_close(maps);
    feed_all(&result, "a.safetensors", NULL);
    assert_true(result.peak[3] == 1.0f && result.peak[4] == 0.0f && result.entropy[5] == 0.0f);
    lengths[1] = 4;
    write_tensors("a.safetensors", tensors, 2);
    refuse("a.safetensors", NULL, HL_BAD_INPUT, "length 4 of sequence 1, wanted 0 to 3");
    tensors[1].shape[0] = 1;
    write_tensors("a.safetensors", tensors, 2);
    refuse("a.safetensors", NULL, HL_BAD_INPUT, "one integer a sequence");
}

static void whole_rows_at_chosen_positions(void **state)
{
    (void)state;
    float         data[2][S3 * S3];
    const int64_t positions[] = { 0, 2, 7 };
    hl_tensor     tensor      = { "attn", HL_DTYPE_F32, 3, { 2, 3, 3 }, data, 0 };
    hl_maps      *maps        = NULL;
    hl_tap        tap         = { .context             = &result,
                                  .layer               = hear,
                                  .wants               = HL_WANT_PATTERN,
                                  .pattern_positions   = positions,
                                  .n_pattern_positions = 3 };

    small_map(data[0], 1);
    small_map(data[1], 2);
    write_tensors("a.safetensors", &tensor, 1);
    memset(&result, 0, sizeof result);
    assert_ok(hl_maps_open(&maps, here("a.safetensors"), NULL));
    assert_ok(hl_maps_feed(maps, 0, 1, &tap));
    assert_int_equal(result.n_patterns, 2); /* there is no position 7 */
    assert_int_equal(result.n_pattern, 12);
    for (int head = 0; head < 2; head++) {
        for (int key = 0; key < 3; key++) {
            assert_close(result.pattern[head * 6 + key], data[head][key], 1e-6);
            assert_close(result.pattern[head * 6 + 3 + key], data[head][6 + key], 1e-6);
        }
    }
    assert_fails(HL_BAD_ARGUMENT, "sequences 0 to 1 of 1", hl_maps_feed(maps, 0, 2, &tap));
    assert_fails(HL_BAD_ARGUMENT, "no function for layers", hl_maps_feed(maps, 0, 1, NULL));
    hl_maps_close(maps);
    hl_maps_close(NULL);
}

/* Fewer queries than keys are the last positions. */
static void queries_at_the_end(void **state)
{
    (void)state;
    static const float data[] = { 0.5f, 0.25f, 0.25f, 0, 0.1f, 0.2f, 0.3f, 0.4f };
    hl_maps           *maps   = NULL;

    write_npy(here("a.npy"), "<f4", "(1, 2, 4)", data, sizeof data);
    assert_ok(hl_maps_open(&maps, here("a.npy"), NULL));
    assert_true(hl_maps_get_info(maps)->is_causal);
    hl_maps_close(maps);
    feed_all(&result, "a.npy", NULL);
    assert_int_equal(result.start, 2);
    assert_close(result.self[0], 0.25, 1e-6);
    assert_close(result.self[1], 0.4, 1e-6);
    assert_close(result.previous[1], 0.3, 1e-6);
}

/* ------------------------------------------------------------- unusual rows, bad files */

static void blind_and_broken_rows(void **state)
{
    (void)state;
    static const float data[]   = { 0, 0, 0, NAN, 1, 0, 0.5f, 0.5f, 0 };
    static const float scores[] = {
        -INFINITY, -1e30f, -INFINITY, 1, NAN, -INFINITY, 0, 0, -INFINITY
    };

    for (int kind = 0; kind < 2; kind++) {
        write_npy(here("a.npy"), "<f4", "(1, 3, 3)", kind == 0 ? data : scores, sizeof data);
        feed_all(&result, "a.npy", &(hl_maps_options){ .scores = kind == 1 });
        assert_true(result.lse[0] == -INFINITY && result.argmax[0] == -1);
        assert_true(result.entropy[0] == 0 && result.peak[0] == 0 && result.first[0] == 0);
        assert_true(isnan(result.entropy[1]) && isnan(result.peak[1]) && isnan(result.lse[1]));
        assert_int_equal(result.argmax[1], -1);
        assert_close(result.entropy[2], log(2), 1e-6);
        assert_int_equal(result.argmax[2], 0); /* the lowest of equal keys */
    }
}

static void bad_maps_are_named(void **state)
{
    (void)state;
    float data[2][2][S3 * S3];

    for (int i = 0; i < 4; i++)
        small_map(data[i / 2][i % 2], 1);
    data[1][0][4] += 0.01f;
    write_npy(here("a.npy"), "<f4", "(2, 1, 2, 3, 3)", data, sizeof data);
    refuse("a.npy", NULL, HL_BAD_INPUT,
           "a.npy: layer 1, sequence 0, head 0, row 1 sums to 1.01, wanted 1 within 0.001");
    data[0][1][6] = -0.5f;
    write_npy(here("a.npy"), "<f4", "(2, 1, 2, 3, 3)", data, sizeof data);
    refuse("a.npy", NULL, HL_BAD_INPUT,
           "layer 0, sequence 0, head 1, row 2 has an entry of -0.5, wanted none below 0");
    feed_all(&result, "a.npy", &(hl_maps_options){ .scores = true }); /* as scores, the file is
                                                                       * valid */
    write_npy(here("a.npy"), "<f4", "(3, 3)", data, 36);
    refuse("a.npy", NULL, HL_BAD_INPUT, "an array of shape [3,3], wanted [L,B,H,S,S]");
    write_npy(here("a.npy"), "<i4", "(1, 3, 3)", data, 36);
    refuse("a.npy", NULL, HL_BAD_INPUT, "is of type I32, wanted floating-point numbers");
    write_npy(here("a.npy"), "<f4", "(0, 3, 3)", data, 0);
    refuse("a.npy", NULL, HL_BAD_INPUT, "at least one of everything");
    refuse("nowhere.npy", NULL, HL_NOT_FOUND, "nowhere.npy: No such file");
    hl_tensor tensors[] = { { "x", HL_DTYPE_F32, 3, { 1, 3, 3 }, data, 0 },
                            { "y", HL_DTYPE_F32, 3, { 1, 3, 3 }, data, 0 } };
    write_tensors("a.safetensors", tensors, 2);
    refuse("a.safetensors", NULL, HL_BAD_INPUT, "no attention maps found");
}

static void the_mask_is_found_or_given(void **state)
{
    (void)state;
    float    data[S3 * S3];
    hl_maps *maps = NULL;

    small_map(data, 1);
    write_npy(here("a.npy"), "<f4", "(1, 3, 3)", data, sizeof data);
    assert_ok(hl_maps_open(&maps, here("a.npy"), &(hl_maps_options){ .mask = HL_MAPS_MASK_FULL }));
    assert_false(hl_maps_get_info(maps)->is_causal);
    uint64_t hash = hl_maps_get_info(maps)->hash;
    hl_maps_close(maps);
    data[0] = 0.5f;
    data[1] = 0.5f;
    write_npy(here("a.npy"), "<f4", "(1, 3, 3)", data, sizeof data);
    assert_ok(hl_maps_open(&maps, here("a.npy"), NULL));
    assert_false(hl_maps_get_info(maps)->is_causal);
    assert_true(hl_maps_get_info(maps)->hash != hash);
    hl_maps_close(maps);
    refuse("a.npy", &(hl_maps_options){ .mask = HL_MAPS_MASK_CAUSAL }, HL_BAD_INPUT,
           "a.npy: not causal");
}

#define TEST(name) cmocka_unit_test_setup(name, clear_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(random_maps_agree_with_the_definition),
        TEST(short_types_are_divided_by_their_sum),
        TEST(golden_patterns_have_golden_statistics),
        TEST(maps_of_gpt2),
        TEST(every_shape_is_understood),
        TEST(a_tensor_for_each_layer),
        TEST(padding_is_left_out),
        TEST(whole_rows_at_chosen_positions),
        TEST(queries_at_the_end),
        TEST(blind_and_broken_rows),
        TEST(bad_maps_are_named),
        TEST(the_mask_is_found_or_given),
    };
    folder   = new_folder();
    int code = cmocka_run_group_tests(tests, NULL, NULL);
    remove_folder(folder);
    return code;
}
