/* options.c - the option parser that all commands share.
 *
 * getopt_long could split the command line, but not check it: numbers and their ranges, allowed
 * words, suggestions for misspelled ones.  Here the help text and the parser use the same table, so
 * they cannot disagree. */
#include "options.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "held.h"
#include "screen.h"

/* The command's own options, and those that all commands have. */
enum { N_TABLES = 2 };

typedef struct parser {
    const hl_usage  *usage;
    const hl_option *tables[N_TABLES];
    char           **argv;
    int              argc;
    int              next; /* index of the next argument */
} parser;

/* -------------------------------------------------------------------- refusing */

int hl_options_refuse(const hl_usage *usage, const char *format, ...)
{
    char    message[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    hl_complain(usage->command, "%s", message);
    fprintf(stderr, "Try 'headlight %s --help'.\n", usage->command);
    return HL_EXIT_USAGE;
}

static int refuse_unknown(const parser *p, const char *dashes, const char *name)
{
    hl_nearest nearest = { .wanted = name };

    for (int table = 0; table < N_TABLES; table++) {
        for (const hl_option *option = p->tables[table]; option->name != NULL; option++)
            hl_nearest_offer(&nearest, option->name);
    }
    if (nearest.word != NULL)
        return hl_options_refuse(p->usage, "unknown option %s%s (did you mean --%s?)", dashes, name,
                                 nearest.word);
    return hl_options_refuse(p->usage, "unknown option %s%s", dashes, name);
}

/* ---------------------------------------------------------------------- values */

/* Returns the index of `word` in "a|b|c"; -1 if it is not one of these words. */
static int place_of(const char *choices, const char *word)
{
    size_t length = strlen(word);
    int    place  = 0;

    for (const char *start = choices; start != NULL; start = strchr(start, '|'), place++) {
        start += *start == '|';
        if (length > 0 && strcspn(start, "|") == length && strncmp(start, word, length) == 0)
            return place;
    }
    return -1;
}

static int refuse_choice(const parser *p, const hl_option *option, const char *text)
{
    char       word[64], near[64] = "";
    hl_nearest nearest = { .wanted = text };

    for (const char *start = option->value; start != NULL; start = strchr(start, '|')) {
        start += *start == '|';
        snprintf(word, sizeof word, "%.*s", (int)strcspn(start, "|"), start);
        size_t before = nearest.word != NULL ? nearest.distance : SIZE_MAX;
        hl_nearest_offer(&nearest, word);
        if (nearest.word != NULL && nearest.distance < before)
            snprintf(near, sizeof near, "%s", word);
    }
    if (near[0] != '\0')
        return hl_options_refuse(p->usage, "--%s: '%s' is not one of %s (did you mean '%s'?)",
                                 option->name, text, option->value, near);
    return hl_options_refuse(p->usage, "--%s: '%s' is not one of %s", option->name, text,
                             option->value);
}

static int set_int(const parser *p, const hl_option *option, const char *text)
{
    char *end = NULL;

    errno            = 0;
    long long number = strtoll(text, &end, 10);
    if (end == text || *end != '\0')
        return hl_options_refuse(p->usage, "--%s: '%s' is not a whole number", option->name, text);
    if (errno == ERANGE || number < option->low || number > option->high)
        return hl_options_refuse(p->usage, "--%s: %s is not between %lld and %lld", option->name,
                                 text, (long long)option->low, (long long)option->high);
    *(int64_t *)option->target = number;
    return HL_EXIT_OK;
}

static int set_number(const parser *p, const hl_option *option, const char *text)
{
    char  *end    = NULL;
    double number = strtod(text, &end);

    if (end == text || *end != '\0')
        return hl_options_refuse(p->usage, "--%s: '%s' is not a number", option->name, text);
    if (!(number >= (double)option->low && number <= (double)option->high))
        return hl_options_refuse(p->usage, "--%s: %s is not between %lld and %lld", option->name,
                                 text, (long long)option->low, (long long)option->high);
    *(double *)option->target = number;
    return HL_EXIT_OK;
}

static int add_value(const parser *p, const hl_option *option, const char *text)
{
    hl_option_list *list = option->target;

    if (list->count == HL_MAX_OPTION_LIST)
        return hl_options_refuse(p->usage, "--%s: given more than %d times", option->name,
                                 HL_MAX_OPTION_LIST);
    list->items[list->count++] = text;
    return HL_EXIT_OK;
}

static int set_value(const parser *p, const hl_option *option, const char *text)
{
    if (strcmp(text, "normalised") == 0 && option->kind == HL_OPTION_ENUM)
        text = "normalized"; /* both spellings are accepted; the help shows one */

    int place = option->kind == HL_OPTION_CHOICE || option->kind == HL_OPTION_ENUM
                    ? place_of(option->value, text)
                    : 0;

    if (place < 0)
        return refuse_choice(p, option, text);
    switch (option->kind) {
    case HL_OPTION_INT:
        return set_int(p, option, text);
    case HL_OPTION_NUMBER:
        return set_number(p, option, text);
    case HL_OPTION_LIST:
        return add_value(p, option, text);
    case HL_OPTION_ENUM:
        *(int *)option->target = place;
        return HL_EXIT_OK;
    default:
        *(const char **)option->target = text;
        return HL_EXIT_OK;
    }
}

/* Applies an option; `attached` is a value in the same argument, or NULL. */
static int apply(parser *p, const hl_option *option, const char *attached)
{
    if (option->kind == HL_OPTION_FLAG) {
        if (attached != NULL)
            return hl_options_refuse(p->usage, "--%s takes no value; got '%s'", option->name,
                                     attached);
        *(bool *)option->target = true;
        return HL_EXIT_OK;
    }
    if (attached == NULL && p->next == p->argc)
        return hl_options_refuse(p->usage, "--%s needs a value: %s", option->name, option->value);
    return set_value(p, option, attached != NULL ? attached : p->argv[p->next++]);
}

/* --------------------------------------------------------------------- parsing */

static const hl_option *find_long(const parser *p, const char *name, size_t length)
{
    if (length == strlen("colour") && strncmp(name, "colour", length) == 0) {
        name   = "color"; /* both spellings are accepted; the help shows one */
        length = strlen(name);
    }
    for (int table = 0; table < N_TABLES; table++) {
        for (const hl_option *option = p->tables[table]; option->name != NULL; option++) {
            if (strlen(option->name) == length && strncmp(option->name, name, length) == 0)
                return option;
        }
    }
    return NULL;
}

static const hl_option *find_short(const parser *p, char letter)
{
    for (int table = 0; table < N_TABLES; table++) {
        for (const hl_option *option = p->tables[table]; option->name != NULL; option++) {
            if (option->short_name != 0 && option->short_name == letter)
                return option;
        }
    }
    return NULL;
}

static int parse_long(parser *p, const char *text)
{
    size_t           length = strcspn(text, "=");
    const hl_option *option = find_long(p, text, length);
    char             name[64];

    if (option != NULL)
        return apply(p, option, text[length] == '=' ? text + length + 1 : NULL);
    snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1),
             text);
    return refuse_unknown(p, "--", name);
}

/* Parses "-q", "-qv" for two flags, "-oFILE" or "-o FILE" for a value. */
static int parse_short(parser *p, const char *letters)
{
    for (; *letters != '\0'; letters++) {
        const hl_option *option  = find_short(p, *letters);
        char             name[2] = { *letters, '\0' };

        if (option == NULL)
            return refuse_unknown(p, "-", name);
        if (option->kind != HL_OPTION_FLAG)
            return apply(p, option, letters[1] != '\0' ? letters + 1 : NULL);
        *(bool *)option->target = true;
    }
    return HL_EXIT_OK;
}

/* Moves arguments to the front of argv as they are found; nothing unread is overwritten, since they
 * only move forward. */
static int parse_all(hl_arguments *out, parser *p)
{
    bool only_arguments = false;

    while (p->next < p->argc) {
        char *text = p->argv[p->next++];
        int   code = HL_EXIT_OK;

        if (only_arguments || text[0] != '-' || text[1] == '\0')
            out->items[out->count++] = text;
        else if (strcmp(text, "--") == 0)
            only_arguments = true;
        else if (text[1] == '-')
            code = parse_long(p, text + 2);
        else
            code = parse_short(p, text + 1);
        HL_PASS(code);
    }
    return HL_EXIT_OK;
}

/* ------------------------------------------------------------------------ help */

enum { HELP_COLUMN = 28 };

static void print_options(const hl_option *options)
{
    for (; options->name != NULL; options++) {
        char left[64];
        char letter[8] = "    ";

        if (options->short_name != 0)
            snprintf(letter, sizeof letter, "-%c, ", options->short_name);
        snprintf(left, sizeof left, "%s--%s%s%s", letter, options->name,
                 options->value != NULL ? " " : "", options->value != NULL ? options->value : "");
        printf("  %-24s  ", left);
        if (strlen(left) > 24)
            printf("\n%*s", HELP_COLUMN, "");
        hl_print_wrapped(options->help, HELP_COLUMN);
    }
}

static void print_help(const hl_usage *usage, const hl_option *common)
{
    printf("usage: headlight %s [options] %s\n\n%s\n\noptions:\n", usage->command, usage->arguments,
           usage->text);
    print_options(usage->options);
    printf("\noptions of every command:\n");
    print_options(common);
}

/* Prints one line per option, with tabs between the columns; "-" stands for an empty one. */
static void print_rows(const char *kind, const char *command, const hl_option *options)
{
    static const char *const kinds[] = {
        "flag", "text", "choice", "int", "number", "list", "choice"
    };

    for (; options->name != NULL; options++) {
        char letter = options->short_name;

        printf("%s\t%s\t%c\t%s\t%s\t%s\t%s\n", kind, command, letter != 0 ? letter : '-',
               options->name, kinds[options->kind], options->value != NULL ? options->value : "-",
               options->help);
    }
}

/* ------------------------------------------------------------------ the way in */

/* Returns true if the command can use a GPU. */
static bool has_cuda(const hl_usage *usage)
{
    static const char *const commands[] = { "verify", "measure", "eval", "generate", "sweep",
                                            "prune",  "tokens",  "lens", "serve" };

    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(usage->command, commands[i]) == 0)
            return true;
    }
    return false;
}

/* Returns HL_EXIT_OK, or the exit status if there is no such device. */
static int use_device(const hl_usage *usage, const hl_common *common)
{
    if (strcmp(common->device, "cpu") == 0)
        return HL_EXIT_OK;
    if (!has_cuda(usage))
        return hl_options_refuse(usage, "--device %s: this command runs on the CPU only",
                                 common->device);
    if (strcmp(usage->command, "verify") == 0) /* verify checks the device itself, after other
                                                * checks */
        return HL_EXIT_OK;
    return hl_finish(usage->command, hl_device_check(common->device));
}

/* The mode of every model that the command opens. */
static int use_math(const hl_usage *usage, const char *name)
{
    hl_math math = HL_MATH_DEFAULT;

    for (int i = HL_MATH_F32; name != NULL && i < HL_MATH_COUNT; i++) {
        if (strcmp(name, hl_math_name((hl_math)i)) == 0)
            math = (hl_math)i;
    }
    return math == HL_MATH_DEFAULT ? HL_EXIT_OK : hl_finish(usage->command, hl_math_select(math));
}

hl_math hl_math_option(const char *activations)
{
    if (activations == NULL)
        return HL_MATH_DEFAULT;
    return strcmp(activations, "int8") == 0 ? HL_MATH_INT8 : HL_MATH_F32;
}

/* Parses bytes such as "8G", "500M" or "1024", where each letter is a power of 1024; 0 if
 * invalid. */
static size_t read_size(const char *text)
{
    static const char letters[] = "KMGT";
    char             *end       = NULL;
    double            number    = strtod(text, &end);
    const char       *letter    = *end != '\0' ? strchr(letters, *end) : NULL;

    if (end == text || !(number > 0.0) || (*end != '\0' && (letter == NULL || end[1] != '\0')))
        return 0;
    for (const char *power = letters; letter != NULL && power <= letter; power++)
        number *= 1024.0;
    return number >= 1.0 && number < 9e18 ? (size_t)number : 0;
}

/* Sets the memory limit: the requested one, else what is free now. */
static int limit_memory(const hl_usage *usage, const char *asked)
{
    size_t n_bytes = asked != NULL ? read_size(asked) : hl_memory_available();

    if (asked != NULL && strcmp(asked, "none") != 0 && n_bytes == 0)
        return hl_options_refuse(
            usage, "--max-memory: '%s' is not a size such as 8G or 500M, nor none", asked);
    hl_memory_limit(n_bytes);
    return HL_EXIT_OK;
}

int hl_options_parse(hl_arguments *out, hl_common *common, const hl_usage *usage, int argc,
                     char **argv)
{
    int64_t     n_threads  = 0;
    int64_t     seed       = 0;
    const char *max_memory = NULL;
    const char *color      = NULL;
    const char *math       = NULL;
    bool        help       = false;
    bool        no_repack  = false;
    hl_option   shared[]   = {
            HL_FLAG("json", 0, &common->json, "print JSON instead of text"),
            HL_FLAG("quiet", 'q', &common->quiet, "print errors only"),
            HL_INT("threads", 0, &n_threads, "N", "use N threads (all cores)", 1, 1024),
            HL_INT("seed", 0, &seed, "N", "seed of random numbers (0)", 0, INT64_MAX),
            HL_CHOICE("device", 0, &common->device, "cpu|cuda|cuda:f16|cuda:f32",
                      "where to compute (cpu); cuda computes in bf16"),
            HL_CHOICE("math", 0, &math, "f32|bf16|int8",
                      "how the CPU multiplies weights (f32, which is exact)"),
            HL_FLAG("no-repack", 0, &no_repack,
                    "no copies of weights for faster products: less memory"),
            HL_TEXT("max-memory", 0, &max_memory, "SIZE",
                    "memory limit: 8G, 500M, none (all free memory)"),
            HL_CHOICE("color", 0, &color, "auto|always|never|256|truecolor",
                      "colors in the terminal (auto)"),
            HL_FLAG("help", 'h', &help, "print this help"),
            { 0 },
    };
    parser p = { usage, { usage->options, shared }, argv, argc, 1 };

    *common = (hl_common){ .device = "cpu" };
    *out    = (hl_arguments){ argv, 0 };
    if (argc == 2 && strcmp(argv[1], HL_OPTIONS_TABLE) == 0) {
        print_rows("option", usage->command, usage->options);
        print_rows("shared", usage->command, shared);
        return HL_EXIT_DONE;
    }
    int code          = parse_all(out, &p);
    common->n_threads = (int32_t)n_threads;
    common->seed      = (uint64_t)seed;
    if (color != NULL)
        hl_terminal_choose(color);
    if (help) { /* --help has priority over errors in the command line */
        print_help(usage, shared);
        return HL_EXIT_DONE;
    }
    HL_PASS(code);
    if (common->csv && common->json)
        return hl_options_refuse(usage, "--csv and --json cannot be combined");
    HL_PASS(use_device(usage, common));
    HL_PASS(use_math(usage, math));
    hl_repack_allow(!no_repack);
    return limit_memory(usage, max_memory);
}

/* ----------------------------------------------------------- did you mean ...? */

/* Three rows of the usual table for the distance between words:  d[i][j] is the cost of turning the
 * first i letters of a into the first j letters of b. */

#define MAX_WORD 32

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Returns the number of letters to insert, remove, replace or swap with a neighbor that turns one
 * word into the other.  Long words count as far apart. */
static size_t word_distance(const char *a, const char *b)
{
    size_t n_a = strlen(a), n_b = strlen(b);
    size_t rows[3][MAX_WORD + 1];

    if (n_a > MAX_WORD || n_b > MAX_WORD)
        return SIZE_MAX;
    for (size_t j = 0; j <= n_b; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= n_a; i++) {
        size_t       *now     = rows[i % 3];
        const size_t *before  = rows[(i + 2) % 3];
        const size_t *earlier = rows[(i + 1) % 3];

        now[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            now[j] = before[j - 1] + (a[i - 1] != b[j - 1]);
            now[j] = least(now[j], least(before[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = least(now[j], earlier[j - 2] + 1);
        }
    }
    return rows[n_a % 3][n_b];
}

void hl_nearest_offer(hl_nearest *nearest, const char *word)
{
    /* A third of the letters may be wrong, but at least one; a word's beginning counts as near. */
    size_t n_wanted = strlen(nearest->wanted);
    size_t allowed  = n_wanted < 3 ? 1 : n_wanted / 3 + 1;
    size_t distance = word_distance(nearest->wanted, word);

    if (n_wanted >= 2 && strncmp(nearest->wanted, word, n_wanted) == 0)
        distance = 1;
    /* A part of a name with hyphens may match alone: "colapse" is near "entropy-collapse". */
    for (const char *part = strchr(word, '-') != NULL ? word : NULL; part != NULL && n_wanted >= 4;
         part             = strchr(part, '-')) {
        char own[MAX_WORD + 1];

        part += *part == '-';
        if (strcspn(part, "-") > MAX_WORD)
            continue;
        snprintf(own, sizeof own, "%.*s", (int)strcspn(part, "-"), part);
        size_t of_part = word_distance(nearest->wanted, own);
        if (of_part != SIZE_MAX && of_part + 1 < distance)
            distance = of_part + 1;
    }
    if (distance > allowed || (nearest->word != NULL && distance >= nearest->distance))
        return;
    nearest->word     = word;
    nearest->distance = distance;
}

int hl_options_check_name(const hl_usage *usage, const char *option, const char *kind,
                          const char *name, const char *(*name_at)(size_t), const char *otherwise)
{
    hl_nearest nearest = { .wanted = name };

    for (size_t i = 0; name_at(i) != NULL; i++) {
        if (strcmp(name, name_at(i)) == 0)
            return HL_EXIT_OK;
        hl_nearest_offer(&nearest, name_at(i));
    }
    if (nearest.word != NULL)
        return hl_options_refuse(usage, "--%s: no %s is called '%s' (did you mean '%s'?)", option,
                                 kind, name, nearest.word);
    return hl_options_refuse(usage, "--%s: no %s is called '%s'%s", option, kind, name, otherwise);
}

int hl_options_check_table(const hl_usage *usage, const char *table, bool csv,
                           const char *(*name_at)(size_t), const char *otherwise)
{
    if (table != NULL)
        return hl_options_check_name(usage, "table", "table", table, name_at, otherwise);
    return csv ? hl_options_refuse(usage, "--csv needs --table NAME") : HL_EXIT_OK;
}
