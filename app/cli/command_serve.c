/*
 * command_serve.c: `cellar serve`: options, signals, and the order in which a server ends.
 *
 * Signals are blocked in all threads and waited for in this one. The first INT or TERM closes the door: no
 * new connections, what is being answered may end. After the grace, or a second signal, it is cancelled, and
 * its clients are told. HUP counts as TERM.
 */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

#include "cli/commands.h"
#include "cli/serve.h"
#include "cpu_choice.h"
#include "report.h"

#define DEFAULT_PORT 8080
#define LAST_WORDS 2.0 /* seconds in which cancelled answers may be sent */

static serve_options default_options(void)
{
    return (serve_options){.host = "127.0.0.1",
                           .port = DEFAULT_PORT,
                           .n_slots = 8,
                           .n_predict = -1,
                           .n_chunk = 128,
                           .n_queue = 1024,
                           .n_connections = 512,
                           .max_body_mib = 8,
                           .request_seconds = 60,
                           .grace_seconds = 30,
                           .checkpoint_mib = 64,
                           .cache_ram_mib = 1024,
                           .cache_disk_mib = 8192,
                           .shared_ram_mib = 512,
                           .shared_expire = 86400,
                           .memory = memory_options_defaults(),
                           .sampling = sampling_options_defaults()};
}

static options_result parse(int argc, char **argv, serve_options *o, cellar_error *error)
{
    const option table[] = {
        option_text('m', "model", &o->model),
        option_text('a', "alias", &o->alias),
        option_text(0, "chat-template", &o->format),
        option_text(0, "host", &o->host),
        option_integer(0, "port", &o->port, 0, UINT16_MAX),
        option_text(0, "api-key", &o->key),
        option_text(0, "api-key-file", &o->key_file),
        option_integer(0, "parallel", &o->n_slots, 1, 4096),
        option_integer(0, "np", &o->n_slots, 1, 4096),
        option_integer(0, "context", &o->n_context, 0, MEMORY_MOST_CELLS),
        option_integer('n', "predict", &o->n_predict, -1, INT32_MAX),
        option_integer(0, "n-predict", &o->n_predict, -1, INT32_MAX),
        option_integer(0, "chunk", &o->n_chunk, 1, 65536),
        option_integer(0, "queue", &o->n_queue, 1, 1 << 20),
        option_integer(0, "connections", &o->n_connections, 1, 16384),
        option_integer(0, "max-body", &o->max_body_mib, 1, 1024),
        option_integer(0, "request-time", &o->request_seconds, 1, 86400),
        option_integer(0, "grace", &o->grace_seconds, 0, 86400),
        option_integer(0, "checkpoints", &o->checkpoint_mib, 0, 1 << 20),
        option_text(0, "slot-save-path", &o->slot_folder),
        option_flag(0, "metrics", &o->has_metrics),
        option_flag(0, "no-slots", &o->no_slots),
        option_integer(0, "cache-ram", &o->cache_ram_mib, 0, 1 << 24),
        option_text(0, "cache-dir", &o->cache_folder),
        option_integer(0, "cache-disk", &o->cache_disk_mib, 1, 1 << 30),
        option_flag(0, "share-prefixes", &o->shares_prefixes),
        option_text(0, "shared", &o->shared),
        option_text(0, "shared-ca", &o->shared_ca),
        option_text(0, "shared-key", &o->shared_key),
        option_integer(0, "shared-ram", &o->shared_ram_mib, 1, 1 << 20),
        option_integer(0, "shared-expire", &o->shared_expire, 1, INT32_MAX),
        option_integer(0, "shared-wait", &o->shared_wait, 0, 3600000),
        MEMORY_OPTIONS(&o->memory),
        SAMPLING_OPTIONS(&o->sampling),
        option_text(0, "cpu", &o->cpu),
        option_flag(0, "no-mmap", &o->no_mmap),
        option_flag(0, "log-json", &o->logs_json),
        option_flag('q', "quiet", &o->is_quiet),
    };
    options_result result = options_parse(table, sizeof table / sizeof table[0], argc, argv, NULL,
                                          0, NULL, error);
    if (result != OPTIONS_OK) {
        return result;
    }
    return cpu_choice_take(o->cpu, &o->cpu_mask, error) == CELLAR_OK ? OPTIONS_OK : OPTIONS_WRONG;
}

/* ---- signals -------------------------------------------------------------------------------- */

static sigset_t ends(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    return set;
}

/* Did one come within so many seconds? */
static bool is_signalled(double seconds)
{
    const sigset_t set = ends();
    const struct timespec time = {.tv_sec = (time_t)seconds,
                                  .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    int number;
    do {
        number = sigtimedwait(&set, NULL, &time);
    } while (number < 0 && errno == EINTR);
    return number > 0;
}

/* ---- the command ---------------------------------------------------------------------------- */

static void say_where(const serve_parts *p)
{
    const server *s = &p->server;
    printf("listening on http://%s:%u\n", http_address(p->http), (unsigned)http_port(p->http));
    fflush(stdout);
    if (!p->options->is_quiet) {
        fprintf(stderr,
                "cellar serve: %s, %" PRIu32 " cells, %" PRIu32 " answers at once, %" PRIu32
                " tokens each at most%s\n",
                s->model_name, engine_cells(p->engine), s->n_slots, s->n_context,
                p->n_keys > 0 ? "" : ", no key needed");
    }
}

/* Let what is being answered come to its end, or not. */
static void stop(serve_parts *p)
{
    scheduler_close(p->server.scheduler);
    http_close(p->http);
    const uint32_t n = scheduler_load(p->server.scheduler);
    if (n > 0 && !p->options->is_quiet) {
        fprintf(stderr,
                "cellar serve: stopping; %" PRIu32 " answers may end within %" PRId64
                " seconds, another signal ends them now\n",
                n, p->options->grace_seconds);
    }
    const double until = job_now() + (double)p->options->grace_seconds;
    while (scheduler_load(p->server.scheduler) > 0 && job_now() < until && !is_signalled(0.05)) {}
    scheduler_stop(p->server.scheduler);
    const double last = job_now() + LAST_WORDS;
    while (http_active(p->http) > 0 && job_now() < last) {
        (void)is_signalled(0.02);
    }
}

static int serve(const serve_options *o)
{
    const sigset_t set = ends();
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    serve_parts parts;
    int code = EXIT_CODE_FAILED;
    if (serve_make(o, &parts)) {
        say_where(&parts);
        while (!is_signalled(3600)) {}
        stop(&parts);
        code = EXIT_CODE_OK;
    }
    serve_free(&parts);
    return code;
}

int command_serve(int argc, char **argv)
{
    serve_options options = default_options();
    cellar_error error = {.status = CELLAR_OK};
    switch (parse(argc, argv, &options, &error)) {
    case OPTIONS_HELP:
        fputs(command_serve_help, stdout);
        return EXIT_CODE_OK;
    case OPTIONS_WRONG:
        fprintf(stderr, "cellar serve: %s\nSee 'cellar help serve'.\n", error.message);
        return EXIT_CODE_USAGE;
    default:
        return serve(&options);
    }
}
