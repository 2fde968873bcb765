/* jinja.h - the language of chat templates: Jinja2, as transformers runs it.
 *
 *     HL_NEED(hl_jinja_parse(&jinja, text, n_bytes, "FOLDER/chat_template.jinja"));
 *     HL_NEED(hl_jinja_render(&page, jinja, &input));
 *     ... page.text, page.roles ...
 *     hl_jinja_page_free(&page);
 *     hl_jinja_free(jinja);
 *
 * A template is a program from a file that anybody may have made.  It can read what it is given,
 * and write text, nothing else.  Lists and dictionaries cannot be changed, attributes of Python's
 * interpreter do not exist, and steps, memory, output and nesting are limited.
 *
 * The reference is Jinja2 3.1 in Python 3.11, in an ImmutableSandboxedEnvironment with the options
 * that transformers sets (line ends after blocks and blanks before them are dropped), loop controls,
 * `generation` blocks, and the functions and the `tojson` filter that
 * transformers adds.  What differs:
 *   - integers have 64 bits; a result that does not fit is an error;
 *   - `random`, `lipsum`, `urlize`, `pprint` and `autoescape` are refused by name;
 *   - `map`, `select` and their kin work when they are called, not when they are read.
 *
 * Every byte of the output knows the role of the message that it comes from, through all operations
 * on strings: that is how tokens get their roles. */
#ifndef HL_TOKENIZE_JINJA_H
#define HL_TOKENIZE_JINJA_H

#include "base/buffer.h"
#include "base/json.h"
#include "headlight/tokenizer.h"

typedef struct hl_jinja hl_jinja;

/* The role that a message's "role" stands for; NULL or unknown names are the user. */
hl_chat_role hl_chat_role_of(const char *name);

/* Parses a template; `where` names it in messages.  Errors are HL_BAD_INPUT and name the line. */
hl_status hl_jinja_parse(hl_jinja **out, const char *text, size_t n_bytes, const char *where);
void      hl_jinja_free(hl_jinja *jinja);
HL_CLOSES(hl_jinja_free, hl_jinja)

/* What one rendering may cost.  A zero stands for the default, which grows with the input. */
typedef struct hl_jinja_limits {
    size_t n_steps;  /* a step is a node of the program, or 32 bytes of text that one works on */
    size_t n_memory; /* bytes */
    size_t n_output; /* bytes */
} hl_jinja_limits;

typedef struct hl_jinja_input {
    const json_t *messages;  /* an array of objects; their text has the role that they name */
    const json_t *variables; /* an object with all other variables, such as tools; NULL: none */
    hl_bytes      special[HL_SPECIAL_COUNT]; /* bos_token, eos_token, ...; data NULL: not defined */
    bool          add_generation_prompt;
    const int64_t  *now; /* seconds since 1970 for strftime_now, as UTC; NULL: now, as local time */
    hl_jinja_limits limits;
} hl_jinja_input;

typedef struct hl_jinja_page {
    char    *text; /* NUL-terminated, valid UTF-8 */
    size_t   n_bytes;
    uint8_t *roles;     /* (n_bytes) hl_chat_role of each byte */
    hl_span *generated; /* (n_generated) what `generation` blocks wrote; may nest */
    size_t   n_generated;
    size_t   n_steps; /* what it cost */
    size_t   n_memory;
    char    *refusal; /* why the template was refused, as Python prints it: "TypeError: ...";
                       * NULL: it was not.  Set also where hl_jinja_render fails. */
} hl_jinja_page;

/* Renders a conversation.  On failure only page->refusal is set; the message names the template
 * and the line.  Limits that are exceeded are HL_LIMIT, everything else that a template does wrong
 * is HL_BAD_INPUT. */
hl_status hl_jinja_render(hl_jinja_page *page, const hl_jinja *jinja, const hl_jinja_input *input);
void      hl_jinja_page_free(hl_jinja_page *page);

#endif
