/* test_engine.c - many jobs at once: each has the same bytes as from a generator alone. */
#include "engine_support.h"

#include "formats/safetensors.h"

/* -------------------------------------------------------------- jobs together */

static void shuffle(int *order, int n, uint32_t seed)
{
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int other    = (int)(next_random(&seed) % (uint32_t)(i + 1));
        int kept     = order[i];
        order[i]     = order[other];
        order[other] = kept;
    }
}

/* Runs all requests through one engine, in a different order. */
static void run_jobs(transcript *out, const hl_model *model, const request *requests, int n_slots,
                     int n_threads, uint32_t seed)
{
    hl_engine *engine = open_engine(
        model,
        (hl_engine_options){ .n_slots = n_slots, .n_queue = N_JOBS, .n_threads = n_threads });
    hl_job *jobs[N_JOBS];
    int     order[N_JOBS], n_left = N_JOBS;
    bool    is_over[N_JOBS] = { false };

    shuffle(order, N_JOBS, seed);
    for (int i = 0; i < N_JOBS; i++) {
        out[order[i]]  = (transcript){ 0 };
        jobs[order[i]] = submit(engine, &requests[order[i]].options);
        if (i % 5 == 4)
            usleep(2000);
    }
    while (n_left > 0) {
        for (int i = 0; i < N_JOBS; i++) {
            if (is_over[i])
                continue;
            is_over[i] = take(&out[i], jobs[i], 0.001, hl_model_get_info(model));
            n_left -= is_over[i] ? 1 : 0;
        }
    }
    for (int i = 0; i < N_JOBS; i++)
        hl_job_free(jobs[i]);
    hl_engine_close(engine);
}

/* Generates the request's text with a generator. */
static void generate(transcript *out, const hl_model *model, const request *r)
{
    hl_session         *session   = NULL;
    hl_generator       *generator = NULL;
    hl_generated        token     = { 0 };
    hl_generate_options options   = { .sample     = r->options.sample,
                                      .max_tokens = r->options.max_tokens,
                                      .ignore_end = r->options.ignore_end,
                                      .gates      = r->options.gates };

    *out = (transcript){ 0 };
    assert_ok(hl_session_open(
        &session, model,
        &(hl_session_options){
            .n_ctx = N_CTX, .n_chunk = CHUNK, .n_threads = 1, .wants = HL_WANT_LAST_DRAW }));
    assert_ok(hl_generator_open(&generator, session, &options));
    assert_ok(hl_generator_prompt(generator, r->prompt, r->options.n_tokens));
    while (token.stop == HL_STOP_NONE) {
        assert_ok(hl_generator_next(&token, generator));
        out->tokens[out->n++] = token;
    }
    hl_generator_close(generator);
    hl_session_close(session);
}

static void each_job_is_as_if_alone(void **state)
{
    static request    requests[N_JOBS];
    static transcript first[N_JOBS], again[N_JOBS], alone;
    const char *const models[]  = { LLAMA, NEOX, LLAMA };
    const char *const devices[] = { NULL, NULL, "host" };
    (void)state;

    for (int i = 0; i < N_JOBS; i++)
        make_request(&requests[i], i);
    for (int m = 0; m < 3; m++) {
        hl_model *model = open_model(models[m]);

        assert_ok(select_device(devices[m]));
        run_jobs(first, model, requests, 5, 2, 1);
        run_jobs(again, model, requests, 1, 1, 2);
        for (int i = 0; i < N_JOBS; i++) {
            generate(&alone, model, &requests[i]);
            assert_same_transcript(&first[i], &again[i]);
            assert_int_equal(first[i].n, alone.n);
            assert_same_tokens(first[i].tokens, alone.tokens, alone.n);
            for (int64_t k = 0; k < alone.n; k++)
                assert_int_equal(first[i].positions[k], requests[i].options.n_tokens + k);
        }
        hl_model_close(model);
    }
    assert_ok(select_device(NULL));
}

/* ---------------------------------------------------------------------- events */

typedef struct all_logits {
    float logits[N_CTX][D_VOCAB];
} all_logits;

static hl_status keep_logits(void *context, const hl_final_rows *rows)
{
    all_logits *all = context;

    memcpy(all->logits[rows->start], rows->logits, sizeof all->logits[0] * (size_t)rows->n_rows);
    return HL_OK;
}

static double logprob_of(const float *logits, int64_t token)
{
    double sum = 0.0;

    for (int i = 0; i < D_VOCAB; i++)
        sum += exp((double)logits[i]);
    return (double)logits[token] - log(sum);
}

/* Returns the most likely token that is not among the first n. */
static int64_t next_best(const float *logits, const hl_job_top *top, int n)
{
    int64_t best = -1;

    for (int64_t token = 0; token < D_VOCAB; token++) {
        bool is_listed = false;
        for (int i = 0; i < n; i++)
            is_listed = is_listed || top[i].token == token;
        if (!is_listed && (best < 0 || logits[token] > logits[best]))
            best = token;
    }
    return best;
}

static void assert_event_by_logits(const hl_job_event *event, const float *logits)
{
    assert_true(fabs(event->token.logprob - logprob_of(logits, event->token.id)) < 1e-9);
    assert_int_equal(event->n_top, 7);
    for (int i = 0; i < event->n_top; i++) {
        assert_int_equal(event->top[i].token, next_best(logits, event->top, i));
        assert_true(fabs(event->top[i].logprob - logprob_of(logits, event->top[i].token)) < 1e-9);
    }
}

/* Compares the rows that predicted a token with a trace of the same text. */
static void assert_event_by_trace(const hl_job_event *event, const hl_trace *trace)
{
    for (int which = 0; which < HL_N_TRACE_ROWS; which++) {
        const float *rows = hl_job_event_rows(event, (hl_trace_rows)which, 3, 4);

        assert_true((rows == NULL) == (which == HL_TRACE_CHANGE));
        for (int cell = 0; rows != NULL && cell < 12; cell++) {
            double wanted =
                hl_trace_row(trace, event->position, cell / 4, cell % 4, (hl_trace_rows)which);
            assert_true(isnan(wanted) ? isnan(rows[cell]) : (double)rows[cell] == wanted);
        }
    }
}

/* Checks a row of attention in an event: probabilities with the given entropy. */
static void assert_pattern(const hl_job_event *event, int pattern, int64_t layer, int64_t head)
{
    const float *p       = event->patterns + pattern * event->n_keys;
    const float *values  = hl_job_event_rows(event, HL_TRACE_ENTROPY, 3, 4);
    double       entropy = 0.0, sum = 0.0;

    for (int64_t key = 0; key < event->n_keys; key++) {
        sum += p[key];
        entropy -= p[key] > 0.0f ? (double)p[key] * log((double)p[key]) : 0.0;
    }
    assert_true(fabs(sum - 1.0) < 1e-5);
    assert_true(fabs(entropy - (double)values[layer * 4 + head]) < 1e-4);
}

/* Traces the text with a tracer and a session of its own; stores the logits of all rows. */
static hl_tracer *trace_text(all_logits *logits, const hl_model *model, const int64_t *text,
                             const uint8_t *kinds, int64_t n)
{
    hl_tracer  *tracer  = NULL;
    hl_session *session = NULL;
    hl_tap      tap;

    assert_ok(
        hl_tracer_open(&tracer, model, &(hl_tracer_options){ .n_ctx = N_CTX, .no_change = true }));
    assert_ok(hl_session_open(
        &session, model,
        &(hl_session_options){
            .n_ctx = N_CTX, .n_chunk = CHUNK, .n_threads = 1, .wants = HL_WANT_LOGITS }));
    assert_ok(hl_tracer_prompt(tracer, text, kinds, n));
    tap = *hl_tracer_tap(tracer);
    assert_ok(hl_session_feed(session, &(hl_feed){ .tokens     = text,
                                                   .n_tokens   = n,
                                                   .segments   = hl_tracer_segments(tracer),
                                                   .n_segments = HL_N_KINDS,
                                                   .tap        = &tap }));
    assert_ok(hl_session_rewind(session, 0, 0));
    tap = (hl_tap){ .context = logits, .final = keep_logits, .wants = HL_WANT_LOGITS };
    assert_ok(hl_session_feed(session, &(hl_feed){ .tokens = text, .n_tokens = n, .tap = &tap }));
    hl_session_close(session);
    return tracer;
}

static void prompts_can_be_scored(void **state)
{
    static request    r;
    static all_logits logits;
    uint8_t           kinds[N_CTX];
    hl_model         *model  = open_model(LLAMA);
    hl_engine        *engine = open_engine(model, (hl_engine_options){ .n_slots = 2 });
    hl_job_event      event;
    int64_t           n = 0;
    (void)state;

    make_request(&r, 5);
    r.options.n_tokens = 2 * CHUNK + 7;
    for (int64_t i = 0; i < r.options.n_tokens; i++)
        r.prompt[i] = 2 + i * i * 31 % 250;
    for (int i = 0; i < N_CTX; i++)
        kinds[i] = i % 3 == 0 ? HL_KIND_SPECIAL : HL_KIND_PROMPT;
    r.options.kinds       = kinds;
    r.options.n_top       = 7;
    r.options.echo_prompt = true;
    r.options.prompt_only = true;
    hl_tracer *tracer     = trace_text(&logits, model, r.prompt, kinds, r.options.n_tokens);
    hl_job    *job        = submit(engine, &r.options);
    while (hl_job_wait(&event, job, 60.0) == HL_OK && event.kind == HL_JOB_TOKEN) {
        assert_int_equal(event.position, n);
        assert_int_equal(event.token.id, r.prompt[n]);
        assert_true(event.from_prompt);
        assert_int_equal(event.n_keys, n);
        if (n == 0) {
            assert_true(isnan(event.token.logprob) && event.n_top == 0);
        } else {
            assert_event_by_logits(&event, logits.logits[n - 1]);
            assert_event_by_trace(&event, hl_tracer_trace(tracer));
            assert_pattern(&event, 0, 2, 3);
            assert_pattern(&event, 1, 0, 1);
        }
        n++;
    }
    assert_int_equal(event.kind, HL_JOB_END);
    assert_int_equal(n, r.options.n_tokens);
    hl_job_free(job);
    hl_engine_close(engine);
    hl_tracer_close(tracer);
    hl_model_close(model);
}

/* A text is the same with its prompt echoed before it. */
static void an_echo_changes_nothing(void **state)
{
    static request    r;
    static transcript plain, echoed;
    hl_model         *model  = open_model(NEOX);
    hl_engine        *engine = open_engine(model, (hl_engine_options){ .n_slots = 2 });
    (void)state;

    make_request(&r, 3);
    hl_job *job = submit(engine, &r.options);
    take_all(&plain, job, hl_model_get_info(model));
    hl_job_free(job);
    r.options.echo_prompt = true;
    job                   = submit(engine, &r.options);
    take_all(&echoed, job, hl_model_get_info(model));
    hl_job_free(job);
    assert_int_equal(echoed.n, plain.n + r.options.n_tokens);
    for (int64_t i = 0; i < echoed.n; i++)
        assert_int_equal(echoed.from_prompt[i], i < r.options.n_tokens);
    assert_same_tokens(echoed.tokens + r.options.n_tokens, plain.tokens, plain.n);
    hl_engine_close(engine);
    hl_model_close(model);
}

/* --------------------------------------------------------------- used again */

/* A conversation: each prompt begins with the previous one and its answer. */
static void kept_prompts_are_the_same_bytes(void **state)
{
    static transcript kept, fresh;
    hl_model         *model = open_model(LLAMA);
    hl_engine        *engines[2];
    int64_t           text[N_CTX], n_text = 2 * CHUNK + 5, n_kept = 0, n_reused = 0;
    (void)state;

    for (int i = 0; i < 2; i++)
        engines[i] =
            open_engine(model, (hl_engine_options){ .n_slots = 2, .keep_nothing = i == 1 });
    for (int64_t i = 0; i < n_text; i++)
        text[i] = 3 + i * 7 % 200;
    for (int turn = 0; turn < 3; turn++) {
        hl_job_options options = {
            .tokens = text, .n_tokens = n_text, .max_tokens = 14, .ignore_end = true
        };
        hl_job *job = submit(engines[0], &options);

        take_all(&kept, job, hl_model_get_info(model));
        n_reused += turn == 0 ? 0 : n_kept;
        assert_int_equal(counts_of(engines[0]).n_reused_tokens, n_reused);
        assert_int_equal(counts_of(engines[0]).n_generated_tokens, 14 * (turn + 1));
        hl_job_free(job);
        job = submit(engines[1], &options);
        take_all(&fresh, job, hl_model_get_info(model));
        assert_int_equal(counts_of(engines[1]).n_reused_tokens, 0);
        hl_job_free(job);
        assert_same_transcript(&kept, &fresh);
        n_kept = n_text / CHUNK * CHUNK;
        for (int64_t i = 0; i < kept.n; i++)
            text[n_text++] = kept.tokens[i].id;
        text[n_text++] = 9;
    }
    hl_engine_close(engines[0]);
    hl_engine_close(engines[1]);
    hl_model_close(model);
}

/* Keys and values of a prompt that was fed with other gates cannot be reused. */
static void prompts_under_other_gates_are_fed_again(void **state)
{
    static transcript kept, fresh;
    hl_model         *model = open_model(LLAMA);
    hl_engine        *engines[2];
    int64_t           text[3 * CHUNK];
    float             gates[2][MAX_CELLS];
    (void)state;

    for (int i = 0; i < 2; i++)
        engines[i] =
            open_engine(model, (hl_engine_options){ .n_slots = 1, .keep_nothing = i == 1 });
    for (int64_t i = 0; i < 3 * CHUNK; i++)
        text[i] = 3 + i * 13 % 200;
    for (int i = 0; i < 2 * MAX_CELLS; i++)
        gates[i / MAX_CELLS][i % MAX_CELLS] = i % MAX_CELLS == i / MAX_CELLS ? 0.0f : 1.0f;
    for (int turn = 0; turn < 5; turn++) { /* gates: none, A, B, B, none */
        static const int which[] = { -1, 0, 1, 1, -1 };
        hl_job_options   options = { .tokens     = text,
                                     .n_tokens   = 3 * CHUNK,
                                     .max_tokens = 5,
                                     .ignore_end = true,
                                     .gates      = which[turn] < 0 ? NULL : gates[which[turn]] };
        hl_job          *jobs[2] = { submit(engines[0], &options), submit(engines[1], &options) };

        take_all(&kept, jobs[0], hl_model_get_info(model));
        take_all(&fresh, jobs[1], hl_model_get_info(model));
        assert_same_transcript(&kept, &fresh);
        assert_int_equal(counts_of(engines[0]).n_reused_tokens, turn < 3 ? 0 : 2 * CHUNK);
        hl_job_free(jobs[0]);
        hl_job_free(jobs[1]);
    }
    hl_engine_close(engines[0]);
    hl_engine_close(engines[1]);
    hl_model_close(model);
}

/* If a slot has all of a prompt of complete chunks, the last chunk is fed again, since the logits
 * after it are needed. */
static void a_prompt_is_never_kept_to_its_end(void **state)
{
    static transcript kept, fresh;
    hl_model         *model = open_model(LLAMA);
    int64_t           text[N_CTX], n_reused = 0;
    hl_engine        *engines[2];
    (void)state;

    for (int i = 0; i < 2; i++)
        engines[i] =
            open_engine(model, (hl_engine_options){ .n_slots = 1, .keep_nothing = i == 1 });
    for (int64_t i = 0; i < N_CTX; i++)
        text[i] = 3 + i * 11 % 200;
    for (int turn = 0; turn < 4; turn++) {
        int64_t        n_chunks = turn == 0 ? 3 : 4 - turn; /* 3 chunks, and then 3, 2, 1 */
        hl_job_options options  = {
             .tokens = text, .n_tokens = n_chunks * CHUNK, .max_tokens = 5, .ignore_end = true
        };
        hl_job *jobs[2] = { submit(engines[0], &options), submit(engines[1], &options) };

        take_all(&kept, jobs[0], hl_model_get_info(model));
        take_all(&fresh, jobs[1], hl_model_get_info(model));
        assert_same_transcript(&kept, &fresh);
        assert_int_equal(kept.n, 5);
        n_reused += turn == 0 ? 0 : (n_chunks - 1) * CHUNK;
        assert_int_equal(counts_of(engines[0]).n_reused_tokens, n_reused);
        hl_job_free(jobs[0]);
        hl_job_free(jobs[1]);
    }
    hl_engine_close(engines[0]);
    hl_engine_close(engines[1]);
    hl_model_close(model);
}

/* --------------------------------------------------------------------- damage */

/* Writes a copy of NEOX with NaN in the embedding of one token. */
static void damage(const char *folder, int64_t token)
{
    size_t          n_bytes;
    char           *bytes = read_file(in_folder(NEOX, "config.json"), &n_bytes);
    hl_safetensors *file  = NULL;

    write_file(in_folder(folder, "config.json"), bytes, n_bytes);
    free(bytes);
    bytes = read_file(in_folder(NEOX, "model.safetensors"), &n_bytes);
    assert_ok(hl_safetensors_parse(&file, (const uint8_t *)bytes, n_bytes, "model"));
    const hl_tensor *tensor = hl_safetensors_find(file, "gpt_neox.embed_in.weight");
    assert_non_null(tensor);
    size_t at = (size_t)((const char *)tensor->data - bytes);
    at += (size_t)token * (tensor->n_bytes / D_VOCAB);
    hl_safetensors_close(file);
    memset(bytes + at, 0xff, 4); /* NaN in F32, and twice NaN in F16 and BF16 */
    write_file(in_folder(folder, "model.safetensors"), bytes, n_bytes);
    free(bytes);
}

static bool has_token(const transcript *t, const request *r, int64_t token)
{
    for (int64_t i = 0; i < r->options.n_tokens; i++) {
        if (r->prompt[i] == token)
            return true;
    }
    for (int64_t i = 0; i + 1 < t->n; i++) { /* the last token is not fed */
        if (t->tokens[i].id == token)
            return true;
    }
    return false;
}

/* Texts with the broken token fail when they reach it; all others stay the same. */
static void one_failure_is_no_others(void **state)
{
    static request    requests[N_JOBS];
    static transcript whole[N_JOBS];
    const char       *folder = new_folder();
    hl_model         *model  = open_model(NEOX);
    int               n_bad  = 0;
    hl_job           *jobs[N_JOBS];
    (void)state;

    for (int i = 0; i < N_JOBS; i++) {
        make_request(&requests[i], i);
        requests[i].options.n_tokens   = 2;
        requests[i].options.max_tokens = 12;
    }
    run_jobs(whole, model, requests, 4, 2, 3);
    int64_t broken = whole[0].tokens[3].id; /* in the middle of the first text */
    hl_model_close(model);
    damage(folder, broken);
    model             = open_model(folder);
    hl_engine *engine = open_engine(model, (hl_engine_options){ .n_slots = 8, .n_queue = N_JOBS });
    for (int i = 0; i < N_JOBS; i++)
        jobs[i] = submit(engine, &requests[i].options);
    for (int i = 0; i < N_JOBS; i++) {
        transcript   t = { 0 };
        hl_job_event event;
        hl_status    status;

        while ((status = hl_job_wait(&event, jobs[i], 60.0)) == HL_OK && event.kind == HL_JOB_TOKEN)
            note(&t, &event, hl_model_get_info(model));
        if (has_token(&whole[i], &requests[i], broken)) {
            n_bad++;
            assert_int_equal(status, HL_BAD_INPUT);
            assert_non_null(strstr(hl_error_message(), "gpt_neox.embed_in.weight"));
            assert_int_equal(hl_job_wait(&event, jobs[i], 0.0), HL_BAD_INPUT);
            assert_same_tokens(t.tokens, whole[i].tokens, t.n);
        } else {
            assert_int_equal(status, HL_OK);
            assert_same_transcript(&t, &whole[i]);
        }
        hl_job_free(jobs[i]);
    }
    assert_true(n_bad >= 1 && n_bad < N_JOBS);
    assert_int_equal(counts_of(engine).n_failed, n_bad);
    hl_engine_close(engine);
    hl_model_close(model);
    remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_job_is_as_if_alone),
        cmocka_unit_test(prompts_can_be_scored),
        cmocka_unit_test(an_echo_changes_nothing),
        cmocka_unit_test(kept_prompts_are_the_same_bytes),
        cmocka_unit_test(a_prompt_is_never_kept_to_its_end),
        cmocka_unit_test(prompts_under_other_gates_are_fed_again),
        cmocka_unit_test(one_failure_is_no_others),
    };
    return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
