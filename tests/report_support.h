/* report_support.h - reads reports back: the data of a page, and its arrays. */
#ifndef HL_TESTS_REPORT_SUPPORT_H
#define HL_TESTS_REPORT_SUPPORT_H

#include "made_profile.h"

#include <jansson.h>

#include "base/dtype.h"

#define OPENING "<script type=\"application/json\" id=\"headlight-data\">"

/* Returns the data of a report, which must contain it exactly once. */
static inline json_t *read_data(const char *path)
{
    size_t       n_bytes = 0;
    json_error_t error;
    char        *page  = read_file(path, &n_bytes);
    char        *begin = strstr(page, OPENING);

    assert_int_equal(strlen(page), n_bytes);
    assert_non_null(begin);
    begin += strlen(OPENING);
    assert_null(strstr(begin, OPENING));
    char *end = strstr(begin, "</script>");
    assert_non_null(end);
    assert_non_null(strstr(end, "</html>"));
    assert_null(memchr(begin, '<', (size_t)(end - begin)));
    assert_null(memchr(begin, '>', (size_t)(end - begin)));
    assert_null(memchr(begin, '&', (size_t)(end - begin)));
    json_t *data =
        json_loadb(begin, (size_t)(end - begin), JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (data == NULL)
        fail_msg("line %d: %s", error.line, error.text);
    free(page);
    return data;
}

static inline json_t *write_and_read(const hl_report *report)
{
    const char *folder = new_folder();
    const char *path   = in_folder(folder, "report.html");

    assert_ok(hl_report_write(report, path));
    assert_int_equal(count_files(folder), 1); /* there is nothing under a temporary name */
    json_t *data = read_data(path);
    remove_folder(folder);
    return data;
}

static inline int digit_of(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char       *at       = strchr(digits, c);

    assert_true(c != '\0' && at != NULL);
    return (int)(at - digits);
}

/* Decodes by the definition: six bits per character. */
static inline size_t decode_base64(uint8_t *out, const char *text)
{
    size_t   n      = 0;
    uint32_t bits   = 0;
    int      n_bits = 0;

    assert_int_equal(strlen(text) % 4, 0);
    for (; *text != '\0' && *text != '='; text++) {
        bits = bits << 6 | (uint32_t)digit_of(*text);
        n_bits += 6;
        if (n_bits >= 8) {
            n_bits -= 8;
            out[n++] = (uint8_t)(bits >> n_bits);
        }
    }
    return n;
}

static inline double raw_value(const uint8_t *bytes, const char *dtype, size_t i)
{
    uint32_t bits = 0;
    float    value;

    if (strcmp(dtype, "u8") == 0)
        return bytes[i];
    if (strcmp(dtype, "f16") == 0)
        return (double)hl_f16_to_f32((uint16_t)(bytes[2 * i] | bytes[2 * i + 1] << 8));
    assert_string_equal(dtype, "f32");
    for (int byte = 3; byte >= 0; byte--)
        bits = bits << 8 | bytes[4 * i + (size_t)byte];
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

/* Decodes an array as its description requires; release with free. */
static inline double *decode(const json_t *array, const int64_t *shape, int n_dims)
{
    const char *dtype = json_string_value(json_object_get(array, "dtype"));
    const char *text  = json_string_value(json_object_get(array, "data"));
    json_t     *sizes = json_object_get(array, "shape");
    size_t      n = 1, width = 0;

    assert_non_null(dtype);
    assert_non_null(text);
    width = strcmp(dtype, "u8") == 0 ? 1 : strcmp(dtype, "f16") == 0 ? 2 : 4;
    assert_int_equal(json_array_size(sizes), n_dims);
    for (int i = 0; i < n_dims; i++) {
        assert_int_equal(json_integer_value(json_array_get(sizes, (size_t)i)), shape[i]);
        n *= (size_t)shape[i];
    }
    uint8_t *bytes  = malloc(strlen(text) + 1);
    double  *values = malloc(n * sizeof *values);
    bool     nan    = json_is_true(json_object_get(array, "nan"));
    json_t  *scale = json_object_get(array, "scale"), *offset = json_object_get(array, "offset");
    assert_int_equal(decode_base64(bytes, text), n * width);
    for (size_t i = 0; i < n; i++) {
        double raw = raw_value(bytes, dtype, i);
        values[i]  = nan && raw == 255.0 ? NAN
                     : scale != NULL ? json_number_value(offset) + json_number_value(scale) * raw
                                     : raw;
    }
    free(bytes);
    return values;
}

/* Returns the value at a path such as a.b.0.c. */
static inline json_t *at(json_t *from, const char *path)
{
    char  copy[128];
    char *save = NULL;

    snprintf(copy, sizeof copy, "%s", path);
    for (char *word = strtok_r(copy, ".", &save); word != NULL; word = strtok_r(NULL, ".", &save)) {
        from = json_is_array(from) ? json_array_get(from, (size_t)atoi(word))
                                   : json_object_get(from, word);
        if (from == NULL)
            fail_msg("no %s in %s", word, path);
    }
    return from;
}

static inline void assert_same(double got, double wanted, double tolerance, const char *what)
{
    if (isnan(wanted) ? !isnan(got) : !(fabs(got - wanted) <= tolerance))
        fail_msg("%s is %.9g, wanted %.9g", what, got, wanted);
}

#endif
