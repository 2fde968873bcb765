/* headlight.h - the whole public interface of headlight, simplest calls first.
 *
 * headlight shows what every attention head of a transformer looks at, how
 * sharply, and which heads can be disabled, without ever building an
 * attention matrix.  This header is all that a program needs; its parts lie in
 * headlight/, and each can be included alone:
 *
 *     float out[2 * 64], entropy[2];
 *     hl_attention problem = {
 *         .n_batch = 1, .n_heads = 2, .n_kv_heads = 1,
 *         .n_queries = 1, .n_keys = 512, .d_head = 64, .d_value = 64,
 *         .q = { .data = q }, .k = { .data = k }, .v = { .data = v },
 *     };
 *     hl_attention_result result = { .out = { .data = out }, .entropy = entropy };
 *     if (hl_attention_forward(&result, &problem) != HL_OK)
 *         fprintf(stderr, "%s\n", hl_error_message());
 *
 * Conventions
 *   - Whatever can fail returns hl_status; hl_error_message() explains the last
 *     failure of the calling thread.  The library never prints, exits or aborts.
 *   - Results come first, then the object, then inputs, then options.
 *   - In a struct of options or optional outputs, zero and NULL mean "default"
 *     and "not wanted": what is not wanted is not computed.
 *   - Shapes are written outermost first: (n_batch, n_heads, n_queries, d_head).
 *   - Logarithms are natural; entropies are in nats.
 *   - Token ids, counts and indices are int64_t, as in NumPy and PyTorch; the id -1
 *     means "no token".
 *
 * Threads
 *   - Any thread may call any function. Several threads may use one object at the same time as
 *     long as every call takes it as const; a call that takes it without const, or closes it, needs
 *     it alone. A model, a tokenizer, a corpus or a profile can therefore be shared. A session or a
 *     generator belongs to one thread at a time, but may move between threads. Each part of this
 *     header states the rule for its types.
 *   - An object that borrows another uses it in all its calls: for example, no session may be
 *     running while its model's gates are being set.
 *   - hl_error_message() is kept per thread. The log callback, the selected back end and the
 *     memory limit are kept per process; setting them is safe at any time.
 *   - Callbacks are called on the thread that made the call, unless they say otherwise.
 *   - A process may fork while no thread is inside a call and no server is open; the child
 *     process creates its own threads.
 *   - The first matrix product loads OpenBLAS and may set OPENBLAS_CORETYPE in the environment
 *     while it does so; other threads must not read or write the environment at that moment.
 *
 * What stays the same between releases
 *   - Before 1.0 a minor release (0.1 to 0.2) may change every function, struct and constant
 *     here; CHANGELOG.md lists the changes. A patch release changes none of them: programs run with
 *     it without recompilation. From 1.0 on, all releases with the same major number are compatible
 *     in this way, and may only add functions.
 *   - The shared library is called libheadlight.so.0 in all releases 0.x. Its functions have a
 *     symbol version, HEADLIGHT_0.1 in all releases 0.1.x: the loader refuses to start a program
 *     with the library of another minor release. The interface between libheadlight.so and
 *     libheadlight_cuda.so has its own version number: a libheadlight_cuda.so with a different
 *     number is refused when it is opened.
 *   - Structs carry neither their size nor a version. Adding a member, even at the end, breaks
 *     programs that were compiled earlier, so members are added only in releases that may change
 *     structs.
 *   - Source code that sets option structs to zero, or takes what hl_watch_defaults() and
 *     hl_thresholds_default() return, and names the members that it sets ({ .n_ctx = 512 }), keeps
 *     its meaning when members are added: new members get their defaults.
 *   - Enums, including hl_status, get new values in the same releases, and their counts
 *     (HL_DTYPE_COUNT, HL_N_RANKERS) grow: a switch over an enum needs a default case.
 *   - The contents of opaque structs, those that no header defines (hl_model, hl_session), may
 *     change in any release.
 */
#ifndef HEADLIGHT_H
#define HEADLIGHT_H

/* The parts, in reading order. */
/* clang-format off */
#include "headlight/base.h"       /* errors, logging, memory, JSON, element types */
#include "headlight/attention.h"  /* fused attention that also measures its rows */
#include "headlight/model.h"      /* opening and describing a model */
#include "headlight/tokenizer.h"  /* text to tokens and back; chats */
#include "headlight/session.h"    /* running a model, and the tap that reports its rows */
#include "headlight/generate.h"   /* sampling, generation, perplexity */
#include "headlight/eval.h"       /* agreement of two models, and speed */
#include "headlight/trace.h"      /* measurements of every token of a generated text */
#include "headlight/corpus.h"     /* texts, and how they are cut into windows */
#include "headlight/profile.h"    /* measurements of every head, as sums that can be merged */
#include "headlight/measure.h"    /* measuring a profile from a model and a text */
#include "headlight/view.h"       /* one prompt: attention maps and the logit lens */
#include "headlight/analysis.h"   /* tables, analyses, diagnoses and comparisons of profiles */
#include "headlight/watch.h"      /* detecting spikes during generation, and reacting */
#include "headlight/series.h"     /* a training run, checkpoint by checkpoint */
#include "headlight/prune.h"      /* gates, rankings, and choosing heads to remove */
#include "headlight/sweep.h"      /* what disabling heads costs, over many settings */
#include "headlight/damage.h"     /* the heads whose changes changed the predictions of a model */
#include "headlight/needle.h"     /* the heads that retrieve, and losses of needles in texts */
#include "headlight/judge.h"      /* how well trace signals detect wrong tokens */
#include "headlight/render.h"     /* pictures of what was measured */
#include "headlight/report.h"     /* all results as one interactive page */
#include "headlight/export.h"     /* models written without some of their heads */
#include "headlight/budget.h"     /* how far a model can be pruned within a budget */
#include "headlight/serve.h"      /* a server: OpenAI's interface with entropy, the live page */
#include "headlight/verify.h"     /* checks against results of other software */
/* clang-format on */

#endif
