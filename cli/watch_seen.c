/* watch_seen.c - a list of checkpoints by name, and how long each has looked the same. */
#include "watch_seen.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clock.h"

static hl_seen_checkpoint *find(const hl_seen *seen, const char *name)
{
    for (int64_t i = 0; i < seen->count; i++) {
        if (strcmp(seen->items[i].name, name) == 0)
            return &seen->items[i];
    }
    return NULL;
}

static hl_seen_checkpoint *add(hl_seen *seen, const char *name)
{
    hl_seen_checkpoint *grown =
        realloc(seen->items, ((size_t)seen->count + 1) * sizeof *seen->items);
    char *copy = strdup(name);

    if (grown != NULL)
        seen->items = grown;
    if (grown == NULL || copy == NULL) {
        free(copy);
        return NULL;
    }
    grown[seen->count] = (hl_seen_checkpoint){ .name = copy, .n_bytes = -1 };
    return &grown[seen->count++];
}

hl_seen_checkpoint *hl_seen_look(hl_seen *seen, const hl_checkpoint *checkpoint)
{
    hl_seen_checkpoint *item = find(seen, checkpoint->name);

    if (item == NULL)
        item = add(seen, checkpoint->name);
    if (item == NULL ||
        (item->n_bytes == checkpoint->n_bytes && item->modified == checkpoint->modified))
        return item;
    item->n_bytes   = checkpoint->n_bytes;
    item->modified  = checkpoint->modified;
    item->since     = hl_clock_now();
    item->is_failed = false;
    return item;
}

bool hl_seen_is_settled(const hl_seen_checkpoint *seen, double seconds)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    double age = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec - 1e-9 * (double)seen->modified;
    return age >= seconds || hl_clock_now() - seen->since >= seconds;
}

void hl_seen_free(hl_seen *seen)
{
    for (int64_t i = 0; i < seen->count; i++)
        free(seen->items[i].name);
    free(seen->items);
    *seen = (hl_seen){ 0 };
}
