/* fuzz_jinja.c - arbitrary bytes as a chat template.
 *
 * It is refused with a message that names its line, or rendered with the step oracle: steps, memory,
 * output and time stay within their limits; every byte has a role, the text is valid UTF-8, and
 * nothing of a message is taken for the template's own. */
#include <string.h>

#include "base/utf8.h"
#include "fuzz_file.h"
#include "tokenize/jinja.h"

/* Contents have letters that the corpus does not use, so that their bytes can be found. */
static const char messages_json[] =
    "[{\"role\":\"system\",\"content\":\"\xc3\x9e\xc3\x9e\"},"
    "{\"role\":\"user\",\"content\":\" \xc3\x9e,1 \\n<\xc3\x9e>\"},"
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":{\"name\":\"f\","
    "\"arguments\":{\"x\":[1,2.5,true,null]}}}]},"
    "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"\xc3\x9e\"}]}]";

static const char variables_json[] =
    "{\"n\":7,\"z\":0,\"neg\":-3,\"pi\":3.14159,\"big\":1e20,\"half\":0.5,\"s\":\"Hello, "
    "World\",\"empty\":\"\","
    "\"blank\":\" \\t x "
    "\",\"t\":true,\"f\":false,\"none\":null,\"l\":[3,1,2],\"ll\":[[1,2],[3],[]],"
    "\"words\":[\"b\",\"A\",\"c\",\"a\"],\"d\":{\"b\":1,\"a\":2,\"C\":3},"
    "\"people\":[{\"name\":\"Zoe\",\"age\":30,\"tags\":[\"x\"]},{\"name\":\"adam\",\"age\":25,"
    "\"tags\":[]}],"
    "\"nested\":{\"items\":[1],\"keys\":2,\"a\":{\"b\":{\"c\":\"deep\"}}},\"lines\":"
    "\"one\\ntwo\\r\\nthree\\n\","
    "\"html\":\"<a href='x'>&amp;</a>\",\"emoji\":\"a b\",\"sharp\":\"strasse\","
    "\"long\":\"the quick brown fox jumps over the lazy dog again and again\"}";

static void check_page(const hl_jinja_page *page, const hl_jinja_limits *limits,
                       const uint8_t *template, size_t                   n_template)
{
    /* The template itself may write the letter, directly, by an escape or by its number. */
    bool ours =
        memchr(template, 0xc3, n_template) != NULL || memchr(template, '\\', n_template) != NULL;
    for (char digit = '0'; digit <= '9'; digit++)
        ours = ours || memchr(template, digit, n_template) != NULL;

    PROMISE(page->n_bytes <= limits->n_output && page->text[page->n_bytes] == '\0');
    PROMISE(hl_utf8_find_bad(page->text, page->n_bytes) == page->n_bytes);
    for (size_t i = 0; i < page->n_bytes; i++) {
        PROMISE(page->roles[i] <= HL_ROLE_TOOL);
        /* Upper and lower case of the letter begin with the same byte. */
        PROMISE(ours || (uint8_t)page->text[i] != 0xc3 || page->roles[i] != HL_ROLE_TEMPLATE);
    }
    for (size_t i = 0; i < page->n_generated; i++)
        PROMISE(page->generated[i].begin <= page->generated[i].end);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    static const int64_t now      = 1784021400;
    static json_t       *messages = NULL, *variables = NULL;
    hl_jinja *template = NULL;
    hl_jinja_page page;

    if (messages == NULL)
        messages = json_loads(messages_json, 0, NULL);
    if (variables == NULL)
        variables = json_loads(variables_json, 0, NULL);
    PROMISE(messages != NULL && variables != NULL);
    double begin = fuzz_seconds();
    if (hl_jinja_parse(&template, (const char *)bytes, n_bytes, "fuzz.jinja") != HL_OK)
        return refused(template);
    hl_jinja_input input = {
        .messages                = messages,
        .variables               = variables,
        .special[HL_SPECIAL_BOS] = { "<s>", 3 },
        .special[HL_SPECIAL_EOS] = { "</s>", 4 },
        .add_generation_prompt   = true,
        .now                     = &now,
        .limits                  = { .n_steps = 200000, .n_memory = 8 << 20, .n_output = 1 << 18 },
    };
    hl_status status = hl_jinja_render(&page, template, &input);
    PROMISE(page.n_steps <= input.limits.n_steps);
    if (status == HL_OK) {
        PROMISE(page.n_memory <= input.limits.n_memory);
        check_page(&page, &input.limits, bytes, n_bytes);
    } else {
        PROMISE(page.text == NULL && (status == HL_LIMIT || page.refusal != NULL));
        PROMISE(hl_find_bytes(hl_error_message(), strlen(hl_error_message()), "fuzz.jinja", 10) !=
                NULL);
    }
    PROMISE(fuzz_in_time(begin, n_bytes));
    hl_jinja_page_free(&page);
    hl_jinja_free(template);
    return 0;
}
