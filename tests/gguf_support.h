/* gguf_support.h - GGUF files made byte by byte, valid or invalid. */
#ifndef HL_TESTS_GGUF_SUPPORT_H
#define HL_TESTS_GGUF_SUPPORT_H

#include "support.h"

#include "formats/gguf.h"

typedef struct image {
    uint8_t bytes[4096];
    size_t  n_bytes;
} image;

static inline void put(image *file, const void *bytes, size_t n_bytes)
{
    assert_true(file->n_bytes + n_bytes <= sizeof file->bytes);
    memcpy(file->bytes + file->n_bytes, bytes, n_bytes);
    file->n_bytes += n_bytes;
}

static inline void put_u8(image *file, uint8_t value)
{
    put(file, &value, sizeof value);
}

static inline void put_u32(image *file, uint32_t value)
{
    put(file, &value, sizeof value);
}

static inline void put_u64(image *file, uint64_t value)
{
    put(file, &value, sizeof value);
}

static inline void put_text(image *file, const char *text)
{
    put_u64(file, strlen(text));
    put(file, text, strlen(text));
}

static inline image start_image(uint64_t n_tensors, uint64_t n_values)
{
    image file = { .n_bytes = 0 };
    put(&file, "GGUF", 4);
    put_u32(&file, 3);
    put_u64(&file, n_tensors);
    put_u64(&file, n_values);
    return file;
}

static inline void put_key(image *file, const char *key, uint32_t type)
{
    put_text(file, key);
    put_u32(file, type);
}

/* Adds a tensor of two dimensions, in the file's order. */
static inline void put_tensor(image *file, const char *name, uint64_t inner, uint64_t outer,
                              uint32_t type, uint64_t offset)
{
    put_text(file, name);
    put_u32(file, 2);
    put_u64(file, inner);
    put_u64(file, outer);
    put_u32(file, type);
    put_u64(file, offset);
}

/* Adds padding, then n_bytes of data 0, 1, 2 ... */
static inline void put_data(image *file, size_t n_bytes)
{
    while (file->n_bytes % 32 != 0)
        put_u8(file, 0);
    for (size_t i = 0; i < n_bytes; i++)
        put_u8(file, (uint8_t)i);
}

/* Parses a copy of exactly the file's size, so that a sanitizer sees a byte too far;
 * the copy is freed by the next call. */
static inline hl_status parse_image(hl_gguf **out, const image *file)
{
    static uint8_t *copy;

    free(copy);
    copy = malloc(file->n_bytes > 0 ? file->n_bytes : 1);
    assert_non_null(copy);
    memcpy(copy, file->bytes, file->n_bytes);
    return hl_gguf_parse(out, copy, file->n_bytes, "x.gguf");
}

static inline hl_gguf *accept_image(const image *file)
{
    hl_gguf *parsed = NULL;
    assert_ok(parse_image(&parsed, file));
    return parsed;
}

static inline void refuse_image(const image *file, hl_status wanted, const char *fragment)
{
    hl_gguf  *parsed = (hl_gguf *)&parsed;
    hl_status status = parse_image(&parsed, file);

    assert_fails(wanted, fragment, status);
    assert_fails(wanted, "x.gguf: ", status);
    assert_null(parsed);
}

#endif
