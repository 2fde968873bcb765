/* test_jinja.c - chat templates: the language against Jinja2, roles of bytes, limits, errors. */
#include "tokenize_support.h"

#include <dirent.h>

#include "base/memory.h"
#include "tokenize/jinja.h"

#define CASES "tests/data/templates/cases.json"

static const int64_t now = 1784021400; /* 2026-07-14 09:30 */

/* Renders a template; what it refuses is in page->refusal. */
static hl_status render_with(hl_jinja_page *page, const char *text, const json_t *messages,
                             const json_t *variables, hl_jinja_limits limits)
{
    hl_jinja *template   = NULL;
    hl_jinja_input input = { .messages                = messages,
                             .variables               = variables,
                             .special[HL_SPECIAL_BOS] = { "<s>", 3 },
                             .special[HL_SPECIAL_EOS] = { "</s>", 4 },
                             .add_generation_prompt   = true,
                             .now                     = &now,
                             .limits                  = limits };

    *page            = (hl_jinja_page){ 0 };
    hl_status status = hl_jinja_parse(&template, text, strlen(text), "test.jinja");
    if (status == HL_OK)
        status = hl_jinja_render(page, template, &input);
    hl_jinja_free(template);
    return status;
}

/* ---------------------------------------------------------------------- the language */

/* The message without "test.jinja, line 3: ". */
static const char *error_text(void)
{
    const char *colon = strstr(hl_error_message(), ": ");
    return colon != NULL ? colon + 2 : hl_error_message();
}

static bool same_error(const char *ours, const char *theirs)
{
    /* What a parser says to wrong syntax is its own affair. */
    static const char syntax[] = "TemplateSyntaxError: ";

    if (strncmp(theirs, syntax, strlen(syntax)) == 0)
        return strncmp(ours, syntax, strlen(syntax)) == 0;
    return strcmp(ours, theirs) == 0;
}

static void as_jinja2_does(void **state)
{
    (void)state;
    json_t *file      = json_load_file(CASES, 0, NULL);
    json_t *variables = json_object_get(file, "variables"), *one;
    json_t *messages  = json_object_get(variables, "messages");
    size_t  n_wrong   = 0, i;

    assert_true(json_array_size(json_object_get(file, "cases")) > 300);
    json_array_foreach(json_object_get(file, "cases"), i, one) {
        const char   *text   = json_string_value(json_object_get(one, "template"));
        const char   *wanted = json_string_value(json_object_get(one, "text"));
        const char   *error  = json_string_value(json_object_get(one, "error"));
        hl_jinja_page page;
        hl_status   status = render_with(&page, text, messages, variables, (hl_jinja_limits){ 0 });
        const char *got    = status == HL_OK ? page.text : error_text();
        bool        equal  = wanted != NULL ? status == HL_OK && strcmp(got, wanted) == 0
                                            : status == HL_BAD_INPUT && same_error(got, error);
        n_wrong += !equal;
        if (!equal)
            print_error("%s\n  wanted %s\n  got    %s\n", text, wanted != NULL ? wanted : error,
                        got);
        hl_jinja_page_free(&page);
    }
    assert_int_equal(n_wrong, 0);
    json_decref(file);
}

/* Templates of real models, with what transformers rendered. */
static void real_templates(void **state)
{
    (void)state;
    const char    *folder = shared_path("golden/templates");
    DIR           *list   = opendir(folder);
    struct dirent *entry;
    int            n = 0;

    assert_non_null(list);
    while ((entry = readdir(list)) != NULL) {
        hl_verify_chats *chats = NULL;
        char             path[1024];
        size_t           length = strlen(entry->d_name);
        if (length < 5 || strcmp(entry->d_name + length - 5, ".json") != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        assert_ok(hl_verify_chat(&chats, path, NULL));
        if (chats->n_equal != chats->n_chats)
            fail_msg("%s: %s", chats->name, chats->difference);
        assert_int_equal(chats->first, chats->n_chats);
        hl_verify_chats_free(chats);
        n++;
    }
    closedir(list);
    assert_true(n >= 51);
}

/* ----------------------------------------------------------------------------- roles */

/* The roles of a text, one letter per byte: t is the template. */
static void has_roles(const char *template, const char *messages, const char *text,
                      const char *roles)
{
    json_t       *json = json_loads(messages, 0, NULL);
    hl_jinja_page page;

    assert_non_null(json);
    assert_ok(render_with(&page, template, json, NULL, (hl_jinja_limits){ 0 }));
    assert_string_equal(page.text, text);
    assert_int_equal(page.n_bytes, strlen(roles));
    for (size_t i = 0; i < page.n_bytes; i++) {
        if ("tsuao"[page.roles[i]] != roles[i])
            fail_msg("byte %zu of '%s' has role %c, wanted %c", i, text, "tsuao"[page.roles[i]],
                     roles[i]);
    }
    hl_jinja_page_free(&page);
    json_decref(json);
}

#define TALK                                                                                       \
    "[{\"role\":\"system\",\"content\":\"Sys\"},{\"role\":\"user\",\"content\":\" Hi! \"},"        \
    "{\"role\":\"assistant\",\"content\":\"<t>x</t>Yes\"}]"

static void bytes_know_their_role(void **state)
{
    (void)state;
    has_roles("{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}",
              TALK, "<s>[system]Sys[user] Hi! [assistant]<t>x</t>Yes",
              "tttttttttttsssttttttuuuuutttttttttttaaaaaaaaaaa");
    /* Through methods, filters, slices, concatenation, formats, JSON, blocks and macros. */
    has_roles("{{ messages[1].content.strip() + '.' }}", TALK, "Hi!.", "uuut");
    has_roles("{{ messages[2].content.split('</t>')[-1]|upper }}", TALK, "YES", "aaa");
    has_roles("{{ messages[0].content ~ messages[1].content|trim }}", TALK, "SysHi!", "sssuuu");
    has_roles("{{ (messages[0].content + '-' + messages[1].content)[::-1] }}", TALK, " !iH -syS",
              "uuuuutsss");
    has_roles("{{ '%s|%s' % ('a', messages[0].content) }}", TALK, "a|Sys", "ttsss");
    has_roles("{{ '<{}>'.format(messages[0].content) }}", TALK, "<Sys>", "tssst");
    has_roles("{{ messages[0].content.replace('y', '__') }}", TALK, "S__s", "stts");
    has_roles("{{ messages|map(attribute='content')|join('|') }}", TALK, "Sys| Hi! |<t>x</t>Yes",
              "ssstuuuuutaaaaaaaaaaa");
    has_roles("{{ messages[0].content|tojson }}", "[{\"role\":\"user\",\"content\":\"a\\nb\"}]",
              "\"a\\nb\"", "uuuuuu");
    has_roles("{{ messages[0].content|tojson }}", "[{\"role\":\"user\",\"content\":[{\"n\":1}]}]",
              "[{\"n\": 1}]", "uuuuuuuuuu");
    has_roles("{% set x %}a{{ messages[0].content }}{% endset %}{{ x }}", TALK, "aSys", "tsss");
    has_roles("{% macro m(x) %}({{ x }}){% endmacro %}{{ m(messages[0].content) }}", TALK, "(Sys)",
              "tssst");
    has_roles("{% filter indent(1, true) %}{{ messages[0].content }}{% endfilter %}", TALK, " Sys",
              "tsss");
    has_roles("{{ messages[0].content|default('x') }}{{ messages[0].n|default('x') }}", TALK,
              "Sysx", "ssst");
    has_roles("{{ messages[0].content }}", "[{\"role\":\"tool\",\"content\":\"22\"}]", "22", "oo");
    has_roles("{% set ns = namespace(t='') %}{% for m in messages %}{% set ns.t = ns.t + m.content "
              "%}{% endfor %}{{ ns.t }}",
              TALK, "Sys Hi! <t>x</t>Yes", "sssuuuuuaaaaaaaaaaa");
}

static void strings_that_share_bytes(void **state)
{
    (void)state;
    /* A string may grow where it lies; others that share its bytes must not change. */
    has_roles("{% set a = 'x' + 'y' %}{% set b = a + '1' %}{% set c = a + '2' %}{{ a ~ b ~ c }}",
              "[]", "xyxy1xy2", "tttttttt");
    has_roles("{% set a = 'abc' + 'def' %}{% set b = a[:3] + 'X' %}{% set c = a[3:] + 'Y' %}"
              "{{ a }}{{ b }}{{ c }}{{ a + 'Z' }}",
              "[]", "abcdefabcXdefYabcdefZ", "ttttttttttttttttttttt");
}

static void generation_blocks(void **state)
{
    (void)state;
    json_t       *messages = json_loads(TALK, 0, NULL);
    hl_jinja_page page;

    assert_ok(render_with(&page,
                          "a{% generation %}bc{% endgeneration %}d{% generation %}e"
                          "{% endgeneration %}",
                          messages, NULL, (hl_jinja_limits){ 0 }));
    assert_string_equal(page.text, "abcde");
    assert_int_equal(page.n_generated, 2);
    assert_int_equal(page.generated[0].begin, 1);
    assert_int_equal(page.generated[0].end, 3);
    assert_int_equal(page.generated[1].begin, 4);
    assert_int_equal(page.generated[1].end, 5);
    hl_jinja_page_free(&page);
    json_decref(messages);
}

/* ------------------------------------------------------------------ errors and limits */

static void refuses(const char *template, const char *message)
{
    json_t       *messages = json_loads(TALK, 0, NULL);
    hl_jinja_page page;

    assert_fails(HL_BAD_INPUT, message,
                 render_with(&page, template, messages, NULL, (hl_jinja_limits){ 0 }));
    assert_null(page.text);
    hl_jinja_page_free(&page);
    json_decref(messages);
}

static void errors_name_the_line(void **state)
{
    (void)state;
    refuses("a\n{{ 1 / 0 }}", "test.jinja, line 2: ZeroDivisionError: division by zero");
    refuses("{% if true %}\n\n{{ 'a' + 1 }}{% endif %}", "test.jinja, line 3: TypeError: ");
    refuses("\n\n{% nope %}", "test.jinja, line 3: TemplateSyntaxError: Encountered unknown tag");
    refuses("{{ raise_exception('stop') }}", "test.jinja, line 1: TemplateError: stop");
    refuses("x\n{{ 1|nope }}",
            "test.jinja, line 2: TemplateAssertionError: No filter named 'nope'.");
    refuses("{{ 9223372036854775807 + 1 }}", "OverflowError");
    refuses("{{ 9223372036854775808 }}", "more than 64 bits");
    refuses("{% autoescape true %}{% endautoescape %}", "'autoescape' is not supported");
    hl_jinja *template = NULL;
    assert_fails(HL_BAD_INPUT, "byte 1 is not valid UTF-8",
                 hl_jinja_parse(&template, "a\xff", 2, "test.jinja"));
    assert_null(template);
}

/* Deep nesting is refused, wherever it comes from. */
static void nesting_is_limited(void **state)
{
    (void)state;
    static char text[20000];

    static const char *const pieces[] = { "(",     "[",          "-",
                                          "not ",  "{1:",        "x if x else ",
                                          "'a'.x", "1+",         "a|b",
                                          "x(",    "{% if x %}", "{% for x in y %}" };
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        size_t n = (size_t)snprintf(text, sizeof text, "%s",
                                    pieces[i][0] == '{' && pieces[i][1] == '%' ? "" : "{{ ");
        for (int k = 0; k < 1000; k++)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s", pieces[i]);
        hl_jinja *template = NULL;
        assert_int_equal(hl_jinja_parse(&template, text, n, "test.jinja"), HL_BAD_INPUT);
        assert_null(template);
    }
    refuses("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "RecursionError");
    refuses("{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}", "RecursionError");
    refuses("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "RecursionError");
}

/* Programs that would run for ever, or fill the memory. */
static void work_is_limited(void **state)
{
    (void)state;
    static const char *const greedy[] = {
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 'x' * 1000000000000 }}",
        "{{ [1] * 1000000000000 }}",
        "{% set ns = namespace(s='x') %}{% for i in range(99999) %}{% set ns.s = ns.s + ns.s %}"
        "{% endfor %}",
        "{% for i in range(99999) %}{{ 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' * 1000 }}"
        "{% endfor %}",
        "{% for i in range(99999) %}{{ range(99999)|list|sort|join }}{% endfor %}",
        "{% for i in range(99999) %}{{ ('ab' * 99999).replace('a', 'bbb')|length }}{% endfor %}",
        "{{ '%99999999s' % 1 }}{{ '{:999999}'.format(1) * 999999 }}",
        "{{ (('x,' * 99999).split(',')|map('upper')|list) * 99999 }}",
    };
    json_t         *messages = json_loads(TALK, 0, NULL);
    hl_jinja_limits limits   = { .n_steps = 100000, .n_memory = 1 << 20, .n_output = 1 << 16 };

    for (size_t i = 0; i < sizeof greedy / sizeof *greedy; i++) {
        hl_jinja_page page;
        hl_status     status = render_with(&page, greedy[i], messages, NULL, limits);
        if (status != HL_LIMIT && status != HL_BAD_INPUT)
            fail_msg("%s: %s", greedy[i], hl_status_name(status));
        assert_null(page.text);
        assert_true(page.n_steps <= limits.n_steps);
        hl_jinja_page_free(&page);
    }
    json_decref(messages);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_jinja2_does),        cmocka_unit_test(real_templates),
        cmocka_unit_test(bytes_know_their_role), cmocka_unit_test(strings_that_share_bytes),
        cmocka_unit_test(generation_blocks),     cmocka_unit_test(errors_name_the_line),
        cmocka_unit_test(nesting_is_limited),    cmocka_unit_test(work_is_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
