/* What the tests share: two processes, each with the same program. All of it is
 * both C99 and C++17. */
#ifndef TEST_H
#define TEST_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <atoll.h>

#include "../c/bytes.h"

/* Seconds after which what is waited for will not come. */
#define PATIENCE 120

#define CHECK(condition) check((condition) != 0, #condition, __FILE__, __LINE__)
/* The call must give exactly this. */
#define GIVES(wanted, call) gives((int64_t)(wanted), (int64_t)(call), #call, __FILE__, __LINE__)

static atoll_id self, other;

static inline void check(int good, const char *what, const char *file, int line)
{
    if (!good) {
        fprintf(stderr, "%s:%d: %d: not so: %s\n", file, line, self, what);
        exit(1);
    }
}

static inline void gives(int64_t wanted, int64_t got, const char *what, const char *file, int line)
{
    if (wanted != got) {
        fprintf(stderr, "%s:%d: %d: %s gives %lld (%s), not %lld\n", file, line, self, what,
                (long long)got, got < 0 ? atoll_strerror((int)got) : "no error", (long long)wanted);
        exit(1);
    }
}

/* Tags that no test uses otherwise. */
#define MEETING 0xfffffff0u
#define ADDRESS 0xfffffff1u

/* Both have come this far. */
static inline void meet(void)
{
    GIVES(0, atoll_send(self, other, MEETING, NULL, 0));
    GIVES(0, atoll_recv(self, other, MEETING, NULL, 0, NULL));
}

static inline void start_alone(void)
{
    char why[512];

    self = atoll_init();
    if (self < 0) {
        atoll_why(why, sizeof why);
        fprintf(stderr, "%s\n", why);
        exit(1);
    }
    GIVES(2, atoll_size(self));
    other = 1 - self;
}

static inline void start(void)
{
    start_alone();
    GIVES(0, atoll_connect(self, other));
}

/* As meet(), with something to be done while no message is there. */
static inline void meet_quietly(void (*act)(void))
{
    if (self == 0)
        act();
    else
        GIVES(0, atoll_recv(self, other, MEETING, NULL, 0, NULL));
    if (self == 1)
        act();
    GIVES(0, atoll_send(self, other, MEETING, NULL, 0));
    if (self == 0)
        GIVES(0, atoll_recv(self, other, MEETING, NULL, 0, NULL));
}

static inline int stop(void)
{
    meet();
    GIVES(0, atoll_finish(self, ATOLL_WAIT));
    return 0;
}

static inline int is_all(const unsigned char *data, size_t bytes, int byte)
{
    size_t i;

    for (i = 0; i < bytes; i++)
        if (data[i] != byte)
            return 0;
    return 1;
}

/* Tells the other side an address, and hears one. */
static inline unsigned char *swap_addresses(void *mine)
{
    uint64_t address = (uint64_t)(uintptr_t)mine;

    GIVES(0, atoll_send(self, other, ADDRESS, &address, sizeof address));
    GIVES(sizeof address, atoll_recv(self, other, ADDRESS, &address, sizeof address, NULL));
    return (unsigned char *)(uintptr_t)address;
}

/* Waits until the other side writes to a byte. */
static inline void await_byte(const volatile unsigned char *byte)
{
    time_t began = time(NULL);

    while (*byte == 0)
        CHECK(time(NULL) - began < PATIENCE);
}

/* Waits until a message that fits is there. */
static inline void await(atoll_id from, uint32_t tag)
{
    time_t began = time(NULL);
    int there;

    while ((there = atoll_probe(self, from, tag)) == 0)
        CHECK(time(NULL) - began < PATIENCE);
    GIVES(1, there);
}

#endif
