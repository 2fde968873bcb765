/* fuzz_json.c - arbitrary bytes as JSON.
 *
 * They are refused with a message, or they parse into a value that, written and parsed again, is
 * the same value.  As lines, they are objects up to the first line that is not an object. */
#include <string.h>

#include "base/json.h"
#include "fuzz.h"

/* Getters never crash, for any value. */
static void read_keys(const json_t *value)
{
    int64_t     integer = 1;
    double      number  = 1;
    bool        boolean = true;
    const char *string  = "";

    (void)hl_json_get_int(&integer, value, "i", "fuzz");
    (void)hl_json_get_double(&number, value, "d", "fuzz");
    (void)hl_json_get_bool(&boolean, value, "b", "fuzz");
    (void)hl_json_get_string(&string, value, "s", "fuzz");
    PROMISE(string != NULL);
}

/* Any bytes can become a JSON string. */
static void read_text(const char *bytes, size_t n_bytes)
{
    json_t *text = hl_json_text(bytes, n_bytes);

    PROMISE(json_is_string(text) && json_string_length(text) >= n_bytes);
    json_decref(text);
}

static void read_lines(const char *bytes, size_t n_bytes)
{
    hl_json_lines lines = { .at = bytes, .end = bytes + n_bytes, .where = "fuzz" };
    json_t       *line  = NULL;

    lines.with_nul = n_bytes % 2 == 1;
    while (hl_json_lines_next(&line, &lines) == HL_OK) {
        PROMISE(json_is_object(line) && lines.at <= lines.end);
        json_decref(line);
    }
    (void)refused(line);
}

static hl_status follow(void *context, const hl_json_event *event)
{
    int *depth = context;

    *depth += event->type == HL_JSON_END ? -1 : event->type >= HL_JSON_ARRAY;
    PROMISE(*depth >= 0 && *depth <= HL_JSON_MOST_LEVELS);
    PROMISE(event->type != HL_JSON_TEXT || event->text[event->n_bytes] == '\0');
    return HL_OK;
}

/* Rebuilds the value from its parts; with one part NULL, the result is NULL. */
static void rebuild(json_t *value)
{
    json_t *array = json_array(), *object = json_object();

    hl_json_add(&array, json_incref(value));
    hl_json_put(&object, "value", array);
    PROMISE(json_equal(json_array_get(json_object_get(object, "value"), 0), value));
    hl_json_put(&object, "nothing", NULL);
    PROMISE(object == NULL && hl_json_dump(object, 0) == NULL);
    array = json_array();
    hl_json_add(&array, NULL);
    PROMISE(array == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    json_t *value = NULL;
    json_t *again = NULL;

    read_text((const char *)bytes, n_bytes);
    read_lines((const char *)bytes, n_bytes);
    if (hl_json_parse(&value, (const char *)bytes, n_bytes, "fuzz") != HL_OK)
        return refused(value);
    int depth = 0;
    PROMISE(hl_json_walk((const char *)bytes, n_bytes, "fuzz", follow, &depth) == HL_OK);
    PROMISE(depth == 0);
    read_keys(value);
    rebuild(value);
    char *text = hl_json_dump(value, JSON_COMPACT | JSON_ENCODE_ANY);
    PROMISE(text != NULL);
    PROMISE(hl_json_parse(&again, text, strlen(text), "fuzz") == HL_OK);
    PROMISE(json_equal(value, again));
    hl_free(text);
    json_decref(value);
    json_decref(again);
    return 0;
}
