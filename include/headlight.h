/* headlight.h - the whole public interface of headlight, simplest calls first.
 *
 * headlight shows what every attention head of a transformer looks at, how
 * sharply, and which heads can be switched off, without ever building an
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
 *   - Token ids are int64_t, as counts and indices are, and as NumPy and PyTorch have them; -1 is none.
 *
 * Threads
 *   - Any thread may call any function.  Several threads may use one object at the same time as long
 *     as every call takes it as const; a call that takes it without const, or closes it, needs it alone.
 *     So a model, a tokenizer, a corpus or a profile can be shared, and a session or a generator belongs
 *     to one thread at a time, though not always to the same.  The parts say what holds for each type.
 *   - An object that borrows another uses it in all its calls: no session may be at work while its
 *     model's gates are set.
 *   - hl_error_message() is the calling thread's own.  The log's callback, the back end that was
 *     chosen and the bound on memory are the process's; setting them is safe at any time.
 *   - Callbacks are called on the thread that made the call, unless they say otherwise.
 *   - A process may fork while none of its threads is in a call and no server is open; the child makes
 *     threads of its own.
 *   - The first product of matrices opens OpenBLAS, and may set OPENBLAS_CORETYPE in the environment for
 *     that moment; other threads must not use the environment then.
 *
 * What stays the same between releases
 *   - Before 1.0 a minor release (0.1 to 0.2) may change every function, struct and constant here, and
 *     CHANGELOG.md says what it changed.  A patch release changes none of them: programs run with it as
 *     they are.  From 1.0 on that holds for all releases with the same major number, which may only
 *     add functions.
 *   - The shared library is called libheadlight.so.0 in all releases 0.x.  Its functions have a symbol
 *     version, HEADLIGHT_0.1 in all releases 0.1.x: the loader refuses to start a program with the library
 *     of another minor release.  libheadlight_cuda.so has a number of its own for how both talk to each
 *     other: one with another number is refused when it is opened.
 *   - Structs carry neither their size nor a version.  A member that is added, at the end too, makes
 *     programs wrong that were compiled before, so members are added only where the above allows changes.
 *   - Source code that sets option structs to zero, or takes what hl_watch_defaults() and
 *     hl_thresholds_default() return, and names the members that it sets ({ .n_ctx = 512 }), means the same
 *     when members have been added: they have their defaults.
 *   - Enums get new values in the same releases, hl_status too, and their counts (HL_DTYPE_COUNT,
 *     HL_N_RANKERS) grow: code that has a case for each value needs one for the others.
 *   - What is behind a pointer to a struct that no header defines (hl_model, hl_session) may change in
 *     any release.
 */
#ifndef HEADLIGHT_H
#define HEADLIGHT_H

/* In reading order. */
/* clang-format off */
#include "headlight/base.h"       /* how calls fail; types of elements */
#include "headlight/attention.h"  /* fused attention that measures */
#include "headlight/model.h"      /* opening a model, and what it is */
#include "headlight/tokenizer.h"  /* text to tokens and back; chats */
#include "headlight/session.h"    /* running a model, and the tap that reports its rows */
#include "headlight/generate.h"   /* sampling, generating, and how well a model predicts texts */
#include "headlight/eval.h"       /* how far a model is from another, and how fast */
#include "headlight/trace.h"      /* what was seen of every token while a text was generated */
#include "headlight/corpus.h"     /* texts, and the windows of tokens that they are cut into */
#include "headlight/profile.h"    /* what was measured of every head, as sums that add up */
#include "headlight/measure.h"    /* from a model and a text to a profile; on many machines */
#include "headlight/view.h"       /* one prompt: who looks at whom, layer by layer */
#include "headlight/analysis.h"   /* tables, analyses, diagnoses and comparisons of profiles */
#include "headlight/watch.h"      /* stepping in while a text is generated */
#include "headlight/series.h"     /* a training run, checkpoint by checkpoint */
#include "headlight/prune.h"      /* gates, rankings of heads, and which to take out */
#include "headlight/sweep.h"      /* what switching heads off costs, over many settings */
#include "headlight/judge.h"      /* do the signals of a trace tell right from wrong? */
#include "headlight/render.h"     /* pictures of what was measured */
#include "headlight/report.h"     /* all of it as one interactive page */
#include "headlight/export.h"     /* models written without some of their heads */
#include "headlight/serve.h"      /* a server: OpenAI's interface with entropy, the live page */
#include "headlight/verify.h"     /* ours beside what other software computed */
/* clang-format on */

#endif
