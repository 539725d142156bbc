/* What the tests of matched messages and one-sided memory share. */
#ifndef TAGGED_H
#define TAGGED_H

#include "check.h"

#include "bytes.h"

#include <sys/wait.h>
#include <unistd.h>

static portolan_endpoint *endpoint;
static uint32_t me, other;

static inline void barrier(void)
{
    GIVES(0, portolan_barrier(endpoint, NULL));
}

static inline portolan_completion fresh(void)
{
    portolan_completion completion;

    portolan_completion_init(&completion);
    return completion;
}

/* What an operation has ended with. */
static inline portolan_completion end_of(uint64_t operation)
{
    portolan_completion c = fresh();

    GIVES(1, portolan_operation_wait(endpoint, operation, &c, -1));
    CHECK(c.operation == operation && c.size == sizeof c);
    GIVES(-ENOENT, portolan_operation_test(endpoint, operation, &c));
    return c;
}

/* Nothing is held, once what is on its way has come. */
static inline void nothing_is_held(void)
{
    portolan_statistics statistics;
    int pass;

    portolan_statistics_init(&statistics);
    for (pass = 0; pass < 100000; pass++) {
        GIVES(0, portolan_matched_statistics(endpoint, &statistics));
        if (statistics.operations + statistics.messages + statistics.pushed_bytes + statistics.parts
                + statistics.second_pushes + statistics.pulled_bytes + statistics.backlogs + statistics.unflushed
                + statistics.regions + statistics.accesses == 0)
            return;
        CHECK(portolan_progress(endpoint) >= 0);
    }
    CHECK(!"something is held");
}

/* The same on both ranks, before either goes on. */
static inline void quiet(void)
{
    barrier();
    nothing_is_held();
    barrier();
}

/* Calls what must be refused from a handler on this rank, which counts itself,
 * and in a child, which gives whether it is not so. */
static inline void from_handler_and_child(portolan_handler handler, int (*child_fails)(void))
{
    portolan_binding binding;
    struct seen seen;
    pid_t child;
    int status;

    memset(&seen, 0, sizeof seen);
    portolan_binding_init(&binding);
    binding.handler = handler;
    binding.user = &seen;
    GIVES(0, portolan_bind(endpoint, 1, &binding));
    GIVES(0, portolan_send(endpoint, me, 1, NULL, 0));
    await_messages(endpoint, &seen, 1);
    GIVES(0, portolan_unbind(endpoint, 1));
    child = fork();
    CHECK(child >= 0);
    if (child == 0)
        _exit(child_fails());
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    quiet();
}

static inline void join(uint32_t threads)
{
    endpoint = open_plain(threads, PORTOLAN_HELPER_ON);
    me = (uint32_t)portolan_rank(endpoint);
    GIVES(2, portolan_size(endpoint));
    other = 1 - me;
}

#endif
