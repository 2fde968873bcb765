/* pieces.c - the vocabulary of a tokenizer, and the format of its chats.
 *
 *     pieces PIECE... <tokenizer.json
 *
 * A piece is a token as the vocabulary spells it: "Ġthe" in vocabularies like GPT-2's. */
#include <stdio.h>
#include <string.h>

#include <headlight.h>

static void show_piece(const hl_tokenizer *tokenizer, const char *piece)
{
    static const char *const types[] = { "normal", "unknown", "special", "added", "byte" };

    int64_t id = hl_tokenizer_id(tokenizer, piece, strlen(piece));
    if (id < 0)
        printf("%s: no such piece\n", piece);
    else
        printf("%s: %lld, %s\n", piece, (long long)id, types[hl_tokenizer_type(tokenizer, id)]);
}

int main(int argc, char **argv)
{
    static char   bytes[1 << 26];
    hl_tokenizer *tokenizer = NULL;
    size_t        n_bytes   = fread(bytes, 1, sizeof bytes, stdin);
    hl_status     status    = hl_tokenizer_parse(&tokenizer, bytes, n_bytes, "standard input");

    if (status == HL_OK) {
        hl_chat_format format = hl_tokenizer_chat_format(tokenizer);
        printf("%s, %zu pieces, chats %s\n", hl_tokenizer_kind(tokenizer),
               hl_tokenizer_size(tokenizer), hl_chat_format_name(format));
        for (int i = 1; i < argc; i++)
            show_piece(tokenizer, argv[i]);
    } else {
        fprintf(stderr, "%s\n", hl_error_message());
    }
    hl_tokenizer_close(tokenizer);
    return status == HL_OK ? 0 : 3;
}
