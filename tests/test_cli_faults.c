/* test_cli_faults.c - every command, with every allocation and every system call failing in turn.
 *
 * Commands run in this process, with their output captured.  The program's own allocations fail as
 * well: the linker redirects them here (-Wl,--wrap=malloc and others, in the Makefile). */
#include "fault_support.h"

#include "command.h"

/* ------------------------------------------------------------- the program's own memory */

void *__real_malloc(size_t n_bytes);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *block, size_t n_bytes);
void *__wrap_malloc(size_t n_bytes);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *block, size_t n_bytes);

void *__wrap_malloc(size_t n_bytes)
{
    return hl_fault(HL_FAULT_MEMORY) ? NULL : __real_malloc(n_bytes);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return hl_fault(HL_FAULT_MEMORY) ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *block, size_t n_bytes)
{
    return hl_fault(HL_FAULT_MEMORY) ? NULL : __real_realloc(block, n_bytes);
}

/* ------------------------------------------------------------------ a command, caught */

#define LLAMA      "tests/data/families/llama3"
#define PHI        "tests/data/families/phi3"
#define LLAMA_GG   "tests/data/gguf/llama3.gguf"
#define TOKENIZERS "tests/data/tokenizers/"
#define MAX_WORDS  24

typedef struct command {
    int (*run)(int, char **);
    const char *words[MAX_WORDS];
    const char *output; /* relative to OUT: a file that already exists; NULL: none */
    const char *state;  /* a file that is copied to OUT/p.part; NULL: none */
    uint64_t    said;   /* hash of standard output in the first run */
    bool        ran;
} command;

static char  work[64];   /* folder of the inputs */
static char  out[64];    /* folder of the outputs */
static FILE *streams[2]; /* standard output and standard error */

/* Replaces OUT/x and WORK/x in the words of the table. */
static char *expand(const char *word)
{
    char text[512];

    if (strncmp(word, "OUT/", 4) == 0)
        snprintf(text, sizeof text, "%s%s", out, word + 3);
    else if (strncmp(word, "WORK/", 5) == 0)
        snprintf(text, sizeof text, "%s%s", work, word + 4);
    else
        snprintf(text, sizeof text, "%s", word);
    return strdup(text);
}

static void redirect(int saved[2])
{
    for (int i = 0; i < 2; i++) {
        fflush(i == 0 ? stdout : stderr);
        saved[i] = dup(i + 1);
        assert_int_equal(ftruncate(fileno(streams[i]), 0), 0);
        lseek(fileno(streams[i]), 0, SEEK_SET);
        dup2(fileno(streams[i]), i + 1);
    }
}

static void restore(const int saved[2])
{
    for (int i = 0; i < 2; i++) {
        fflush(i == 0 ? stdout : stderr);
        dup2(saved[i], i + 1);
        close(saved[i]);
    }
}

static uint64_t hash_of_output(void)
{
    static char text[1 << 20];
    ssize_t     n_bytes = pread(fileno(streams[0]), text, sizeof text, 0);

    assert_true(n_bytes >= 0 && n_bytes < (ssize_t)sizeof text);
    return hl_hash(text, (size_t)n_bytes, 0);
}

static void read_message(void)
{
    ssize_t n_bytes = pread(fileno(streams[1]), message, sizeof message - 1, 0);
    assert_true(n_bytes >= 0);
    message[n_bytes] = '\0';
}

/* Converts an exit status, and checks that the message fits it. */
static hl_status status_for(const command *c, int code)
{
    bool explained = strstr(message, "headlight ") == message || strstr(message, "\nheadlight ");

    if (code == HL_EXIT_OK)
        return hash_of_output() == c->said ? HL_OK : HL_INTERNAL;
    if (code == HL_EXIT_INPUT && explained)
        return HL_IO;
    if (code == HL_EXIT_RESOURCES && explained && strstr(message, "memory") != NULL)
        return HL_NO_MEMORY;
    return HL_INTERNAL;
}

static hl_status run_command(void *context)
{
    command *c = context;
    char    *words[MAX_WORDS + 1];
    char    *given[MAX_WORDS + 1];
    int      n_words = 0, saved[2];

    for (; n_words < MAX_WORDS && c->words[n_words] != NULL; n_words++)
        given[n_words] = words[n_words] = expand(c->words[n_words]);
    given[n_words] = NULL;
    redirect(saved);
    int code = hl_command_run(c->run, n_words, given);
    restore(saved);
    for (int i = 0; i < n_words; i++)
        free(words[i]);
    read_message();
    if (!c->ran && code == HL_EXIT_OK) {
        c->said = hash_of_output();
        c->ran  = true;
    }
    return status_for(c, code);
}

static void copy_file(const char *to, const char *from)
{
    size_t n_bytes = 0;
    char  *bytes   = read_file(from, &n_bytes);
    write_file(to, bytes, n_bytes);
    free(bytes);
}

static void put_older(void *context)
{
    const command *c = context;

    if (c->output != NULL)
        write_file(in_folder(out, c->output), "older\n", 6);
    if (c->state != NULL)
        copy_file(in_folder(out, "p.part"), in_folder(work, c->state));
}

static void inject_command(const char *name, command *c, const char *spare)
{
    trial t = { .name    = name,
                .folder  = out,
                .spare   = spare,
                .prepare = put_older,
                .run     = run_command,
                .context = c };
    inject(&t);
}

/* expand() is called with faults armed and must not fail, so it uses the C library's strdup. */

/* ----------------------------------------------------------------------------- inputs */

static void run_or_fail(command *c)
{
    hl_status status = run_command(c);
    if (status != HL_OK)
        fail_msg("%s: %s", c->words[0], message);
}

/* A checkpoint of llama2.c: 4 wide, 2 layers, 2 heads over 1, 5 words, 3 positions. */
static void write_llama2c(void)
{
    static const int32_t sizes[7]                     = { 4, 6, 2, 2, 1, 5, 3 };
    float                values[20 + 2 * 128 + 4 + 6] = { 0 };
    char                 bytes[28 + sizeof values];

    memcpy(bytes, sizes, 28);
    memcpy(bytes + 28, values, sizeof values);
    write_file(in_folder(work, "tiny.bin"), bytes, sizeof bytes);
}

static void write_ids(const char *name, int n_lines, int n_tokens, int factor)
{
    char   text[8192];
    size_t used = 0;

    for (int line = 0; line < n_lines; line++) {
        for (int i = 0; i < n_tokens; i++)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%d", i == 0 ? "[" : ",",
                                     (7 + line + factor * i * i) % 100);
        used += (size_t)snprintf(text + used, sizeof text - used, "]\n");
    }
    write_file(in_folder(work, name), text, used);
}

/* A command of the table: its existing output file (or NULL) and its words. */
#define COMMAND(name, older, ...)                                                                  \
    {                                                                                              \
        .run = hl_command_##name, .output = older, .words = { #name, __VA_ARGS__ }                 \
    }
#define MEASURE(older, ids, ...)                                                                   \
    COMMAND(measure, older, LLAMA, "--token-ids", ids, "--context", "8", "--threads", "1",         \
            "--batch", "1", "--quiet", "-o", __VA_ARGS__)

/* Makes a state to resume from, with a measurement whose last rename fails. */
static void write_state(void)
{
    command c = MEASURE(NULL, "WORK/a.jsonl", "OUT/p", "--save-every", "1e-9", "--no-probe");

    hl_fault_arm(HL_FAULT_CALL, INT64_MAX, false);
    run_or_fail(&c);
    int64_t n_calls = hl_fault_disarm(NULL);
    for (int64_t nth = n_calls; nth > 0; nth--) {
        empty_folder(out);
        hl_fault_arm(HL_FAULT_CALL, nth, false);
        hl_status status = run_command(&c);
        hl_fault_disarm(NULL);
        if (status != HL_OK && access(in_folder(out, "p.part"), F_OK) == 0) {
            copy_file(in_folder(work, "state"), in_folder(out, "p.part"));
            return;
        }
    }
    fail_msg("no failure leaves a state");
}

/* Makes a folder in memory if possible: thousands of runs would wait for a disk. */
static void make_folder(char *path)
{
    strcpy(path, "/dev/shm/headlight-test-XXXXXX");
    if (mkdtemp(path) == NULL)
        strcpy(path, new_folder());
}

static int set_up(void **state)
{
    (void)state;
    make_folder(work);
    make_folder(out);
    for (int i = 0; i < 2; i++) {
        streams[i] = tmpfile();
        if (streams[i] == NULL)
            return -1;
    }
    hl_memory_watch();
    write_llama2c();
    write_file(in_folder(work, "text.jsonl"), "{\"text\": \"He said, and it was so.\"}\n", 36);
    write_ids("a.jsonl", 2, 12, 1);
    write_ids("b.jsonl", 1, 9, 3);
    command a = MEASURE(NULL, "WORK/a.jsonl", "WORK/a.profile");
    command b = MEASURE(NULL, "WORK/b.jsonl", "WORK/b.profile");
    run_or_fail(&a);
    run_or_fail(&b);
    write_state();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    empty_folder(out);
    rmdir(out);
    remove_folder(work);
    for (int i = 0; i < 2; i++)
        fclose(streams[i]);
    return 0;
}

/* ---------------------------------------------------------------------------- commands */

static void formats(void **state)
{
    command safetensors = COMMAND(info, NULL, LLAMA, "--tensors");
    command gguf        = COMMAND(info, NULL, LLAMA_GG, "--tensors");
    command llama2c     = COMMAND(info, NULL, "WORK/tiny.bin", "--tensors", "--json");
    (void)state;

    inject_command("info safetensors", &safetensors, NULL);
    inject_command("info gguf", &gguf, NULL);
    inject_command("info llama2.c", &llama2c, NULL);
}

static void tokenizers(void **state)
{
    static const char text[] = "Hello, wide world: 12 naïve cafés!";

    command bpe       = COMMAND(tokenize, NULL, TOKENIZERS "small-bpe", text);
    command unigram   = COMMAND(tokenize, NULL, TOKENIZERS "small-unigram", text, "--json");
    command wordpiece = COMMAND(tokenize, NULL, TOKENIZERS "small-wordpiece", text);
    command gguf      = COMMAND(tokenize, NULL, LLAMA_GG, text);
    command decode = COMMAND(tokenize, NULL, TOKENIZERS "small-bpe", "[40, 577, 79]", "--decode");
    (void)state;

    inject_command("tokenize bpe", &bpe, NULL);
    inject_command("tokenize unigram", &unigram, NULL);
    inject_command("tokenize wordpiece", &wordpiece, NULL);
    inject_command("tokenize gguf", &gguf, NULL);
    inject_command("tokenize --decode", &decode, NULL);
}

static void measuring(void **state)
{
    command plain  = MEASURE("p", "WORK/a.jsonl", "OUT/p", "--rows", "OUT/rows", "--nll");
    command often  = MEASURE("p", "WORK/a.jsonl", "OUT/p", "--save-every", "1e-9", "--no-probe");
    command resume = MEASURE("p", "WORK/a.jsonl", "OUT/p", "--resume", "--no-probe");
    command merge =
        COMMAND(merge, "p", "WORK/a.profile", "WORK/b.profile", "-o", "OUT/p", "--quiet");
    (void)state;

    resume.state = "state";
    inject_command("measure", &plain, ".part");
    inject_command("measure, saving often", &often, ".part");
    inject_command("measure --resume", &resume, ".part");
    inject_command("merge", &merge, NULL);
}

static void pruning(void **state)
{
    command masked  = COMMAND(prune, NULL, PHI, "--heads", "L0H1", "-o", "OUT/m", "--quiet");
    command compact = COMMAND(prune, NULL, PHI, "--heads", "L0H1,L1", "--as", "compact", "-o",
                              "OUT/m", "--no-timing", "--json");
    command gguf = COMMAND(prune, "m.gguf", LLAMA, "--heads", "L0H1", "--as", "gguf", "--tokenizer",
                           TOKENIZERS "small-bpe", "-o", "OUT/m.gguf", "--quiet");
    (void)state;

    inject_command("prune masked", &masked, NULL);
    inject_command("prune compact", &compact, NULL);
    inject_command("prune gguf", &gguf, NULL);
}

static void drawing(void **state)
{
    command svg     = COMMAND(draw, "x.svg", "WORK/a.profile", "-o", "OUT/x.svg", "--quiet");
    command png     = COMMAND(draw, "x.png", "WORK/a.profile", "-o", "OUT/x.png", "--dpi", "40");
    command pdf     = COMMAND(draw, "x.pdf", "WORK/a.profile", "-o", "OUT/x.pdf", "--quiet");
    command compare = COMMAND(compare, NULL, "WORK/a.profile", "WORK/b.profile");
    command show    = COMMAND(show, NULL, "WORK/a.profile");
    command tables  = COMMAND(show, NULL, "WORK/a.profile", "--json");
    command rank    = COMMAND(rank, NULL, "WORK/a.profile", "--json");
    (void)state;

    inject_command("draw svg", &svg, NULL);
    inject_command("draw png", &png, NULL);
    inject_command("draw pdf", &pdf, NULL);
    inject_command("compare", &compare, NULL);
    inject_command("show", &show, NULL);
    inject_command("show --json", &tables, NULL);
    inject_command("rank", &rank, NULL);
}

static void reporting(void **state)
{
    command report = COMMAND(report, "x.html", "WORK/a.profile", "WORK/b.profile", "--model", LLAMA,
                             "--ids", "--prompt", "5 17 3", "-o", "OUT/x.html", "--threads", "1");
    (void)state;

    inject_command("report", &report, NULL);
}

static void generating(void **state)
{
    command generate = COMMAND(generate, "t", "models/demo", "He said", "-n", "3", "--context",
                               "16", "--trace", "OUT/t", "--threads", "1", "--quiet");
    command eval     = COMMAND(eval, NULL, "models/demo", "WORK/text.jsonl", "--context", "16",
                               "--max-tokens", "16", "--threads", "1");
    (void)state;

    inject_command("generate --trace", &generate, NULL);
    inject_command("eval", &eval, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formats),    cmocka_unit_test(tokenizers), cmocka_unit_test(measuring),
        cmocka_unit_test(pruning),    cmocka_unit_test(drawing),    cmocka_unit_test(reporting),
        cmocka_unit_test(generating),
    };

    start_faults();
    return cmocka_run_group_tests_name("cli_faults", tests, set_up, tear_down);
}
