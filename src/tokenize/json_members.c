/* json_members.c - single members of a large JSON object. */
#include "tokenize/json_members.h"

#include <stdio.h>

#include "base/memory.h"
#include "base/status.h"

hl_status hl_members_find(hl_member *members, size_t n_members, hl_bytes object, const char *where)
{
    hl_status      status = HL_OK;
    hl_json_reader reader;
    bool           more = false;
    hl_bytes       key, value;

    hl_json_reader_open_part(&reader, object, where);
    HL_TRY(hl_json_enter(&reader, '{'));
    while (hl_json_next(&reader, '}', &more) == HL_OK && more) {
        hl_member *found = NULL;
        HL_TRY(hl_json_read_key(&reader, &key));
        for (size_t i = 0; i < n_members; i++) {
            if (hl_bytes_equal(key, members[i].name))
                found = &members[i];
        }
        if (found != NULL && found->text.data != NULL)
            HL_TRY(hl_json_reader_fail(&reader, "'%s' twice", found->name));
        HL_TRY(hl_json_skip(&reader, &value));
        if (found != NULL && !hl_bytes_equal(value, "null"))
            found->text = value;
    }
    HL_TRY(hl_json_reader_finish(&reader));

done:
    hl_json_reader_close(&reader);
    return status;
}

void hl_member_open(hl_json_reader *out, char where[256], const char *file, const hl_member *part)
{
    snprintf(where, 256, "%s: %s", file, part->name);
    hl_json_reader_open_part(out, part->text, where);
}

/* Reads one value of what its caller knows. */
typedef hl_status (*read_value)(void *out, hl_json_reader *reader);

static hl_status read_flag(void *out, hl_json_reader *reader)
{
    return hl_json_read_bool(reader, out);
}

static hl_status read_integer(void *out, hl_json_reader *reader)
{
    return hl_json_read_int(reader, out);
}

static hl_status read_text(void *out, hl_json_reader *reader)
{
    hl_bytes text;
    char    *copy = NULL;

    HL_NEED(hl_json_read_string(reader, &text));
    HL_NEED(hl_strndup(&copy, text.data, text.n_bytes));
    *(hl_bytes *)out = (hl_bytes){ copy, text.n_bytes };
    return HL_OK;
}

static hl_status read_member(void *out, read_value read, const char *file, const hl_member *part)
{
    hl_json_reader reader = { 0 };
    char           where[256];

    if (part->text.data == NULL)
        return HL_OK;
    hl_member_open(&reader, where, file, part);
    hl_status status = read(out, &reader);
    hl_json_reader_close(&reader);
    return status;
}

hl_status hl_member_flag(bool *out, const char *file, const hl_member *part)
{
    return read_member(out, read_flag, file, part);
}

hl_status hl_member_integer(int64_t *out, const char *file, const hl_member *part)
{
    return read_member(out, read_integer, file, part);
}

hl_status hl_member_text(hl_bytes *out, const char *file, const hl_member *part)
{
    *out = (hl_bytes){ NULL, 0 };
    return read_member(out, read_text, file, part);
}
