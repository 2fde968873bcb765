/* nearest.c - the distance between words, for suggestions.
 *
 * The usual table, three rows of it:  d[i][j] is the cost of turning the first
 * i letters of a into the first j letters of b. */
#include "nearest.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define MAX_WORD 32

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The number of letters to insert, remove, replace or swap with a neighbour to
 * get from one word to the other.  Long words count as far apart. */
static size_t word_distance(const char *a, const char *b)
{
    size_t n_a = strlen(a), n_b = strlen(b);
    size_t rows[3][MAX_WORD + 1];

    if (n_a > MAX_WORD || n_b > MAX_WORD)
        return SIZE_MAX;
    for (size_t j = 0; j <= n_b; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= n_a; i++) {
        size_t       *now     = rows[i % 3];
        const size_t *before  = rows[(i + 2) % 3];
        const size_t *earlier = rows[(i + 1) % 3];

        now[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            now[j] = before[j - 1] + (a[i - 1] != b[j - 1]);
            now[j] = least(now[j], least(before[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = least(now[j], earlier[j - 2] + 1);
        }
    }
    return rows[n_a % 3][n_b];
}

void hl_nearest_offer(hl_nearest *nearest, const char *word)
{
    /* A third of the letters may be wrong, and one always; a beginning is near. */
    size_t n_wanted = strlen(nearest->wanted);
    size_t allowed  = n_wanted < 3 ? 1 : n_wanted / 3 + 1;
    size_t distance = word_distance(nearest->wanted, word);

    if (n_wanted >= 2 && strncmp(nearest->wanted, word, n_wanted) == 0)
        distance = 1;
    /* "colapse" is near "entropy-collapse": one of its parts may be all that is remembered. */
    for (const char *part = strchr(word, '-') != NULL ? word : NULL; part != NULL && n_wanted >= 4;
         part             = strchr(part, '-')) {
        char own[MAX_WORD + 1];

        part += *part == '-';
        if (strcspn(part, "-") > MAX_WORD)
            continue;
        snprintf(own, sizeof own, "%.*s", (int)strcspn(part, "-"), part);
        size_t of_part = word_distance(nearest->wanted, own);
        if (of_part != SIZE_MAX && of_part + 1 < distance)
            distance = of_part + 1;
    }
    if (distance > allowed || (nearest->word != NULL && distance >= nearest->distance))
        return;
    nearest->word     = word;
    nearest->distance = distance;
}
