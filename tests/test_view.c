/* test_view.c - views of a prompt: attention, entropies and lens as transformers computed them,
 * means of heads, rows requested in pieces, and texts of tokens. */
#include "model_support.h"

#include <math.h>

#include "formats/safetensors.h"
#include "measure/view.h"

enum { MOST_TOKENS = 64 };

static const char *const families[] = { "tests/data/families/llama3", "tests/data/families/phi3",
                                        "tests/data/families/gpt_neox",
                                        "tests/data/families/starcoder2" };

enum { N_FAMILIES = sizeof families / sizeof *families };

typedef struct golden {
    hl_model       *model;
    hl_safetensors *expected;
    hl_prompt       prompt; /* the first sequence */
} golden;

static golden open_golden(const char *folder)
{
    golden g = { .model = open_model(folder) };

    assert_ok(hl_safetensors_open(&g.expected, in_folder(folder, "expected.safetensors")));
    const hl_tensor *tokens = hl_safetensors_find(g.expected, "tokens");
    g.prompt                = (hl_prompt){ .tokens = tokens->data, .n_tokens = tokens->shape[1] };
    return g;
}

static void close_golden(golden *g)
{
    hl_safetensors_close(g->expected);
    hl_model_close(g->model);
}

static void assert_close(double got, double wanted, double tolerance, const char *what)
{
    if (!(fabs(got - wanted) <= tolerance))
        fail_msg("%s is %.9g, wanted %.9g", what, got, wanted);
}

/* -------------------------------------------------------------------------- numbers */

/* The tolerances are those of `verify`. */
static void check_head(const golden *g, const hl_token_map *map, int64_t layer, int64_t head)
{
    const hl_tensor *entropy = hl_safetensors_find(g->expected, "entropy");  /* L B H S */
    const hl_tensor *pattern = hl_safetensors_find(g->expected, "pattern0"); /* H S S */
    int64_t          n       = g->prompt.n_tokens;
    int64_t          first   = (layer * entropy->shape[1] * entropy->shape[2] + head) * n;

    for (int64_t i = 0; i < n; i++)
        assert_close((double)map->entropy[i], ((const double *)entropy->data)[first + i], 1e-4,
                     map->name);
    for (int64_t i = 0; layer == 0 && i < n * n; i++)
        assert_close((double)map->attention[i],
                     (double)((const float *)pattern->data)[head * n * n + i], 1e-5, map->name);
}

static void check_golden(const char *folder)
{
    golden               g    = open_golden(folder);
    const hl_model_info *info = hl_model_get_info(g.model);
    hl_head              insets[MOST_TOKENS];
    hl_token_view       *view = NULL;
    int64_t              n    = info->n_layers * info->n_heads;

    assert_in_range(n, 1, MOST_TOKENS);
    for (int64_t i = 0; i < n; i++)
        insets[i] = (hl_head){ i / info->n_heads, i % info->n_heads };
    assert_ok(hl_token_view_new(&view, g.model, &g.prompt,
                                &(hl_token_view_options){ .insets = insets, .n_insets = n }));
    assert_int_equal(view->n_maps, n + 1);
    assert_int_equal(view->is_causal, !info->is_encoder);
    for (int64_t i = 0; i < n; i++)
        check_head(&g, &view->maps[1 + i], insets[i].layer, insets[i].head);

    /* The first map is the mean of all others. */
    assert_int_equal(view->maps[0].n_heads, n);
    for (int64_t place = 0; place < view->n_tokens * view->n_tokens; place++) {
        double sum = 0.0;
        for (int64_t i = 0; i < n; i++)
            sum += (double)view->maps[1 + i].attention[place];
        assert_close((double)view->maps[0].attention[place], sum / (double)n, 1e-6, "the mean");
    }
    hl_token_view_free(view);
    close_golden(&g);
}

static void maps_are_as_expected(void **state)
{
    (void)state;
    for (int i = 0; i < N_FAMILIES; i++)
        check_golden(families[i]);
}

static void maps_of_encoders_are_as_expected(void **state)
{
    (void)state;
    if (!path_exists(in_shared("golden/families/bert")))
        skip();
    check_golden(in_shared("golden/families/bert"));
    check_golden(in_shared("golden/families/modernbert"));
}

static void check_pieces(const char *folder)
{
    static const int64_t  pieces[] = { 1, 5, 31 };
    golden                g        = open_golden(folder);
    hl_head               inset    = { 1, 2 };
    hl_token_view_options options  = { .insets = &inset, .n_insets = 1 };
    hl_token_view        *whole    = NULL;

    assert_ok(hl_token_view_new(&whole, g.model, &g.prompt, &options));
    for (int i = 0; i < 3; i++) {
        hl_token_view *view = NULL;
        assert_ok(hl_token_view_in_pieces(&view, g.model, &g.prompt, &options, pieces[i]));
        for (int64_t map = 0; map < 2; map++) {
            for (int64_t place = 0; place < view->n_tokens * view->n_tokens; place++)
                assert_close((double)view->maps[map].attention[place],
                             (double)whole->maps[map].attention[place], 2e-6, "attention");
            for (int64_t row = 0; row < view->n_tokens; row++)
                assert_close((double)view->maps[map].entropy[row],
                             (double)whole->maps[map].entropy[row], 2e-5, "entropy");
        }
        hl_token_view_free(view);
    }
    hl_token_view_free(whole);
    close_golden(&g);
}

static void pieces_make_the_whole(void **state)
{
    (void)state;
    check_pieces(families[0]);
    if (path_exists(in_shared("golden/families/bert")))
        check_pieces(in_shared("golden/families/bert"));
}

/* Some heads of several layers are averaged, and the map has a name. */
static void chosen_heads_are_averaged(void **state)
{
    golden         g         = open_golden(families[0]);
    const hl_head  heads[]   = { { 0, 1 }, { 2, -1 }, { 0, 1 } };
    const hl_head  singles[] = { { 0, 1 }, { 2, 0 }, { 2, 1 }, { 2, 2 }, { 2, 3 } };
    hl_token_view *view      = NULL;
    (void)state;

    assert_ok(
        hl_token_view_new(&view, g.model, &g.prompt,
                          &(hl_token_view_options){
                              .heads = heads, .n_heads = 3, .insets = singles, .n_insets = 5 }));
    assert_int_equal(view->maps[0].n_heads, 5); /* named twice, counted once */
    assert_string_equal(view->maps[0].name, "mean of 5 chosen heads");
    assert_string_equal(view->maps[2].name, "L2H0");
    for (int64_t row = 0; row < view->n_tokens; row++) {
        double sum = 0.0;
        for (int i = 1; i <= 5; i++)
            sum += (double)view->maps[i].entropy[row];
        assert_close((double)view->maps[0].entropy[row], sum / 5.0, 1e-6, "the mean entropy");
    }
    hl_token_view_free(view);
    assert_ok(hl_token_view_new(&view, g.model, &g.prompt,
                                &(hl_token_view_options){ .heads = heads + 1, .n_heads = 1 }));
    assert_string_equal(view->maps[0].name, "L2, mean of 4 heads");
    hl_token_view_free(view);
    close_golden(&g);
}

static void what_is_not_there_is_refused(void **state)
{
    golden         g    = open_golden(families[0]);
    hl_token_view *view = NULL;
    hl_prompt      none = { .tokens = g.prompt.tokens }, many = g.prompt, odd = g.prompt;
    const int64_t  bad[] = { 1, 1 << 20 };
    (void)state;

    assert_fails(HL_BAD_ARGUMENT, "no tokens", hl_token_view_new(&view, g.model, &none, NULL));
    many.n_tokens = HL_VIEW_MOST_TOKENS + 1;
    assert_fails(HL_LIMIT, "8193 tokens", hl_token_view_new(&view, g.model, &many, NULL));
    odd.tokens   = bad;
    odd.n_tokens = 2;
    assert_true(hl_token_view_new(&view, g.model, &odd, NULL) != HL_OK);
    static const hl_head     wrong[] = { { 3, 0 }, { -1, 0 }, { 0, 4 }, { 0, -2 } };
    static const char *const why[]   = { "no layer 3", "no layer -1", "no head 4", "no head -2" };
    for (int i = 0; i < 4; i++) {
        assert_fails(
            HL_BAD_ARGUMENT, why[i],
            hl_token_view_new(&view, g.model, &g.prompt,
                              &(hl_token_view_options){ .heads = &wrong[i], .n_heads = 1 }));
        assert_null(view);
    }
    close_golden(&g);
}

/* ---------------------------------------------------------------------- prompt maps */

/* Checks what a byte stands for, and its distance from the exact value. */
static void check_cells(const hl_prompt_maps *maps, int64_t map, const hl_token_map *exact)
{
    const uint8_t *cell = maps->cells + map * maps->n_cells;

    for (int64_t row = 0; row < maps->n_tokens; row++) {
        double peak = (double)maps->peaks[map * maps->n_tokens + row];

        for (int64_t key = 0; key < (maps->is_causal ? row + 1 : maps->n_tokens); key++)
            assert_close(peak * *cell++ / 255.0,
                         (double)exact->attention[row * maps->n_tokens + key], peak / 510.0 + 1e-6,
                         exact->name);
    }
    assert_ptr_equal(cell, maps->cells + (map + 1) * maps->n_cells);
}

/* The first active row has the largest weight beside the first key of all rows that see 8 keys, and all
 * active rows are true, in decreasing order and of different pairs of ids. */
static void check_active(const hl_prompt_maps *maps, hl_head head, const hl_token_map *exact)
{
    const hl_active_row *active =
        maps->active + (head.layer * maps->n_heads + head.head) * HL_ACTIVE_ROWS;
    int64_t n    = maps->n_tokens;
    double  most = 0.0;

    for (int64_t row = 0; row < n; row++) {
        for (int64_t key = 1; key < (maps->is_causal ? row + 1 : n); key++) {
            if ((maps->is_causal ? row + 1 : n) >= 8)
                most = fmax(most, (double)exact->attention[row * n + key]);
        }
    }
    assert_close(most > 0.0 ? (double)active[0].attention : 0.0, most, 1e-6, exact->name);
    for (int i = 0; i < HL_ACTIVE_ROWS && active[i].row >= 0; i++) {
        assert_close((double)active[i].attention,
                     (double)exact->attention[active[i].row * n + active[i].key], 1e-6,
                     exact->name);
        for (int before = 0; before < i; before++) {
            assert_true(active[before].attention >= active[i].attention);
            assert_false(maps->tokens[active[before].row].id == maps->tokens[active[i].row].id &&
                         maps->tokens[active[before].key].id == maps->tokens[active[i].key].id);
        }
    }
}

/* Compares all heads with the floats of views, which are compared with transformers above; in
 * pieces, too. */
static void check_maps(const char *folder, int64_t at_once)
{
    golden               g       = open_golden(folder);
    const hl_model_info *info    = hl_model_get_info(g.model);
    const hl_tensor     *entropy = hl_safetensors_find(g.expected, "entropy"); /* L B H S */
    int64_t              n       = g.prompt.n_tokens;
    hl_prompt_maps      *maps    = NULL;

    assert_ok(hl_prompt_maps_in_pieces(&maps, g.model, &g.prompt, NULL, at_once));
    assert_int_equal(maps->n_maps, 1 + info->n_layers * info->n_heads);
    assert_int_equal(maps->heads[0].layer, -1);
    for (int64_t i = 0; i < maps->n_maps; i++) {
        hl_token_view        *view = NULL;
        hl_token_view_options one  = { .heads = &maps->heads[i], .n_heads = i > 0 };

        assert_ok(hl_token_view_new(&view, g.model, &g.prompt, &one));
        check_cells(maps, i, &view->maps[0]);
        if (i > 0)
            check_active(maps, maps->heads[i], &view->maps[0]);
        hl_token_view_free(view);
    }
    for (int64_t i = 0; i < info->n_layers * info->n_heads * n; i++) {
        int64_t layer = i / (info->n_heads * n), rest = i % (info->n_heads * n);
        int64_t place = layer * entropy->shape[1] * info->n_heads * n + rest;
        assert_close((double)maps->entropy[i], ((const double *)entropy->data)[place], 1e-4,
                     "a row's entropy");
    }
    hl_prompt_maps_free(maps);
    close_golden(&g);
}

static void bytes_stand_for_attention(void **state)
{
    (void)state;
    check_maps(families[0], 0);
    check_maps(families[1], 5);
    if (path_exists(in_shared("golden/families/bert")))
        check_maps(in_shared("golden/families/bert"), 7);
}

static void maps_have_a_budget(void **state)
{
    golden          g       = open_golden(families[0]);
    int64_t         n       = g.prompt.n_tokens;
    size_t          one     = (size_t)(n * (n + 1) / 2);
    const hl_head   heads[] = { { 1, 2 }, { 2, -1 }, { 1, 2 } };
    hl_prompt_maps *maps    = NULL;
    (void)state;

    /* There is room for the mean, and heads are named: both are made. */
    assert_ok(hl_prompt_maps_new(&maps, g.model, &g.prompt,
                                 &(hl_prompt_maps_options){ heads, 3, one, false, 0 }));
    assert_int_equal(maps->n_maps, 6);
    assert_int_equal(maps->heads[0].layer, -1);
    assert_int_equal(maps->heads[1].head, 2);
    assert_int_equal(maps->heads[2].layer, 2);
    hl_prompt_maps_free(maps);
    /* There is no room for the mean: named heads only, or the mean if there are none. */
    assert_ok(hl_prompt_maps_new(&maps, g.model, &g.prompt,
                                 &(hl_prompt_maps_options){ heads, 1, one - 1, false, 0 }));
    assert_int_equal(maps->n_maps, 1);
    assert_int_equal(maps->heads[0].layer, 1);
    hl_prompt_maps_free(maps);
    assert_ok(hl_prompt_maps_new(&maps, g.model, &g.prompt,
                                 &(hl_prompt_maps_options){ .most_cells = 1 }));
    assert_int_equal(maps->n_maps, 1);
    assert_int_equal(maps->heads[0].layer, -1);
    hl_prompt_maps_free(maps);
    const hl_head wrong = { 0, 4 };
    assert_fails(HL_BAD_ARGUMENT, "no head 4",
                 hl_prompt_maps_new(&maps, g.model, &g.prompt,
                                    &(hl_prompt_maps_options){ .heads = &wrong, .n_heads = 1 }));
    assert_null(maps);
    close_golden(&g);
}

/* ----------------------------------------------------------------------------- lens */

/* Tolerances are those of `verify`; in these files no two best tokens are within rounding. */
static void check_lens(const char *folder, int64_t begin, int64_t end)
{
    golden           g       = open_golden(folder);
    const hl_tensor *top     = hl_safetensors_find(g.expected, "lens_top");
    const hl_tensor *entropy = hl_safetensors_find(g.expected, "lens_entropy");
    hl_lens_view    *view    = NULL;
    int64_t          n       = g.prompt.n_tokens;
    int              n_other = 0;

    assert_ok(hl_lens_view_new(&view, g.model, &g.prompt,
                               &(hl_lens_view_options){ .begin = begin, .end = end }));
    assert_int_equal(view->n_layers + 1, top->shape[0]);
    assert_int_equal(view->n_tokens, end > 0 ? end - begin : n);
    assert_int_equal(view->first, begin);
    for (int64_t i = 0; i < (view->n_layers + 1) * view->n_tokens; i++) {
        int64_t token = begin + i % view->n_tokens, place = i / view->n_tokens * n + token;
        assert_close((double)view->entropy[i], ((const double *)entropy->data)[place], 1e-3,
                     "the entropy of the lens");
        n_other += view->guesses[i].id != ((const int64_t *)top->data)[place];
        bool follows = token + 1 < n && view->guesses[i].id == g.prompt.tokens[token + 1];
        assert_int_equal(view->guesses[i].is_marked, follows);
    }
    assert_int_equal(n_other, 0);
    hl_lens_view_free(view);
    close_golden(&g);
}

static void lens_is_as_expected(void **state)
{
    (void)state;
    for (int i = 0; i < N_FAMILIES; i++) {
        check_lens(families[i], 0, 0);
        check_lens(families[i], 7, 19); /* tokens after others that were fed without the lens */
    }
    if (path_exists(in_shared("golden/families/gemma2"))) {
        check_lens(in_shared("golden/families/gemma2"), 0, 0);
        check_lens(in_shared("golden/families/gpt2"), 0, 1);
        check_lens(in_shared("golden/families/bloom"), 31, 32);
    }
}

static void lens_is_refused(void **state)
{
    hl_lens_view *view = NULL;
    golden        g    = open_golden(families[0]);
    (void)state;

    assert_fails(HL_BAD_ARGUMENT, "zoom 3:40: wanted tokens A:B with 0 <= A < B <= 32",
                 hl_lens_view_new(&view, g.model, &g.prompt,
                                  &(hl_lens_view_options){ .begin = 3, .end = 40 }));
    assert_null(view);
    close_golden(&g);
    if (!path_exists(in_shared("golden/families/bert")))
        skip();
    g = open_golden(in_shared("golden/families/bert"));
    assert_fails(HL_UNSUPPORTED, "no logit lens",
                 hl_lens_view_new(&view, g.model, &g.prompt, NULL));
    close_golden(&g);
}

/* ---------------------------------------------------------------------------- names */

static void check_names(const char *tokenizer_path, const char *text, const char *const *wanted,
                        size_t n_wanted)
{
    hl_tokenizer *tokenizer = NULL;
    hl_encoding  *encoding  = NULL;

    assert_ok(hl_tokenizer_open(&tokenizer, tokenizer_path));
    assert_ok(hl_tokenizer_encode(&encoding, tokenizer, text, strlen(text),
                                  &(hl_encode_options){ .add_special = true }));
    assert_int_equal(encoding->n_tokens, n_wanted);
    for (size_t i = 0; i < n_wanted; i++) {
        hl_view_token token;
        bool          special = encoding->types[i] == HL_TOKEN_SPECIAL;
        assert_ok(hl_view_name_token(&token, tokenizer, encoding->ids[i]));
        assert_string_equal(token.text, wanted[i]);
        assert_int_equal(token.is_marked, special);
        hl_free(token.text);
    }
    hl_encoding_free(encoding);
    hl_tokenizer_close(tokenizer);
}

/* Every invalid or invisible byte gets a sign; nothing else changes. */
static void tokens_have_names(void **state)
{
    static const char *const bytes[]  = { "the",   "\u00b7old", "\u23ce", "\u21e5",
                                          "\\xf0", "\\x9f",     "\\x99",  "\\x82" };
    static const char *const words[]  = { "[CLS]", "un", "##able", "[UNK]", "x", "[SEP]" };
    static const char *const pieces[] = { "\u00b7un", "able",   "\u00b7man",
                                          "\u00b7",   "\u00b7", "\u00e9" };
    static const char *const marked[] = { "<|endoftext|>", "the" };
    (void)state;
    check_names("models/demo", "the old\n\t\xf0\x9f\x99\x82", bytes, 8);
    check_names("models/demo", "<|endoftext|>the", marked, 2);
    check_names("tests/data/tokenizers/small-wordpiece", "unable < x", words, 6);
    check_names("tests/data/tokenizers/small-unigram", "unable man  \u00e9", pieces, 6);
}

static void numbers_name_tokens_without_tokenizer(void **state)
{
    hl_view_token token;
    (void)state;
    assert_ok(hl_view_name_token(&token, NULL, 4711));
    assert_string_equal(token.text, "#4711");
    hl_free(token.text);
}

/* Text that a template added is marked, whether or not its tokens are special. */
static void templates_are_marked(void **state)
{
    const int64_t  ids[]   = { 5, 6, 7 };
    const uint8_t  roles[] = { HL_ROLE_TEMPLATE, HL_ROLE_USER, HL_ROLE_TEMPLATE };
    hl_prompt      prompt  = { ids, 3, roles, NULL };
    hl_view_token *tokens  = NULL;
    (void)state;

    assert_ok(hl_view_tokens_new(&tokens, &prompt));
    assert_true(tokens[0].is_marked && !tokens[1].is_marked && tokens[2].is_marked);
    hl_view_tokens_free(tokens, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_are_as_expected),
        cmocka_unit_test(maps_of_encoders_are_as_expected),
        cmocka_unit_test(pieces_make_the_whole),
        cmocka_unit_test(chosen_heads_are_averaged),
        cmocka_unit_test(bytes_stand_for_attention),
        cmocka_unit_test(maps_have_a_budget),
        cmocka_unit_test(what_is_not_there_is_refused),
        cmocka_unit_test(lens_is_as_expected),
        cmocka_unit_test(lens_is_refused),
        cmocka_unit_test(tokens_have_names),
        cmocka_unit_test(numbers_name_tokens_without_tokenizer),
        cmocka_unit_test(templates_are_marked),
    };

    return cmocka_run_group_tests_name("view", tests, NULL, NULL);
}
