/* What the C tests share. All of it is both C99 and C++17. */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <portolan.h>

#define CHECK(condition) check((condition) != 0, #condition, __FILE__, __LINE__)
/* The call must give exactly this. */
#define GIVES(wanted, call) gives((int64_t)(wanted), (int64_t)(call), #call, __FILE__, __LINE__)

/* Waits for an operation on an endpoint; returns how it ended. */
#define ENDED(endpoint, operation) ended(endpoint, operation, __FILE__, __LINE__)

static inline void check(int good, const char *what, const char *file, int line)
{
    if (!good) {
        fprintf(stderr, "%s:%d: not so: %s\n", file, line, what);
        exit(1);
    }
}

static inline void gives(int64_t wanted, int64_t got, const char *what, const char *file, int line)
{
    if (wanted != got) {
        fprintf(stderr, "%s:%d: %s gives %lld (%s), not %lld\n", file, line, what, (long long)got,
                got < 0 ? portolan_strerror((int)got) : "no error", (long long)wanted);
        exit(1);
    }
}

static inline int ended(portolan_endpoint *endpoint, uint64_t operation, const char *file, int line)
{
    portolan_completion completion;

    portolan_completion_init(&completion);
    gives(1, portolan_operation_wait(endpoint, operation, &completion, -1), "the wait", file, line);
    check(completion.operation == operation, "it is this operation", file, line);
    return completion.error;
}

/* What handlers saw. */
struct seen {
    portolan_endpoint *endpoint;
    uint64_t messages;
    uint64_t bytes;
    /* Of the last. */
    uint32_t from, number, arg_count;
    uint16_t port, flow;
    uint8_t priority;
    uint64_t args[PORTOLAN_ARGS_MAX];
    const void *payload;
    unsigned char text[64];
    /* Of error handlers. */
    uint64_t events;
    portolan_event event;
    /* Wait for so many. */
    uint64_t wanted;
};

static inline void count(portolan_context *context, const portolan_message *m, void *user)
{
    struct seen *seen = (struct seen *)user;

    CHECK(context != NULL && m->size >= sizeof *m && m->payload != NULL);
    seen->messages++;
    seen->bytes += m->bytes;
    seen->from = m->from;
    seen->number = m->number;
    seen->port = m->port;
    seen->flow = m->flow;
    seen->priority = m->priority;
    seen->arg_count = m->arg_count;
    if (m->arg_count > 0)
        memcpy(seen->args, m->args, m->arg_count * sizeof *m->args);
    seen->payload = m->payload;
    memcpy(seen->text, m->payload, m->bytes < sizeof seen->text ? m->bytes : sizeof seen->text);
}

static inline void note(portolan_context *context, const portolan_event *event, void *user)
{
    struct seen *seen = (struct seen *)user;

    CHECK(context != NULL && event->size >= sizeof *event);
    CHECK(portolan_reply(context, 1, NULL, 0, NULL, 0) == -EINVAL);
    seen->events++;
    seen->event = *event;
}

static inline int enough_messages(void *user)
{
    const struct seen *seen = (const struct seen *)user;

    return seen->messages >= seen->wanted;
}

static inline int enough_events(void *user)
{
    const struct seen *seen = (const struct seen *)user;

    return seen->events >= seen->wanted;
}

static inline int never(void *user)
{
    (void)user;
    return 0;
}

static inline void await_messages(portolan_endpoint *endpoint, struct seen *seen, uint64_t wanted)
{
    seen->wanted = wanted;
    GIVES(0, portolan_wait_until(endpoint, enough_messages, seen, -1));
}

static inline void await_events(portolan_endpoint *endpoint, struct seen *seen, uint64_t wanted)
{
    seen->wanted = wanted;
    GIVES(0, portolan_wait_until(endpoint, enough_events, seen, -1));
}

/* Binds a port to the handlers above. */
static inline void bind_seen(portolan_endpoint *endpoint, uint16_t port, struct seen *seen,
                             void *buffer, size_t bytes)
{
    portolan_binding binding;

    portolan_binding_init(&binding);
    binding.buffer = buffer;
    binding.buffer_bytes = bytes;
    binding.handler = count;
    binding.error_handler = note;
    binding.user = seen;
    GIVES(0, portolan_bind(endpoint, port, &binding));
}

static inline portolan_endpoint *open_plain(uint32_t threads, uint32_t helper)
{
    portolan_endpoint *endpoint = NULL;
    portolan_options options;
    char why[512] = "";

    portolan_options_init(&options);
    options.threads = threads;
    options.helper = helper;
    if (portolan_open(&endpoint, &options, why, sizeof why) != 0) {
        fprintf(stderr, "cannot open: %s\n", why);
        exit(1);
    }
    CHECK(endpoint != NULL);
    return endpoint;
}

#endif
