/* headlight/base.h - versions, errors, logging, memory, JSON and element types. Part of
 * headlight.h, which see for the conventions. */
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
 * The macros give the version of the header that a program was compiled with. hl_version gives the
 * version of the library that it runs with. Both are the same release if
 *
 *     strcmp(hl_version(), HL_VERSION_STRING) == 0
 *
 * headlight.h says which releases of the library work with programs compiled with an earlier
 * header. */

/* The version number is defined here and nowhere else. */
#define HL_VERSION_MAJOR 0
#define HL_VERSION_MINOR 1
#define HL_VERSION_PATCH 0

/* The version as one number, for use in #if: 10203 is 1.2.3. */
#define HL_VERSION_NUMBER (HL_VERSION_MAJOR * 10000 + HL_VERSION_MINOR * 100 + HL_VERSION_PATCH)

/* The version as text: "1.2.3". */
#define HL_VERSION_STRING                                                                          \
    HL_VERSION_TEXT(HL_VERSION_MAJOR)                                                              \
    "." HL_VERSION_TEXT(HL_VERSION_MINOR) "." HL_VERSION_TEXT(HL_VERSION_PATCH)
#define HL_VERSION_TEXT(number)    HL_VERSION_TEXT_OF(number)
#define HL_VERSION_TEXT_OF(number) #number

/* hl_version returns the version of the library that the program runs with, such as "1.2.3".
 * hl_build_info returns one line on how the library was built. Both texts are static. */
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
    HL_UNSUPPORTED, /* valid, but not supported by this build */
    HL_CANCELLED,   /* a callback asked to stop                       */
    HL_INTERNAL,    /* a bug in headlight */
    HL_BUSY,        /* all slots are in use; try again later */
} hl_status;

/* Describes the last failing call of this thread; "" if no call has failed. The text is borrowed
 * and stays valid until the thread's next failing call. */
HL_API const char *hl_error_message(void);

/* Returns the name of a status: "ok", "bad argument", ...; never NULL. */
HL_API const char *hl_status_name(hl_status status);

/* Log messages.  The library never prints; it passes messages to one callback per process.  The
 * callback may be called from any thread, one call at a time, and must not call the library. */
typedef enum hl_log_level { HL_LOG_DEBUG = 0, HL_LOG_INFO, HL_LOG_WARNING } hl_log_level;
typedef void (*hl_log_callback)(void *context, hl_log_level level, const char *message);
/* Sets the log callback.  NULL, the default, disables logging.  Messages below `lowest` are not
 * created.  This may be called at any time; once it has returned, the previous callback is not
 * called any more. */
HL_API void hl_log_set(hl_log_callback callback, void *context, hl_log_level lowest);

/* Progress of a long call.  Every call that reports progress takes a callback of type
 * hl_progress_callback. */
typedef struct hl_progress {
    const char *stage;     /* name of the current stage: "measuring", "evaluating", ...; NULL if
                            * the work has only one stage */
    double      share;     /* finished share of the stage, 0 to 1 */
    int64_t     n_tokens;  /* tokens processed so far, including those before an interruption */
    int64_t     n_windows; /* complete windows processed so far, including those before an
                            * interruption */
} hl_progress;

/* Any result other than HL_OK ends the work with that status.  The callback is called from any
 * thread, one call at a time. */
typedef hl_status (*hl_progress_callback)(void *context, const hl_progress *progress);

/* Makes text from outside (tensor names, metadata, tokens, file names) safe to show.  Control
 * characters, including C1, and bidirectional controls become \x1b or \u202e; bytes that are not
 * valid UTF-8 become U+FFFD.  Error messages and log messages are already in this form. */
typedef enum hl_printable_kind {
    HL_PRINTABLE_LINE = 0, /* a name within a line; invisible characters are replaced as well */
    HL_PRINTABLE_LINES,    /* a text; line ends and tabs are kept */
    HL_PRINTABLE_TOKEN,    /* as HL_PRINTABLE_LINE, with visible symbols for spaces, tabs and
                            * line ends */
    HL_PRINTABLE_JSON,     /* JSON text; the JSON value does not change */
    HL_PRINTABLE_UTF8,     /* the content of a JSON string; only invalid UTF-8 is replaced */
} hl_printable_kind;
/* Works like snprintf: writes at most n_out bytes, always with a terminating NUL, and returns
 * the length of the complete result. */
HL_API size_t hl_printable(char *out, size_t n_out, const char *bytes, size_t n_bytes,
                           hl_printable_kind kind);

/* Turns the SIGBUS of a truncated file into an error message.  Files are mapped, not read: if
 * another process truncates a file in use, touching the missing part raises SIGBUS, which kills
 * the process.  After this call the process instead writes "headlight: FILE: shrank while in
 * use" to standard error and exits with status 3.  Only programs should call this: a library
 * should not install signal handlers, so none is installed by default. */
HL_API void hl_guard_mapped_files(void);

/* Returns the bytes of memory that this process can still allocate, limited by the machine and
 * by its control groups.  0: unknown. */
HL_API size_t hl_memory_available(void);

/* Sets a memory limit for the process.  Allocations of the library beyond it fail with
 * HL_NO_MEMORY and a message with the numbers.  hl_session_open checks first: it returns
 * HL_LIMIT, before allocating, if the model's weights, the session and the memory already held
 * would exceed the limit together.  0, the default: no limit. */
HL_API void hl_memory_limit(size_t n_bytes);
/* Returns the bytes that the library holds now, without mapped files and without the memory of
 * the libraries that it uses. */
HL_API size_t hl_memory_held(void);
/* Works like malloc, but counts the memory with that of the library.  Returns NULL, and sets
 * hl_error_message, if there is not enough memory. */
HL_API void *hl_memory_allocate(size_t n_bytes);
/* Releases memory that the library handed out.  Accepts NULL. */
HL_API void hl_free(void *block);

/* -------------------------------------------------------------------- JSON */

/* A reader for untrusted JSON text.  It reports events in the order of the text.  A simple value
 * is one event.  An array or an object is one event, followed by those of its values and by
 * HL_JSON_END. */
typedef enum hl_json_type {
    HL_JSON_NULL = 0,
    HL_JSON_BOOL,
    HL_JSON_INT,
    HL_JSON_REAL,
    HL_JSON_TEXT,
    HL_JSON_ARRAY,
    HL_JSON_OBJECT,
    HL_JSON_END, /* ends the innermost open array or object */
} hl_json_type;

/* One event.  Its texts are borrowed and valid during the callback. */
typedef struct hl_json_event {
    hl_json_type type;
    const char  *key;     /* the member's name if the value is in an object; else NULL */
    int64_t      integer; /* value of HL_JSON_INT; 0 or 1 for HL_JSON_BOOL */
    double       real;    /* value of HL_JSON_REAL */
    const char  *text;    /* value of HL_JSON_TEXT: UTF-8 that may contain NUL */
    size_t       n_bytes; /* length of `text` */
} hl_json_event;

enum { HL_JSON_MOST_LEVELS = 64 };

/* Parses a text and calls `event` for each event.  Any result of the callback other than HL_OK
 * ends the call with that status.  These errors are reported before the first event: invalid
 * UTF-8, more than HL_JSON_MOST_LEVELS levels, duplicate keys, numbers that fit neither 64 bits
 * nor a double, and text after the value.  The message names the text by `where` and gives line
 * and column. */
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
    /* GGUF block types: 32 to 256 values share their scales. */
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

/* Returns the name that safetensors and GGUF use: "F32", "BF16", "Q4_K", ...; "?" for an invalid
 * dtype. */
HL_API const char *hl_dtype_name(hl_dtype dtype);

/* --------------------------------------------------------------- intervals
 *
 * How certain a number is.  All intervals of the library are made in one way: the number is computed
 * again with each unit left out (the jackknife), and Student's t says how many of the standard
 * errors that follow hold the number with 95% confidence.  Numbers that are skewed or bounded are
 * put on another scale for it (doc/intervals.md).
 *
 * A unit is a document where there are at least HL_MIN_UNITS, else a window: windows of one document
 * are alike.  With fewer units than that there is no interval: low, high and error are NaN. */

#define HL_MIN_UNITS 4

typedef enum hl_units {
    HL_UNITS_WINDOWS = 0,
    HL_UNITS_DOCUMENTS,
    HL_UNITS_SPANS,
    HL_N_UNITS
} hl_units;

typedef struct hl_interval {
    double   low;
    double   high;
    double   error; /* standard error; on another scale, a quarter of the interval's width */
    double   level; /* 0.95 */
    int64_t  n;     /* number of units */
    hl_units units;
} hl_interval;

/* "windows", ... */
HL_API const char *hl_units_name(hl_units units);
/* "Student's t, jackknife over windows", ... */
HL_API const char *hl_interval_method(hl_units units);
/* Why there is no interval: "2 windows: an interval needs 4 or more", in a buffer of n_bytes; the
 * empty text where there is one. */
HL_API void hl_interval_reason(char *out, size_t n_bytes, const hl_interval *interval);

/* ----------------------------------------------------------------- heads */

/* A head of a model.  Where a call documents it, .head = -1 stands for all heads of the layer. */
typedef struct hl_head {
    int64_t layer;
    int64_t head;
} hl_head;

#ifdef __cplusplus
}
#endif
#endif
