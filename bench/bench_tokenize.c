/* bench_tokenize.c - the speed of loading tokenizers, encoding and decoding, on one core.
 *
 *     build/bench_tokenize [TEXT]
 *
 *     tokenizer       load s   cold MB/s   warm MB/s   decode MB/s   bytes/token
 *     gpt2              0.07        12.1        25.3          31.0          4.51
 *
 * `cold` encodes with an empty word cache, best of three, `warm` is the median of the rounds after
 * it.  The text is wikitext-2 if it is available, else TEXT, else one made of the words of the
 * small tokenizer.  Large tokenizers are read from $HEADLIGHT_SHARED or ../shared; without them
 * only the small one is measured.  The bars are 8 MB/s for byte-level BPE, cold, and 1.0 s for
 * loading Llama-3's file of 17 MB.
 *
 * Times are CPU times of the thread, so that other load on the machine matters little. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "headlight.h"
#include "series.h"

enum { ROUNDS = 7, LOADS = 3, MADE_BYTES = 1 << 20 };

#define SMALL "tests/data/tokenizers/small-bpe"

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static const char *shared(const char *path)
{
    static char full[1024];
    const char *root = getenv("HEADLIGHT_SHARED");

    snprintf(full, sizeof full, "%s/%s", root != NULL ? root : "../shared", path);
    return full;
}

/* --------------------------------------------------------------------- text */

static char *read_text(const char *path, size_t *n_bytes)
{
    FILE *file = fopen(path, "rb");
    char *text = NULL;

    if (file == NULL)
        return NULL;
    fseek(file, 0, SEEK_END);
    long length = ftell(file);
    rewind(file);
    text     = malloc(length > 0 ? (size_t)length : 1);
    *n_bytes = text != NULL ? fread(text, 1, length > 0 ? (size_t)length : 0, file) : 0;
    fclose(file);
    return text;
}

/* Makes a text of the small vocabulary's words, the frequent ones (of low id) more often. */
static char *make_text(size_t *n_bytes)
{
    hl_tokenizer *tokenizer = NULL;
    char         *text      = malloc(MADE_BYTES + 64);
    uint32_t      random    = 1;

    *n_bytes = 0;
    if (text == NULL || hl_tokenizer_open(&tokenizer, SMALL) != HL_OK)
        return text;
    while (*n_bytes < MADE_BYTES) {
        random            = random * 1664525U + 1013904223U;
        uint32_t    pick  = (random >> 16) * (random >> 16) >> 22;
        size_t      width = 0;
        const char *piece = hl_tokenizer_piece(tokenizer, (int64_t)(260 + pick % 760), &width);
        if (piece == NULL || width < 4 || memcmp(piece, "\xc4\xa0", 2) != 0)
            continue;
        text[(*n_bytes)++] = random >> 28 == 0 ? '\n' : ' ';
        memcpy(text + *n_bytes, piece + 2, width - 2 < 60 ? width - 2 : 60);
        *n_bytes += width - 2 < 60 ? width - 2 : 60;
    }
    hl_tokenizer_close(tokenizer);
    return text;
}

/* ---------------------------------------------------------------- measuring */

typedef struct result {
    double load;
    double cold;   /* seconds */
    double warm;   /* seconds, the median */
    double decode; /* seconds, the median */
    size_t n_tokens;
} result;

static bool failed(hl_status status)
{
    if (status != HL_OK)
        fprintf(stderr, "bench_tokenize: %s\n", hl_error_message());
    return status != HL_OK;
}

/* Measures loading, and the first encoding after it. */
static bool measure_cold(hl_tokenizer **out, result *r, const char *path, const char *text,
                         size_t n_bytes)
{
    bench_series load = { 0 }, cold = { 0 };

    *out = NULL;
    for (int i = 0; i < LOADS; i++) {
        hl_encoding *encoding = NULL;
        hl_tokenizer_close(*out);
        double begin = cpu_seconds();
        if (failed(hl_tokenizer_open(out, path)))
            return false;
        double loaded = cpu_seconds();
        if (failed(hl_tokenizer_encode(&encoding, *out, text, n_bytes, NULL)))
            return false;
        bench_series_add(&load, loaded - begin);
        bench_series_add(&cold, cpu_seconds() - loaded);
        hl_encoding_free(encoding);
    }
    r->load = bench_series_min(&load);
    r->cold = bench_series_min(&cold);
    return true;
}

static bool measure_warm(result *r, const hl_tokenizer *tokenizer, const char *text, size_t n_bytes)
{
    bench_series warm = { 0 }, decode = { 0 };

    for (int i = 0; i < ROUNDS; i++) {
        hl_encoding *encoding  = NULL;
        char        *decoded   = NULL;
        size_t       n_decoded = 0;
        double       begin     = cpu_seconds();

        if (failed(hl_tokenizer_encode(&encoding, tokenizer, text, n_bytes, NULL)))
            return false;
        double middle = cpu_seconds();
        if (failed(hl_tokenizer_decode(&decoded, &n_decoded, tokenizer, encoding->ids,
                                       encoding->n_tokens, NULL)))
            return false;
        bench_series_add(&decode, cpu_seconds() - middle);
        bench_series_add(&warm, middle - begin);
        r->n_tokens = encoding->n_tokens;
        hl_encoding_free(encoding);
        hl_free(decoded);
    }
    r->warm   = bench_series_median(&warm);
    r->decode = bench_series_median(&decode);
    return true;
}

/* Prints a line of the table; returns false if a bar is missed. */
static bool bench(const char *name, const char *path, const char *text, size_t n_bytes,
                  double load_bar, double speed_bar)
{
    hl_tokenizer *tokenizer = NULL;
    result        r         = { 0 };
    double        mega      = 1e-6 * (double)n_bytes;

    if (access(path, R_OK) != 0) {
        printf("%-15s not here\n", name);
        return true;
    }
    if (!measure_cold(&tokenizer, &r, path, text, n_bytes) ||
        !measure_warm(&r, tokenizer, text, n_bytes))
        return false;
    bool good = r.load <= load_bar && mega / r.cold >= speed_bar;
    printf("%-15s %6.3f %11.1f %11.1f %13.1f %13.2f   %s\n", name, r.load, mega / r.cold,
           mega / r.warm, mega / r.decode, (double)n_bytes / (double)r.n_tokens,
           good ? "ok" : "UNDER THE BAR");
    hl_tokenizer_close(tokenizer);
    return good;
}

int main(int argc, char **argv)
{
    size_t n_bytes = 0;
    char  *text =
        read_text(argc > 1 ? argv[1] : shared("corpora/wikitext-2-raw/wiki.test.raw"), &n_bytes);
    bool made = text == NULL;

    if (made)
        text = make_text(&n_bytes);
    if (text == NULL || n_bytes == 0) {
        fprintf(stderr, "bench_tokenize: no text\n");
        return 1;
    }
    printf("Tokenizers on one core, %.1f MB of %s text.\n\n", 1e-6 * (double)n_bytes,
           made ? "made-up" : "real");
    printf("%-15s %6s %11s %11s %13s %13s\n", "tokenizer", "load s", "cold MB/s", "warm MB/s",
           "decode MB/s", "bytes/token");
    bool good = bench("gpt2", shared("tokenizers/gpt2"), text, n_bytes, 1.0, 8.0);
    good &= bench("llama3", shared("tokenizers/llama3_2"), text, n_bytes, 1.0, 8.0);
    good &= bench("qwen2.5", shared("tokenizers/qwen2_5"), text, n_bytes, 1.0, 0.0);
    good &= bench("llama2 (spm)", shared("tokenizers/llama2"), text, n_bytes, 1.0, 0.0);
    good &= bench("small-bpe", SMALL, text, n_bytes, 1.0, 8.0);
    good &= bench("small-unigram", "tests/data/tokenizers/small-unigram", text, n_bytes, 1.0, 0.0);
    good &=
        bench("small-wordpiece", "tests/data/tokenizers/small-wordpiece", text, n_bytes, 1.0, 0.0);
    free(text);
    return good ? 0 : 1;
}
