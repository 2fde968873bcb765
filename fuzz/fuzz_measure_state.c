/* fuzz_measure_state.c - arbitrary text as the place where an interrupted measurement continues.
 *
 * A state is a profile (fuzz_profile.c) and a line of text.  The line is refused with a message, or
 * the measurement continues there to its end: lines with documents, tokens and windows that do not
 * exist must be refused. */
#include "fuzz_file.h"
#include "stats/profile.h"

static hl_model   *model; /* made once, all of them */
static hl_corpus  *corpus;
static hl_profile *begun;

static hl_status stop(void *context, const hl_progress *progress)
{
    (void)context;
    (void)progress;
    return HL_CANCELLED;
}

static hl_measure_options options_of(const char *state_path)
{
    return (hl_measure_options){ .windows    = { .n_ctx = 4, .n_batch = 1 },
                                 .state_path = state_path,
                                 .no_probe   = true,
                                 .n_threads  = 1 };
}

/* Makes a state with one of five windows done. */
static void begin(const char *state_path)
{
    static const char  ids[]    = "[1,2,3,4,5,6,7,8]\n[9,8,7]\n[1,2,3,4,5,6]\n";
    const char        *path     = fuzz_file("ids.jsonl", (const uint8_t *)ids, sizeof ids - 1);
    hl_corpus_options  of_ids   = { .token_ids = path };
    hl_measure_options options  = options_of(state_path);
    hl_profile        *unwanted = NULL;
    char              *text     = NULL;

    PROMISE(hl_model_open(&model, "tests/data/families/llama3") == HL_OK);
    PROMISE(hl_corpus_open(&corpus, model, NULL, &of_ids) == HL_OK);
    options.progress = stop;
    PROMISE(hl_measure(&unwanted, model, NULL, corpus, &options) == HL_CANCELLED);
    PROMISE(hl_profile_load_state(&begun, &text, state_path) == HL_OK);
    hl_free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    char        state_path[FUZZ_PATH_BYTES];
    hl_profile *profile = NULL;
    char       *text    = malloc(n_bytes + 1);

    PROMISE(text != NULL);
    memcpy(text, bytes, n_bytes);
    text[n_bytes] = '\0';
    snprintf(state_path, sizeof state_path, "%s/state", fuzz_folder());
    if (begun == NULL)
        begin(state_path);
    hl_measure_options options = options_of(state_path);
    options.resume             = true;
    if (hl_profile_write_state(begun, state_path, text) != HL_OK ||
        hl_measure(&profile, model, NULL, corpus, &options) != HL_OK)
        refused(profile);
    hl_profile_free(profile);
    free(text);
    return 0;
}
