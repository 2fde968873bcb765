/* fields.h - the named values of a model, from config.json or from GGUF metadata.
 *
 * The same number has several names: hidden_size, n_embd and dim in config.json,
 * llama.embedding_length in a GGUF file.  A caller gives all names: first config.json's spellings
 * ("hidden_size|n_embd|dim"; the first that is present counts), then GGUF's without the
 * architecture ("=key" for a key that has none).  NULL means that a source has no such value.
 *
 * A missing key (or null) leaves the result as it was: set the default first.  A wrong type or a
 * number out of range is HL_BAD_INPUT, with the file, the key, the value and what was expected. */
#ifndef HL_MODEL_FIELDS_H
#define HL_MODEL_FIELDS_H

#include "base/json.h"
#include "formats/gguf.h"
#include "formats/tensors.h"
#include "headlight/base.h"
#include "model/config.h"

#define HL_MAX_FIELD_TEXT 128

/* Either `object` or `gguf` is set; everything is borrowed. */
typedef struct hl_fields {
    const char       *where;
    const json_t     *object; /* config.json, or an object nested in it */
    const json_t     *outer;  /* the whole config.json: read where `object` lacks a key */
    const hl_gguf    *gguf;
    const char       *architecture; /* general.architecture */
    const hl_tensors *tensors;      /* tensors of the GGUF file */
} hl_fields;

bool      hl_fields_have(const hl_fields *fields, const char *json, const char *gguf);
hl_status hl_fields_int(int64_t *out, const hl_fields *fields, const char *json, const char *gguf,
                        int64_t low, int64_t high);
/* The value must be finite. */
hl_status hl_fields_double(double *out, const hl_fields *fields, const char *json,
                           const char *gguf);
hl_status hl_fields_bool(bool *out, const hl_fields *fields, const char *json, const char *gguf);
/* Writes at most HL_MAX_FIELD_TEXT bytes, NUL included; longer texts are cut. */
hl_status hl_fields_text(char *out, const hl_fields *fields, const char *json, const char *gguf);
/* Reads a list of `count` integers (or booleans, as 0 and 1); *found says whether there is one.
 * A single integer is not a list. */
hl_status hl_fields_ints(int64_t *out, bool *found, const hl_fields *fields, const char *json,
                         const char *gguf, size_t count);

/* Reads a list of `count` numbers; infinite ones are possible in GGUF. */
hl_status hl_fields_doubles(double *out, bool *found, const hl_fields *fields, const char *json,
                            const char *gguf, size_t count);

/* Does the GGUF file have such a tensor?  False for other sources. */
bool hl_fields_have_tensor(const hl_fields *fields, const char *name);
/* The size of dimension `dim` of a tensor, outermost first; 0 if there is no such tensor. */
int64_t hl_fields_tensor_size(const hl_fields *fields, const char *name, int dim);

/* --------------------------------------------------------- tables of fields */

/* Limits on what a file may claim: far beyond any model, and small enough that
 * products of three of them fit in 63 bits. */
#define HL_MAX_WIDTH   ((int64_t)1 << 20)
#define HL_MAX_HEADS   4096
#define HL_MAX_VOCAB   ((int64_t)1 << 24)
#define HL_MAX_CONTEXT ((int64_t)1 << 30)

typedef enum hl_field_kind {
    HL_FIELD_INT = 0,
    HL_FIELD_COUNT,       /* an integer, or a list with one per layer, whose largest counts */
    HL_FIELD_INT_OR_NULL, /* null is 0, not the default */
    HL_FIELD_DOUBLE,
    HL_FIELD_DOUBLE_OR_NULL,
    HL_FIELD_BOOL,
    HL_FIELD_NOT,        /* true clears the bool, false sets it  */
    HL_FIELD_INVERSE,    /* 1 / x, for what config.json divides by */
    HL_FIELD_RSQRT,      /* 1 / sqrt(x)                          */
    HL_FIELD_ACTIVATION, /* the name of an activation */
    HL_FIELD_LENGTH,     /* how many entries a list has, or letters a text */
    HL_FIELD_BIASES,     /* true sets those bits, false clears them */
} hl_field_kind;

typedef struct hl_field {
    const char   *json;
    const char   *gguf;
    hl_field_kind kind;
    size_t        offset; /* offset of the member of hl_config */
    int64_t       low;    /* smallest valid integer; HL_FIELD_BIASES: the bits */
    int64_t       high;
} hl_field;

#define HL_INT(member, low, high)   HL_FIELD_INT, offsetof(hl_config, member), (low), (high)
#define HL_COUNT(member, low, high) HL_FIELD_COUNT, offsetof(hl_config, member), (low), (high)
#define HL_INT_OR_NULL(member, low, high)                                                          \
    HL_FIELD_INT_OR_NULL, offsetof(hl_config, member), (low), (high)
#define HL_DOUBLE_OR_NULL(member)    HL_FIELD_DOUBLE_OR_NULL, offsetof(hl_config, member), 0, 0
#define HL_DOUBLE(member)            HL_FIELD_DOUBLE, offsetof(hl_config, member), 0, 0
#define HL_BOOL(member)              HL_FIELD_BOOL, offsetof(hl_config, member), 0, 0
#define HL_NOT(member)               HL_FIELD_NOT, offsetof(hl_config, member), 0, 0
#define HL_INVERSE(member)           HL_FIELD_INVERSE, offsetof(hl_config, member), 0, 0
#define HL_LENGTH(member, low, high) HL_FIELD_LENGTH, offsetof(hl_config, member), (low), (high)
#define HL_RSQRT(member)             HL_FIELD_RSQRT, offsetof(hl_config, member), 0, 0
#define HL_ACTIVATION(member)        HL_FIELD_ACTIVATION, offsetof(hl_config, member), 0, 0
#define HL_BIASES(bits)              HL_FIELD_BIASES, offsetof(hl_config, biases), (bits), 0

/* Reads every field of a table, which ends with an entry of zeros.  NULL is an empty table. */
hl_status hl_fields_read(hl_config *config, const hl_fields *fields, const hl_field *table);

#endif
