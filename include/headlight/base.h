/* headlight/base.h - how calls fail, what is heard of them, and the types of elements.
 * Part of headlight.h, which see for the conventions. */
#ifndef HEADLIGHT_BASE_H
#define HEADLIGHT_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HL_API __attribute__((visibility("default")))

/* ----------------------------------------------------------------- version
 *
 * The macros are the version of the header that a program was compiled with, and hl_version is that
 * of the library that it runs with.  They are the same release where
 *
 *     strcmp(hl_version(), HL_VERSION_STRING) == 0
 *
 * What a library promises to programs that were compiled with an earlier header is in headlight.h. */

/* The number of the release stands here and nowhere else. */
#define HL_VERSION_MAJOR 0
#define HL_VERSION_MINOR 1
#define HL_VERSION_PATCH 0

/* For #if: 10203 is 1.2.3. */
#define HL_VERSION_NUMBER (HL_VERSION_MAJOR * 10000 + HL_VERSION_MINOR * 100 + HL_VERSION_PATCH)

/* "1.2.3" */
#define HL_VERSION_STRING                                                                          \
    HL_VERSION_TEXT(HL_VERSION_MAJOR)                                                              \
    "." HL_VERSION_TEXT(HL_VERSION_MINOR) "." HL_VERSION_TEXT(HL_VERSION_PATCH)
#define HL_VERSION_TEXT(number)    HL_VERSION_TEXT_OF(number)
#define HL_VERSION_TEXT_OF(number) #number

/* The version of the library that the program runs with, "1.2.3", and one line on how it was
 * built.  Static. */
HL_API const char *hl_version(void);
HL_API const char *hl_build_info(void);

/* ------------------------------------------------------------------ status */

typedef enum hl_status {
    HL_OK = 0,
    HL_BAD_ARGUMENT, /* the caller passed something impossible        */
    HL_BAD_INPUT,    /* a file or its contents are not what they claim */
    HL_NOT_FOUND,    /* no such file, tensor, back end ...             */
    HL_IO,           /* the system failed to read or write             */
    HL_NO_MEMORY,
    HL_LIMIT,       /* too large for this machine or for a set limit  */
    HL_UNSUPPORTED, /* understood, but not something this build does  */
    HL_CANCELLED,   /* a callback asked to stop                       */
    HL_INTERNAL,    /* a mistake of ours                              */
    HL_BUSY,        /* all places are taken; later one may be free    */
} hl_status;

/* What went wrong in this thread's last failing call; "" if nothing has.
 * Borrowed; valid until the thread's next failing call. */
HL_API const char *hl_error_message(void);

/* "ok", "bad argument", ... ; never NULL. */
HL_API const char *hl_status_name(hl_status status);

/* What the library does, for whoever wants to hear it: it never prints.  There is one callback for
 * the process.  It may be called from any thread, one call at a time, and must not call the
 * library. */
typedef enum hl_log_level { HL_LOG_DEBUG = 0, HL_LOG_INFO, HL_LOG_WARNING } hl_log_level;
typedef void (*hl_log_callback)(void *context, hl_log_level level, const char *message);
/* NULL: nobody listens, which is the default.  Messages below `lowest` are not made.  May be called
 * at any time; once it has returned, the callback before is not called any more. */
HL_API void hl_log_set(hl_log_callback callback, void *context, hl_log_level lowest);

/* How far long work has come: every call that reports it takes a callback of this one type. */
typedef struct hl_progress {
    const char *stage;     /* of work that has several: "measuring", "evaluating", ...; else NULL */
    double      share;     /* of the stage, 0 to 1 */
    int64_t     n_tokens;  /* that have been worked on, before an interruption too */
    int64_t     n_windows; /* likewise, whole ones */
} hl_progress;

/* Anything but HL_OK ends the work with that status.  One call at a time, from whatever thread. */
typedef hl_status (*hl_progress_callback)(void *context, const hl_progress *progress);

/* Text that somebody else wrote (names of tensors, metadata, tokens, file names), made fit to be shown:
 * control characters, C1 among them, and the controls of bidirectional text become \x1b or \u202e, bytes
 * that are not UTF-8 become U+FFFD.  Error messages and log messages have been through it. */
typedef enum hl_printable_kind {
    HL_PRINTABLE_LINE = 0, /* a name within a line; invisible characters are replaced, too */
    HL_PRINTABLE_LINES,    /* a text: line ends and tabs stay */
    HL_PRINTABLE_TOKEN,    /* as a line, with signs for spaces, tabs and line ends */
    HL_PRINTABLE_JSON,     /* JSON text, which stays the same value */
    HL_PRINTABLE_UTF8,     /* nothing but what is not UTF-8 is replaced: for a JSON string */
} hl_printable_kind;
/* As snprintf: writes n_out bytes at most, a NUL always, and returns the length of the whole. */
HL_API size_t hl_printable(char *out, size_t n_out, const char *bytes, size_t n_bytes,
                           hl_printable_kind kind);

/* Files are mapped, not read.  If one is cut short by somebody else while it is in
 * use, touching the missing part raises SIGBUS, which kills the process.  After
 * this call it ends with "headlight: FILE: shrank while in use" on standard error and
 * exit status 3 instead.  For programs: a library has no business with signals, so
 * nothing is installed unless asked. */
HL_API void hl_guard_mapped_files(void);

/* Bytes of memory that this process could still be given: by the machine, and by the control
 * groups that it is in.  0: not known. */
HL_API size_t hl_memory_available(void);

/* A bound for the process, as a log level is.  Beyond it allocations of the library fail, with
 * HL_NO_MEMORY and the numbers; and hl_session_open refuses with HL_LIMIT, before it allocates, when
 * the model's weights and the session would be beyond it together with what is held.  0, as it is
 * at first: no bound. */
HL_API void hl_memory_limit(size_t n_bytes);
/* Bytes that the library holds now: mapped files aside, and what libraries under it take for
 * themselves. */
HL_API size_t hl_memory_held(void);
/* As malloc, for what a program wants to be counted with the rest; NULL, and hl_error_message, when
 * there is not so much. */
HL_API void *hl_memory_allocate(size_t n_bytes);
/* Releases memory that the library handed out.  Accepts NULL. */
HL_API void hl_free(void *block);

/* -------------------------------------------------------------------- JSON */

/* A text that anybody may have written, as events in the order of the text: a value; an array or an
 * object, then its values, then HL_JSON_END. */
typedef enum hl_json_type {
    HL_JSON_NULL = 0,
    HL_JSON_BOOL,
    HL_JSON_INT,
    HL_JSON_REAL,
    HL_JSON_TEXT,
    HL_JSON_ARRAY,
    HL_JSON_OBJECT,
    HL_JSON_END, /* of the array or object that was begun last */
} hl_json_type;

/* Borrowed for the call. */
typedef struct hl_json_event {
    hl_json_type type;
    const char  *key;     /* of a value in an object; else NULL */
    int64_t      integer; /* of HL_JSON_INT; of HL_JSON_BOOL 0 or 1 */
    double       real;    /* of HL_JSON_REAL */
    const char  *text;    /* of HL_JSON_TEXT: UTF-8, which may hold NUL */
    size_t       n_bytes; /* of text */
} hl_json_event;

enum { HL_JSON_MOST_LEVELS = 64 };

/* Anything but HL_OK from the callback ends the call with that status.  Refused, before the first
 * event, are bad UTF-8, more than HL_JSON_MOST_LEVELS levels, duplicate keys, numbers that 64 bits or a
 * double do not hold, and anything behind the value; `where` names the text in the message, which
 * has line and column. */
HL_API hl_status hl_json_walk(const char *text, size_t n_bytes, const char *where,
                              hl_status (*event)(void *context, const hl_json_event *event),
                              void *context);

/* ------------------------------------------------------------ element types */

typedef enum hl_dtype {
    HL_DTYPE_F32 = 0, /* the default */
    HL_DTYPE_F16,
    HL_DTYPE_BF16,
    HL_DTYPE_F64,
    HL_DTYPE_I8,
    HL_DTYPE_I16,
    HL_DTYPE_I32,
    HL_DTYPE_I64,
    HL_DTYPE_U8,
    HL_DTYPE_U16,
    HL_DTYPE_U32,
    HL_DTYPE_U64,
    HL_DTYPE_BOOL,
    HL_DTYPE_F8_E4M3,
    HL_DTYPE_F8_E5M2,
    HL_DTYPE_F8_E8M0,
    HL_DTYPE_F8_E4M3FNUZ,
    HL_DTYPE_F8_E5M2FNUZ,
    HL_DTYPE_F4,
    HL_DTYPE_F6_E2M3,
    HL_DTYPE_F6_E3M2,
    HL_DTYPE_C64,
    /* GGUF's blocks: 32 to 256 values that share their scales. */
    HL_DTYPE_Q4_0,
    HL_DTYPE_Q4_1,
    HL_DTYPE_Q5_0,
    HL_DTYPE_Q5_1,
    HL_DTYPE_Q8_0,
    HL_DTYPE_Q2_K,
    HL_DTYPE_Q3_K,
    HL_DTYPE_Q4_K,
    HL_DTYPE_Q5_K,
    HL_DTYPE_Q6_K,
    HL_DTYPE_IQ1_S,
    HL_DTYPE_IQ2_XXS,
    HL_DTYPE_IQ2_XS,
    HL_DTYPE_IQ2_S,
    HL_DTYPE_IQ3_XXS,
    HL_DTYPE_IQ3_S,
    HL_DTYPE_IQ4_NL,
    HL_DTYPE_IQ4_XS,
    HL_DTYPE_TQ1_0,
    HL_DTYPE_TQ2_0,
    HL_DTYPE_MXFP4,
    HL_DTYPE_IQ1_M,
    HL_DTYPE_Q1_0,
    HL_DTYPE_Q2_0,
    HL_DTYPE_COUNT
} hl_dtype;

/* As safetensors and GGUF spell it: "F32", "BF16", "Q4_K", ...; "?" for what is
 * not a dtype. */
HL_API const char *hl_dtype_name(hl_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
