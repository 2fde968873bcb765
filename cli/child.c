/* child.c - runs a user's command that gets a text and returns one, within limits.
 *
 * The command leads its own process group, so that everything that it starts can be killed with it.
 * Both pipes are served as they become ready: the command may print before it has read everything,
 * and neither side may block the other. */
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "command.h"

extern char **environ;

typedef struct child {
    pid_t           id;
    int             in;  /* our end of its standard input; -1: closed */
    int             out; /* our end of its standard output */
    const char     *input;
    size_t          n_input; /* bytes of input not written yet */
    double          deadline;
    hl_child_limits limits;
    size_t          capacity;
} child;

static void close_end(int *end)
{
    if (*end >= 0)
        close(*end);
    *end = -1;
}

/* Stores a message and returns false. */
static bool fail(hl_child_result *result, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static bool fail(hl_child_result *result, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(result->problem, sizeof result->problem, format, arguments);
    va_end(arguments);
    return false;
}

/* ---------------------------------------------------------------------- start */

static bool spawn(child *c, const char *command, int input, int output)
{
    char *const                argv[] = { (char *)"sh", (char *)"-c", (char *)command, NULL };
    posix_spawn_file_actions_t files;
    posix_spawnattr_t          attributes;
    sigset_t                   defaults;

    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, input, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    int code = posix_spawn(&c->id, "/bin/sh", &files, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return code == 0;
}

/* Makes a pipe whose ends other programs do not inherit. */
static bool make_pipe(int ends[2])
{
    if (pipe(ends) != 0)
        return false;
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    return true;
}

static bool start(child *c, const char *command)
{
    int  input[2] = { -1, -1 }, output[2] = { -1, -1 };
    bool good = make_pipe(input) && make_pipe(output) && spawn(c, command, input[0], output[1]);

    close_end(&input[0]);
    close_end(&output[1]);
    c->in  = input[1];
    c->out = output[0];
    if (good)
        fcntl(c->in, F_SETFL, O_NONBLOCK);
    return good;
}

/* ---------------------------------------------------------------------- pipes */

static void write_some(child *c)
{
    ssize_t n = c->n_input > 0 ? write(c->in, c->input, c->n_input) : 0;

    if (n > 0) {
        c->input += n;
        c->n_input -= (size_t)n;
    }
    /* The command has closed its input, or has read all of it. */
    if ((n < 0 && errno != EAGAIN && errno != EINTR) || c->n_input == 0)
        close_end(&c->in);
}

/* Returns false if the output exceeds its limit or memory is out. */
static bool read_some(child *c, hl_child_result *result)
{
    char    bytes[4096];
    ssize_t n = read(c->out, bytes, sizeof bytes);

    if (n < 0 && errno == EINTR)
        return true;
    if (n <= 0) {
        close_end(&c->out);
        return true;
    }
    if ((size_t)n > c->limits.max_bytes - result->n_bytes)
        return fail(result, "it printed more than %zu bytes", c->limits.max_bytes);
    if (c->capacity - result->n_bytes <= (size_t)n) {
        size_t capacity = 2 * c->capacity + (size_t)n + 1;
        char  *grown    = realloc(result->output, capacity);
        if (grown == NULL)
            return fail(result, "out of memory");
        result->output = grown;
        c->capacity    = capacity;
    }
    memcpy(result->output + result->n_bytes, bytes, (size_t)n);
    result->n_bytes += (size_t)n;
    result->output[result->n_bytes] = '\0';
    return true;
}

static bool in_time(const child *c, hl_child_result *result)
{
    return hl_clock_now() < c->deadline ||
           fail(result, "it took more than %g s and was killed", c->limits.seconds);
}

/* Serves the pipes until the command closes its output. */
static bool talk(child *c, hl_child_result *result)
{
    while (c->out >= 0) {
        struct pollfd ends[2] = { { .fd = c->out, .events = POLLIN },
                                  { .fd = c->in, .events = POLLOUT } };
        double        left    = c->deadline - hl_clock_now();

        if (!in_time(c, result))
            return false;
        if (poll(ends, 2, (int)(1000.0 * left) + 1) < 0 && errno != EINTR)
            return fail(result, "poll: %s", strerror(errno));
        if (c->in >= 0 && ends[1].revents != 0)
            write_some(c);
        if (ends[0].revents != 0 && !read_some(c, result))
            return false;
    }
    return true;
}

/* Waits until the command ends by itself or its time is over. */
static bool await(child *c, hl_child_result *result)
{
    int status = 0;

    while (waitpid(c->id, &status, WNOHANG) == 0) {
        if (!in_time(c, result))
            return false;
        nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
    }
    c->id = 0;
    if (WIFSIGNALED(status))
        return fail(result, "signal %d ended it", WTERMSIG(status));
    return WEXITSTATUS(status) == 0 || fail(result, "it ended with status %d", WEXITSTATUS(status));
}

/* Kills the command with everything that it started. */
static void end_child(const child *c)
{
    if (c->id <= 0)
        return;
    kill(-c->id, SIGKILL);
    while (waitpid(c->id, NULL, 0) < 0 && errno == EINTR)
        continue;
}

bool hl_child_run(hl_child_result *out, const char *command, const char *input, size_t n_input,
                  hl_child_limits limits)
{
    child            c      = { .in       = -1,
                                .out      = -1,
                                .input    = input,
                                .n_input  = n_input,
                                .deadline = hl_clock_now() + limits.seconds,
                                .limits   = limits };
    struct sigaction ignore = { .sa_handler = SIG_IGN }, before;
    bool             good   = false;

    *out = (hl_child_result){ .output = calloc(1, 1) };
    sigaction(SIGPIPE, &ignore, &before); /* writing to a command that reads nothing must not end
                                           * this program */
    c.capacity = 1;
    if (out->output == NULL || !start(&c, command))
        fail(out, "it cannot be started: %s", strerror(errno));
    else
        good = talk(&c, out) && await(&c, out);
    end_child(&c);
    close_end(&c.in);
    close_end(&c.out);
    sigaction(SIGPIPE, &before, NULL);
    if (!good) {
        free(out->output);
        out->output  = NULL;
        out->n_bytes = 0;
    }
    return good;
}
