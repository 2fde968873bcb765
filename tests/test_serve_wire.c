/* test_serve_wire.c - requests as options; numbers and texts as JSON. */
#include "support.h"

#include <math.h>

#include "serve/texts.h"
#include "serve/wire.h"

#define MODEL "tests/data/families/llama3"

static int open_all(void **state)
{
    hl_model *model = NULL;

    if (hl_model_open(&model, MODEL) != HL_OK)
        return -1;
    *state = model;
    return 0;
}

static int close_all(void **state)
{
    hl_model_close(*state);
    return 0;
}

/* Parses JSON with single quotes instead of double ones. */
static json_t *parse(const char *text)
{
    char    copy[4096];
    json_t *tree = NULL;

    snprintf(copy, sizeof copy, "%s", text);
    for (char *at = copy; *at != '\0'; at++)
        *at = *at == '\'' ? '"' : *at;
    assert_ok(hl_json_parse(&tree, copy, strlen(copy), "test"));
    return tree;
}

static hl_status read_text(hl_wire_request *out, hl_wire_fault *fault, json_t *tree, bool is_chat,
                           const hl_model *model)
{
    return hl_wire_read(out, fault, tree, is_chat,
                        &(hl_wire_context){ .model = model, .model_name = "m" });
}

static void defaults(void **state)
{
    hl_wire_request request;
    hl_wire_fault   fault;
    json_t         *tree = parse("{'prompt': 'a', 'model': 'm', 'temperature': null, 'user': 'x'}");

    assert_ok(read_text(&request, &fault, tree, false, *state));
    assert_int_equal(request.max_tokens, 16);
    assert_int_equal(request.n, 1);
    assert_true(request.sample.temperature == 1.0);
    assert_false(request.stream || request.logprobs || request.has_seed || request.watch);
    hl_wire_request_release(&request);
    json_decref(tree);

    tree = parse("{'messages': [], 'tools': [], 'frequency_penalty': 0, 'logit_bias': {}}");
    assert_ok(read_text(&request, &fault, tree, true, *state));
    assert_int_equal(request.max_tokens, -1);
    hl_wire_request_release(&request);
    json_decref(tree);
}

static void all_members(void **state)
{
    hl_wire_request request;
    hl_wire_fault   fault;
    json_t         *tree =
        parse("{'prompt': 'a', 'stream': true, 'stream_options': {'include_usage': true}, 'n': 3,"
              "'max_tokens': 7, 'temperature': 0.5, 'top_p': 0.25, 'seed': -1, 'logprobs': 4,"
              "'stop': ['x', 'yz'], 'echo': true, 'headlight': {'rows': ['nosink', 'entropy'],"
              "'off': ['L0H1', 'L1'], 'patterns': 'L1H0', 'prompt': true}}");

    assert_ok(read_text(&request, &fault, tree, false, *state));
    assert_true(request.stream && request.include_usage && request.echo && request.logprobs);
    assert_int_equal(request.n, 3);
    assert_int_equal(request.max_tokens, 7);
    assert_int_equal(request.n_top, 4);
    assert_true(request.sample.temperature == 0.5 && request.sample.top_p == 0.25);
    assert_true(request.has_seed && request.sample.seed == UINT64_MAX);
    assert_int_equal(request.n_stops, 2);
    assert_string_equal(request.stops[1], "yz");
    assert_true(request.watch && request.with_prompt);
    assert_int_equal(request.rows,
                     HL_JOB_ROWS(HL_TRACE_ENTROPY_NOSINK) | HL_JOB_ROWS(HL_TRACE_ENTROPY));
    assert_int_equal(request.patterns->n_heads, 1);
    assert_int_equal(hl_gates_n_changed(request.gates), 1 + request.gates->n_heads);
    hl_wire_request_release(&request);
    json_decref(tree);
}

/* top_p 0 selects the most likely token, not all tokens. */
static void top_p_of_nothing(void **state)
{
    hl_wire_request request;
    hl_wire_fault   fault;
    json_t         *tree = parse("{'prompt': 'a', 'top_p': 0}");

    assert_ok(read_text(&request, &fault, tree, false, *state));
    assert_int_equal(request.sample.top_k, 1);
    json_decref(tree);
}

static void refusals(void **state)
{
    static const struct {
        const char *text, *param, *message;
        bool        is_chat;
    } cases[] = {
        { "[]", "", "wanted an object", false },
        { "{}", "prompt", "prompt is missing", false },
        { "{'prompt': 'a', 'messages': []}", "messages", "Unrecognized", false },
        { "{'prompt': 'a', 'temperature': 2.5}", "temperature", "wanted 0 to 2", false },
        { "{'prompt': 'a', 'temperature': '1'}", "temperature", "a string", false },
        { "{'prompt': 'a', 'max_tokens': 1.5}", "max_tokens", "whole number", false },
        { "{'prompt': 'a', 'max_tokens': 0}", "max_tokens", "without echo", false },
        { "{'prompt': 'a', 'stream': 1}", "stream", "true or false", false },
        { "{'prompt': 'a', 'stream_options': {'x': true}}", "stream_options", "unknown", false },
        { "{'prompt': 'a', 'stream_options': {'include_usage': true}}", "stream_options",
          "needs stream", false },
        { "{'prompt': 'a', 'n': 17}", "n", "1 to 16", false },
        { "{'prompt': 'a', 'stop': ['a', 5]}", "stop", "an integer", false },
        { "{'prompt': 'a', 'best_of': 2}", "best_of", "1 to 1", false },
        { "{'prompt': 'a', 'suffix': 'b'}", "suffix", "not supported", false },
        { "{'prompt': 'a', 'logprobs': true}", "logprobs", "whole number", false },
        { "{'prompt': 'a', 'headlight': {'what': 1}}", "headlight", "'what'", false },
        { "{'prompt': 'a', 'headlight': {'off': ['L9H0']}}", "headlight", "L9H0", false },
        { "{'prompt': 'a', 'headlight': {'off': [5]}}", "headlight", "not a head", false },
        { "{'prompt': 'a', 'headlight': {'rows': ['change']}}", "headlight", "'change'", false },
        { "{'messages': [], 'top_logprobs': 3}", "top_logprobs", "needs logprobs", true },
        { "{'messages': [], 'tools': 1}", "tools", "wanted an array", true },
        { "{'messages': [], 'grammar': 'x'}", "grammar", "not supported", true },
        { "{'messages': [], 'response_format': {'type': 'json_object'}}", "response_format",
          "generates only text", true },
        { "{'messages': [], 'max_tokens': 0}", "max_tokens", "wanted 1", true },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hl_wire_request request;
        hl_wire_fault   fault;
        json_t         *tree   = parse(cases[i].text);
        hl_status       status = read_text(&request, &fault, tree, cases[i].is_chat, *state);

        if (status == HL_OK)
            fail_msg("%s is accepted", cases[i].text);
        assert_int_equal(fault.status, 400);
        assert_string_equal(fault.param, cases[i].param);
        if (strstr(hl_error_message(), cases[i].message) == NULL)
            fail_msg("'%s' is not in '%s'", cases[i].message, hl_error_message());
        hl_wire_request_release(&request);
        json_decref(tree);
    }
}

static void other_model(void **state)
{
    hl_wire_request request;
    hl_wire_fault   fault;
    json_t         *tree = parse("{'prompt': 'a', 'model': 'other'}");

    assert_fails(HL_NOT_FOUND, "`other`", read_text(&request, &fault, tree, false, *state));
    assert_int_equal(fault.status, 404);
    assert_string_equal(fault.code, "model_not_found");
    hl_wire_request_release(&request);
    json_decref(tree);
}

static void token_ids(void **state)
{
    static const struct {
        const char *text;
        int64_t     n_prompts; /* 0: the request is refused */
    } cases[] = {
        { "[1, 2, 3]", 1 },
        { "[[1], [2, 3]]", 2 },
        { "[]", 0 },
        { "[[]]", 0 },
        { "[1, -1]", 0 },
        { "[1, 1000000]", 0 },
        { "[1, 'a']", 0 },
        { "[1, 2.5]", 0 },
        { "[[1], {'a': 1}]", 0 },
        { "5", 0 },
        { "[[1],[1],[1],[1],[1],[1],[1],[1],[1],[1],[1],[1],[1],[1],[1],[1],[1]]", 0 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hl_served_prompts prompts;
        json_t           *tree = parse(cases[i].text);
        hl_status         status =
            hl_served_prompts_read(&prompts, tree, false, &(hl_prompt_reader){ .model = *state });

        if ((status == HL_OK) != (cases[i].n_prompts > 0))
            fail_msg("%s: %s", cases[i].text, hl_status_name(status));
        if (status == HL_OK)
            assert_int_equal(prompts.count, cases[i].n_prompts);
        hl_served_prompts_release(&prompts);
        json_decref(tree);
    }
}

/* ------------------------------------------------------------------------------ JSON */

static void check_dump(json_t *tree, const char *wanted)
{
    char *text = hl_wire_dump(tree);

    assert_non_null(text);
    assert_string_equal(text, wanted);
    free(text);
}

static void numbers_and_texts(void **state)
{
    const float numbers[4] = { 1.5f, NAN, INFINITY, -2.0f };

    (void)state;
    check_dump(hl_wire_numbers(numbers, 2, 2), "[[1.5,null],[null,-2.0]]");
    check_dump(hl_wire_numbers(numbers, 0, 2), "[1.5,null]");
    check_dump(json_pack("[o]", hl_json_text("a\xff\xc3", 3)), "[\"a\xef\xbf\xbd\xef\xbf\xbd\"]");
    check_dump(json_pack("[o]", hl_wire_piece("\xe2\x80", 2)), "[\"\\\\xe2\\\\x80\"]");
    check_dump(json_pack("[o]", hl_wire_piece("\xc3\xa9", 2)), "[\"\xc3\xa9\"]");
    assert_null(hl_wire_dump(NULL));
}

static void errors(void **state)
{
    (void)state;
    check_dump(hl_wire_error(400, "bad \xff", "n", NULL),
               "{\"error\":{\"message\":\"bad \xef\xbf\xbd\",\"type\":\"invalid_request_error\","
               "\"param\":\"n\",\"code\":null}}");
    check_dump(hl_wire_error(429, "m", "", "c"),
               "{\"error\":{\"message\":\"m\",\"type\":\"rate_limit_error\",\"param\":null,"
               "\"code\":\"c\"}}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),          cmocka_unit_test(all_members),
        cmocka_unit_test(top_p_of_nothing),  cmocka_unit_test(refusals),
        cmocka_unit_test(other_model),       cmocka_unit_test(token_ids),
        cmocka_unit_test(numbers_and_texts), cmocka_unit_test(errors),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
