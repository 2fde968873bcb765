/* held.h - variables that are released when their scope ends, and macros that leave a function at
 * the first failure.
 *
 *     HL_HELD(hl_model_close) hl_model *model = NULL;     a pointer, by a function that takes NULL
 *     HL_KEPT(hl_input_free) hl_input input = { 0 };      a struct, by a function of its address
 *
 *     HL_NEED(hl_model_open(&model, path));               in functions that return hl_status
 *     HL_PASS(hl_input_read(&input, path, "eval"));       in functions that return exit statuses
 *     HL_CALL("eval", hl_model_open(&model, path));       a library call in these; prints a
 * message */
#ifndef HL_CLI_HELD_H
#define HL_CLI_HELD_H

#include <jansson.h>
#include <stdlib.h>

#include "command.h"
#include "headlight.h"

#define HL_KEPT(release) __attribute__((cleanup(release)))
#define HL_HELD(release) HL_KEPT(release##_held)

#define HL_HOLDS(release, type)                                                                    \
    static inline void release##_held(type **held)                                                 \
    {                                                                                              \
        release(*held);                                                                            \
    }

static inline void free_held(void *held)
{
    free(*(void **)held);
}

static inline void hl_free_held(void *held)
{
    hl_free(*(void **)held);
}

HL_HOLDS(json_decref, json_t)
HL_HOLDS(hl_chat_free, hl_chat)
HL_HOLDS(hl_checkpoints_free, hl_checkpoints)
HL_HOLDS(hl_comparison_free, hl_comparison)
HL_HOLDS(hl_corpus_close, hl_corpus)
HL_HOLDS(hl_damage_free, hl_damage)
HL_HOLDS(hl_diagnoses_free, hl_diagnoses)
HL_HOLDS(hl_gradients_free, hl_gradients)
HL_HOLDS(hl_encoding_free, hl_encoding)
HL_HOLDS(hl_gates_free, hl_gates)
HL_HOLDS(hl_head_list_free, hl_head_list)
HL_HOLDS(hl_labels_free, hl_labels)
HL_HOLDS(hl_lens_view_free, hl_lens_view)
HL_HOLDS(hl_model_close, hl_model)
HL_HOLDS(hl_needle_free, hl_needle)
HL_HOLDS(hl_perplexity_close, hl_perplexity)
HL_HOLDS(hl_profile_free, hl_profile)
HL_HOLDS(hl_ranking_free, hl_ranking)
HL_HOLDS(hl_row_distances_free, hl_row_distances)
HL_HOLDS(hl_sampler_free, hl_sampler)
HL_HOLDS(hl_session_close, hl_session)
HL_HOLDS(hl_sheet_free, hl_sheet)
HL_HOLDS(hl_token_view_free, hl_token_view)
HL_HOLDS(hl_tokenizer_close, hl_tokenizer)
HL_HOLDS(hl_trace_free, hl_trace)

#define HL_LEAVE(type, call, good, result)                                                         \
    do {                                                                                           \
        type leaving = (call);                                                                     \
        if (leaving != (good))                                                                     \
            return (result);                                                                       \
    } while (0)
#define HL_NEED(call)          HL_LEAVE(hl_status, call, HL_OK, leaving)
#define HL_PASS(call)          HL_LEAVE(int, call, HL_EXIT_OK, leaving)
#define HL_CALL(command, call) HL_LEAVE(hl_status, call, HL_OK, hl_finish(command, leaving))

#endif
