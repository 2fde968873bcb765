/* peer.c - talks to a child process through two pipes. */
#include "peer.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"

struct hl_peer {
    pid_t child;
    FILE *to;
    FILE *from;
    char  name[160];
};

static const char *interpreter(void)
{
    static const char own[]  = "build/venv/bin/python3"; /* tools/deps bench makes it */
    const char       *chosen = getenv("HEADLIGHT_PYTHON");

    if (chosen != NULL)
        return chosen;
    return access(own, X_OK) == 0 ? own : "/usr/bin/python3";
}

/* In the child: becomes the script.  Its standard error stays that of this process. */
static void become(const char *script, int n_threads, const char *argument, int input, int output)
{
    const char *program = interpreter();
    char        threads[16];

    snprintf(threads, sizeof threads, "%d", n_threads);
    dup2(input, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    execlp(program, program, script, threads, argument, (char *)NULL);
    _exit(127);
}

static hl_status start(hl_peer *peer, const char *script, int n_threads, const char *argument)
{
    int down[2], up[2]; /* { read, write } */

    if (pipe(down) != 0 || pipe(up) != 0)
        return hl_fail(HL_IO, "no pipes for %s", script);
    peer->child = fork();
    if (peer->child < 0)
        return hl_fail(HL_IO, "cannot fork for %s", script);
    if (peer->child == 0) {
        close(down[1]);
        close(up[0]);
        become(script, n_threads, argument, down[0], up[1]);
    }
    close(down[0]);
    close(up[1]);
    peer->to   = fdopen(down[1], "w");
    peer->from = fdopen(up[0], "r");
    return HL_OK;
}

/* Reads a line; "no REASON" is a failure. */
static hl_status read_answer(char *out, size_t n_bytes, hl_peer *peer)
{
    if (fgets(out, (int)n_bytes, peer->from) == NULL)
        return hl_fail(HL_NOT_FOUND, "it gave no answer");
    out[strcspn(out, "\n")] = '\0';
    if (strncmp(out, "no ", 3) == 0)
        return hl_fail(HL_UNSUPPORTED, "%s", out + 3);
    return HL_OK;
}

hl_status hl_peer_open(hl_peer **out, const char *script, int n_threads, const char *argument)
{
    hl_status status = HL_OK;
    hl_peer  *peer   = NULL;
    char      line[160];

    *out = NULL;
    if (access(script, R_OK) != 0)
        return hl_fail(HL_NOT_FOUND, "no %s here", script);
    signal(SIGPIPE, SIG_IGN); /* writing to a dead child returns an error */
    HL_TRY(HL_ALLOC_ZEROED(&peer, 1));
    HL_TRY(start(peer, script, n_threads, argument));
    HL_TRY(read_answer(line, sizeof line, peer));
    snprintf(peer->name, sizeof peer->name, "%s",
             strncmp(line, "ready ", 6) == 0 ? line + 6 : line);
    *out = peer;
    peer = NULL;

done:
    hl_peer_close(peer);
    return status;
}

void hl_peer_close(hl_peer *peer)
{
    if (peer == NULL)
        return;
    if (peer->to != NULL)
        fclose(peer->to); /* the child exits when its input ends */
    if (peer->from != NULL)
        fclose(peer->from);
    if (peer->child > 0)
        waitpid(peer->child, NULL, 0);
    hl_free(peer);
}

const char *hl_peer_name(const hl_peer *peer)
{
    return peer->name;
}

hl_status hl_peer_time(double *seconds, hl_peer *peer, int64_t n_keys)
{
    return hl_peer_time_of(seconds, peer, "time", n_keys);
}

hl_status hl_peer_time_of(double *seconds, hl_peer *peer, const char *word, int64_t n_keys)
{
    hl_status status = HL_OK;
    char      line[160];

    fprintf(peer->to, "%s %lld\n", word, (long long)n_keys);
    fflush(peer->to);
    HL_TRY(read_answer(line, sizeof line, peer));
    *seconds = strtod(line, NULL);
    if (!(*seconds > 0.0))
        return hl_fail(HL_BAD_INPUT, "it answered '%s'", line);

done:
    return status;
}

hl_status hl_peer_tell(hl_peer *peer, const char *line)
{
    char answer[160];

    fprintf(peer->to, "%s\n", line);
    fflush(peer->to);
    hl_status status = read_answer(answer, sizeof answer, peer);
    if (status == HL_OK && strcmp(answer, "ok") != 0)
        return hl_fail(HL_BAD_INPUT, "it answered '%s'", answer);
    return status;
}
