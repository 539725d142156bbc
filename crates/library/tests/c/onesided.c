/* One-sided memory of two ranks: `onesided plain` and `onesided threads`. */
#include "tagged.h"

#include <pthread.h>
#include <time.h>

#define BIG (1u << 20)
/* Seconds after which what is waited for will not come. */
#define PATIENCE 120

/* What is registered, and what is put or got. */
static unsigned char *shared, *own;

static uint64_t open_region(size_t bytes, uint32_t rights, portolan_remote_key *key)
{
    portolan_region_options options;
    uint64_t region = 0;

    portolan_region_options_init(&options);
    options.rights = rights;
    GIVES(0, portolan_register(endpoint, shared, bytes, &options, &region));
    CHECK(region != 0);
    GIVES(0, portolan_region_key(endpoint, region, key));
    return region;
}

/* Each rank opens one and gets the other's key. */
static uint64_t exchange(size_t bytes, uint32_t rights, portolan_remote_key *theirs)
{
    portolan_remote_key mine;
    uint64_t region = open_region(bytes, rights, &mine);

    GIVES(0, portolan_send_tagged(endpoint, other, 99, &mine, sizeof mine));
    GIVES(0, portolan_receive_tagged(endpoint, other, 99, 0, theirs, sizeof *theirs, NULL));
    return region;
}

static int put(const portolan_remote_key *key, uint64_t offset, const void *data, size_t bytes)
{
    portolan_completion c;
    uint64_t op;

    GIVES(0, portolan_post_put(endpoint, other, key, offset, data, bytes, NULL, &op));
    c = end_of(op);
    CHECK(c.action == PORTOLAN_PUT && c.peer == other && c.tag == 0 && c.has_data == 0);
    CHECK(c.total == bytes && c.bytes == (c.error == 0 ? bytes : 0));
    return c.error;
}

static int get(const portolan_remote_key *key, uint64_t offset, void *to, size_t bytes)
{
    portolan_completion c;
    uint64_t op;

    GIVES(0, portolan_post_get(endpoint, other, key, offset, to, bytes, NULL, &op));
    c = end_of(op);
    CHECK(c.action == PORTOLAN_GOT && c.peer == other && c.total == bytes);
    return c.error;
}

static void every_length(void)
{
    static const size_t lengths[] = {0, 1, 8, 1500, 16385, 70001, BIG - 64};
    portolan_remote_key key;
    uint64_t region = exchange(BIG, PORTOLAN_MAY_GET | PORTOLAN_MAY_PUT, &key);
    size_t i, n;

    for (i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        n = lengths[i];
        memset(shared, 0, BIG);
        barrier();
        fill(own, n, (uint32_t)i + me);
        GIVES(0, put(&key, 8 * i + 1, n == 0 ? NULL : own, n));
        barrier();
        /* Visible before its end was told, and nothing beside it. */
        memset(own, 0xee, BIG);
        GIVES(0, portolan_region_read(endpoint, region, 8 * i, own, n + 2));
        CHECK(own[0] == 0 && is_filled(own + 1, n, (uint32_t)i + other) && own[n + 1] == 0);
        memset(own, 0xee, BIG);
        GIVES(0, get(&key, 8 * i + 1, own, n));
        CHECK(is_filled(own, n, (uint32_t)i + me) && own[n] == 0xee);
        barrier();
    }
    GIVES(0, portolan_deregister(endpoint, region));
    quiet();
}

/* The target's program makes no calls: it looks at its memory. */
static void while_the_target_computes(void)
{
    volatile unsigned char *flag = shared + 99999;
    portolan_remote_key key;
    uint64_t region;
    time_t began;

    *flag = 0;
    region = exchange(100000, PORTOLAN_MAY_PUT, &key);
    if (me == 0) {
        memset(own, 7, 100000);
        GIVES(0, put(&key, 0, own, 99999));
        GIVES(0, put(&key, 99999, own, 1));
    } else {
        for (began = time(NULL); *flag == 0;)
            CHECK(time(NULL) - began < PATIENCE);
        CHECK(*flag == 7 && shared[0] == 7 && shared[99998] == 7);
    }
    barrier();
    GIVES(0, portolan_deregister(endpoint, region));
    quiet();
}

static void several_pieces(void)
{
    portolan_region_options options;
    portolan_remote_key key, theirs;
    struct iovec pieces[3];
    uint64_t region, op;
    size_t n = 30000;

    /* 100 bytes, nothing, and the rest. */
    memset(pieces, 0, sizeof pieces);
    memset(shared, 0, BIG);
    pieces[0].iov_base = shared + 200000;
    pieces[0].iov_len = 100;
    pieces[2].iov_base = shared;
    pieces[2].iov_len = n - 100;
    portolan_region_options_init(&options);
    options.rights = PORTOLAN_MAY_GET | PORTOLAN_MAY_PUT;
    GIVES(0, portolan_registerv(endpoint, pieces, 3, &options, &region));
    GIVES(0, portolan_region_key(endpoint, region, &key));
    GIVES(0, portolan_send_tagged(endpoint, other, 1, &key, sizeof key));
    GIVES(0, portolan_receive_tagged(endpoint, other, 1, 0, &theirs, sizeof theirs, NULL));
    fill(own, n, me);
    pieces[0].iov_base = own;
    pieces[0].iov_len = 7;
    pieces[1].iov_base = own + 7;
    pieces[1].iov_len = 9000;
    pieces[2].iov_base = own + 9007;
    pieces[2].iov_len = n - 9007;
    GIVES(0, portolan_post_putv(endpoint, other, &theirs, 0, pieces, 3, NULL, &op));
    CHECK(end_of(op).error == 0);
    barrier();
    memset(own, 0, n);
    GIVES(0, portolan_region_read(endpoint, region, 0, own, n));
    CHECK(is_filled(own, n, other));
    CHECK(memcmp(shared + 200000, own, 100) == 0 && memcmp(shared, own + 100, n - 100) == 0);
    memset(own, 0, n);
    GIVES(0, portolan_post_getv(endpoint, other, &theirs, 0, pieces, 3, NULL, &op));
    CHECK(end_of(op).error == 0 && is_filled(own, n, me));
    barrier();
    GIVES(0, portolan_deregister(endpoint, region));
    quiet();
}

static void signals(void)
{
    portolan_access_options options;
    portolan_remote_key key;
    struct seen seen;
    uint64_t region, op, i;

    memset(&seen, 0, sizeof seen);
    memset(shared, 0, 50000);
    bind_seen(endpoint, 5, &seen, NULL, 0);
    region = exchange(50000, PORTOLAN_MAY_PUT, &key);
    portolan_access_options_init(&options);
    options.flags = PORTOLAN_SIGNAL | PORTOLAN_LOCAL;
    options.port = 5;
    for (i = 1; i <= 3; i++) {
        fill(own, 20000 * (i - 1), (uint32_t)i);
        options.word = 1000 + i;
        GIVES(0, portolan_post_put(endpoint, other, &key, i, own, 20000 * (i - 1), &options, &op));
        await_messages(endpoint, &seen, i);
        CHECK(seen.from == other && seen.port == 5 && seen.bytes == 0 && seen.arg_count == 2);
        CHECK(seen.args[0] == 1000 + i && seen.args[1] == 20000 * (i - 1));
        CHECK(is_filled(shared + i, 20000 * (i - 1), (uint32_t)i));
        CHECK(end_of(op).error == 0);
        barrier();
    }
    /* Nobody there to be told: nothing is put either. */
    GIVES(0, portolan_unbind(endpoint, 5));
    memset(shared, 0, 10);
    barrier();
    options.flags = PORTOLAN_SIGNAL;
    GIVES(0, portolan_post_put(endpoint, other, &key, 0, "x", 1, &options, &op));
    CHECK(end_of(op).error == -ECONNREFUSED);
    barrier();
    CHECK(shared[0] == 0);
    /* The refused put was the last that is counted as unflushed. */
    GIVES(0, portolan_post_flush(endpoint, other, NULL, &op));
    CHECK(end_of(op).error == 0);
    GIVES(0, portolan_deregister(endpoint, region));
    quiet();
}

static uint64_t add(uint32_t rank, const portolan_remote_key *key, uint64_t offset, uint64_t n)
{
    portolan_completion c;
    uint64_t op;

    GIVES(0, portolan_post_fetch_add(endpoint, rank, key, offset, n, NULL, &op));
    c = end_of(op);
    CHECK(c.error == 0 && c.action == PORTOLAN_ADDED && c.has_data == 1 && c.peer == rank);
    return c.data;
}

static uint64_t swap(uint32_t rank, const portolan_remote_key *key, uint64_t expected,
                     uint64_t desired)
{
    portolan_completion c;
    uint64_t op;

    GIVES(0, portolan_post_compare_swap(endpoint, rank, key, 8, expected, desired, NULL, &op));
    c = end_of(op);
    CHECK(c.error == 0 && c.action == PORTOLAN_SWAPPED && c.has_data == 1);
    return c.data;
}

/* A number of rank 0's, that both change; in program order each sees it grow. */
static void numbers(void)
{
    portolan_region_options options;
    portolan_remote_key key;
    uint64_t region = 0, word[2] = {0, 0}, read[2], seen = 0, now, i, op;

    /* Agreed beforehand: nobody is told. */
    portolan_remote_key_any(4711, &key);
    portolan_region_options_init(&options);
    options.flags = PORTOLAN_KEY;
    options.key = 4711;
    options.rights = PORTOLAN_MAY_GET | PORTOLAN_MAY_PUT;
    if (me == 0) {
        GIVES(0, portolan_register(endpoint, word, sizeof word, &options, &region));
        GIVES(-EEXIST, portolan_register(endpoint, word, sizeof word, &options, &now));
        CHECK(now == 0);
    }
    barrier();
    for (i = 0; i < 100; i++) {
        now = add(0, &key, 0, 1 + me);
        CHECK(i == 0 || now >= seen + 1 + me);
        seen = now;
    }
    barrier();
    CHECK(add(0, &key, 0, 0) == 300);
    /* One of both wins, and the loser sees who. */
    now = swap(0, &key, 0, 7 + me);
    CHECK(now == 0 || now == 7 + other);
    barrier();
    i = swap(0, &key, 99, 100);
    CHECK(i == (now == 0 ? 7 + me : 7 + other));
    barrier();
    if (me == 0) {
        GIVES(0, portolan_region_read(endpoint, region, 0, read, sizeof read));
        CHECK(read[0] == 300 && read[1] == i);
        GIVES(0, portolan_deregister(endpoint, region));
        options.flags = PORTOLAN_KEY | PORTOLAN_REGION_SALT;
        GIVES(0, portolan_register(endpoint, word, sizeof word, &options, &region));
    }
    barrier();
    /* The same key, and now it is not enough. */
    GIVES(0, portolan_post_fetch_add(endpoint, 0, &key, 0, 1, NULL, &op));
    CHECK(end_of(op).error == -ENOKEY);
    barrier();
    if (me == 0)
        GIVES(0, portolan_deregister(endpoint, region));
    quiet();
}

/* Puts that end locally, fences, flushes; queues and counters. */
static void streams(void)
{
    portolan_access_options options;
    portolan_remote_key key, none;
    portolan_completion c[8];
    uint64_t region, op, i, done, failed, ends = 0;
    int64_t n;

    memset(c, 0, sizeof c);
    memset(shared, 0, 100000);
    region = exchange(100000, PORTOLAN_MAY_PUT | PORTOLAN_MAY_GET, &key);
    portolan_access_options_init(&options);
    options.flags = PORTOLAN_LOCAL;
    GIVES(0, portolan_queue_open(endpoint, &options.queue));
    GIVES(0, portolan_counter_open(endpoint, &options.counter));
    /* The same place again and again, the last one wins behind a fence. */
    for (i = 0; i < 50; i++) {
        memset(own + 2000 * i, (int)i + 1, 2000);
        options.context = i;
        GIVES(0, portolan_post_put(endpoint, other, &key, 0, own + 2000 * i, 2000, &options, &op));
        GIVES(0, portolan_fence(endpoint, other));
    }
    options.flags = 0;
    options.context = 50;
    GIVES(0, portolan_post_get(endpoint, other, &key, 0, own + 100000, 2000, &options, &op));
    GIVES(0, portolan_counter_wait(endpoint, options.counter, 51, &done, &failed, -1));
    CHECK(done == 51 && failed == 0);
    CHECK(own[100000] == 50 && own[101999] == 50);
    c[0].size = sizeof *c;
    while (ends < 51) {
        n = portolan_queue_wait(endpoint, options.queue, c, 8, -1);
        CHECK(n >= 1);
        for (i = 0; i < (uint64_t)n; i++, ends++) {
            CHECK(c[i].error == 0 && c[i].bytes == 2000 && c[i].context <= 50);
            CHECK(c[i].action == (c[i].context == 50 ? PORTOLAN_GOT : PORTOLAN_PUT));
        }
    }
    options.flags = PORTOLAN_LOCAL;
    for (i = 0; i < 50; i++)
        GIVES(0, portolan_post_put(endpoint, other, &key, 2000 * i, own + 2000 * i, 2000, &options,
                                   &op));
    options.flags = 0;
    options.context = 77;
    GIVES(0, portolan_post_flush(endpoint, other, &options, &op));
    do
        CHECK(portolan_queue_wait(endpoint, options.queue, c, 1, -1) == 1 && c[0].error == 0);
    while (c[0].context != 77);
    CHECK(c[0].action == PORTOLAN_FLUSHED && c[0].operation == op);
    barrier();
    CHECK(memcmp(shared, own, 100000) == 0);
    while (portolan_queue_read(endpoint, options.queue, c, 8) > 0)
        ;
    /* Of a put that ends locally only the flush says that it failed, once. */
    memset(&none, 5, sizeof none);
    options.flags = PORTOLAN_LOCAL;
    GIVES(0, portolan_post_put(endpoint, other, &none, 0, own, 10, &options, &op));
    GIVES(1, portolan_queue_wait(endpoint, options.queue, c, 1, -1));
    CHECK(c[0].error == 0 && c[0].operation == op);
    GIVES(0, portolan_post_flush(endpoint, other, NULL, &op));
    CHECK(end_of(op).error == -ENOKEY);
    GIVES(0, portolan_post_flush(endpoint, other, NULL, &op));
    CHECK(end_of(op).error == 0);
    GIVES(0, portolan_queue_close(endpoint, options.queue));
    GIVES(-ENOENT, portolan_post_put(endpoint, other, &key, 0, own, 10, &options, &op));
    CHECK(op == 0);
    GIVES(0, portolan_counter_close(endpoint, options.counter));
    barrier();
    GIVES(0, portolan_deregister(endpoint, region));
    quiet();
}

/* What the target does not admit touches nothing. */
static void refused(void)
{
    portolan_remote_key readable, writable, closed, no, key;
    uint64_t of_readable, of_writable, of_closed, op;
    size_t n, i;

    memset(shared, 3, BIG);
    of_readable = exchange(100000, PORTOLAN_MAY_GET, &readable);
    of_writable = exchange(100000, PORTOLAN_MAY_PUT, &writable);
    of_closed = exchange(100000, 0, &closed);
    memset(own, 9, BIG);
    for (n = 1; n <= 100000; n += 99999) {
        GIVES(-EACCES, put(&readable, 0, own, n));
        GIVES(-EACCES, get(&writable, 0, own, n));
        GIVES(-EACCES, put(&closed, 0, own, n));
        GIVES(-EACCES, get(&closed, 0, own, n));
        GIVES(-ERANGE, put(&writable, 100001 - n, own, n));
        GIVES(-ERANGE, get(&readable, 100001 - n, own, n));
        GIVES(-ERANGE, put(&writable, UINT64_MAX, own, n));
        GIVES(-ERANGE, get(&readable, UINT64_MAX - n, own, n));
        /* Keys of nobody, and one that is wrong in its last bit. */
        memset(&no, 0, sizeof no);
        GIVES(-ENOKEY, put(&no, 0, own, n));
        GIVES(-ENOKEY, get(&no, 0, own, n));
        no = writable;
        no.bytes[15] ^= 0x80;
        GIVES(-ENOKEY, put(&no, 0, own, n));
        no = readable;
        no.bytes[0] ^= 1;
        GIVES(-ENOKEY, get(&no, 0, own, n));
    }
    GIVES(0, portolan_post_fetch_add(endpoint, other, &readable, 0, 1, NULL, &op));
    CHECK(end_of(op).error == -EACCES);
    GIVES(0, portolan_post_compare_swap(endpoint, other, &writable, 0, 1, 2, NULL, &op));
    CHECK(end_of(op).error == -EACCES);
    barrier();
    for (i = 0; i < BIG; i++)
        CHECK(shared[i] == 3 && own[i] == 9);
    GIVES(0, portolan_deregister(endpoint, of_readable));
    GIVES(0, portolan_deregister(endpoint, of_writable));
    GIVES(0, portolan_deregister(endpoint, of_closed));
    /* A key that is stale: its region is gone, and the next is another. */
    of_writable = exchange(100, PORTOLAN_MAY_PUT | PORTOLAN_MAY_GET, &key);
    GIVES(-ENOKEY, put(&writable, 0, own, 1));
    GIVES(0, portolan_post_fetch_add(endpoint, other, &key, 4, 1, NULL, &op));
    CHECK(end_of(op).error == -EINVAL);
    GIVES(0, portolan_post_fetch_add(endpoint, other, &key, 96, 1, NULL, &op));
    CHECK(end_of(op).error == -ERANGE);
    barrier();
    GIVES(0, portolan_deregister(endpoint, of_writable));
    GIVES(-ENOENT, portolan_deregister(endpoint, of_writable));
    GIVES(-ENOENT, portolan_region_key(endpoint, of_writable, &key));
    GIVES(-ENOENT, portolan_region_read(endpoint, of_writable, 0, own, 1));
    barrier();
    for (i = 0; i < BIG; i++)
        CHECK(shared[i] == 3 && own[i] == 9);
    quiet();
}

/* Overlapping registrations: each is closed alone. */
static void overlapping(void)
{
    portolan_remote_key first, second;
    uint64_t one, two;

    memset(shared, 0, 100);
    one = exchange(100, PORTOLAN_MAY_PUT, &first);
    two = exchange(50, PORTOLAN_MAY_GET | PORTOLAN_MAY_PUT, &second);
    CHECK(one != two && memcmp(&first, &second, sizeof first) != 0);
    GIVES(0, put(&first, 0, "ab", 2));
    GIVES(0, get(&second, 0, own, 2));
    CHECK(memcmp(own, "ab", 2) == 0);
    GIVES(-ERANGE, put(&second, 49, "ab", 2));
    GIVES(-ERANGE, portolan_region_read(endpoint, one, 99, own, 2));
    barrier();
    GIVES(0, portolan_deregister(endpoint, one));
    barrier();
    GIVES(-ENOKEY, put(&first, 0, "cd", 2));
    GIVES(0, put(&second, 2, "cd", 2));
    barrier();
    CHECK(memcmp(shared, "abcd", 4) == 0);
    GIVES(0, portolan_deregister(endpoint, two));
    quiet();
}

/* What was registered is found again, until it is forgotten. */
static void found_again(void)
{
    portolan_region_options options;
    portolan_remote_key key, again, theirs;
    uint64_t region, same;

    memset(shared, 0, 100);
    portolan_region_options_init(&options);
    options.flags = PORTOLAN_CACHED;
    options.rights = PORTOLAN_MAY_PUT;
    GIVES(0, portolan_register(endpoint, shared, 100, &options, &region));
    GIVES(0, portolan_region_key(endpoint, region, &key));
    GIVES(0, portolan_send_tagged(endpoint, other, 98, &key, sizeof key));
    GIVES(0, portolan_receive_tagged(endpoint, other, 98, 0, &theirs, sizeof theirs, NULL));
    GIVES(0, portolan_register(endpoint, shared, 100, &options, &same));
    CHECK(same == region);
    GIVES(0, portolan_deregister(endpoint, region));
    GIVES(0, portolan_deregister(endpoint, region));
    GIVES(-ENOENT, portolan_deregister(endpoint, region));
    barrier();
    GIVES(0, put(&theirs, 0, "ab", 2));
    barrier();
    CHECK(memcmp(shared, "ab", 2) == 0);
    GIVES(0, portolan_register(endpoint, shared, 100, &options, &same));
    GIVES(0, portolan_region_key(endpoint, same, &again));
    CHECK(same == region && memcmp(&key, &again, sizeof key) == 0);
    GIVES(0, portolan_deregister(endpoint, same));
    GIVES(0, portolan_forget_memory(endpoint, shared + 100, 1));
    GIVES(0, portolan_region_key(endpoint, region, &again));
    GIVES(0, portolan_forget_memory(endpoint, shared + 99, 1));
    GIVES(-ENOENT, portolan_region_key(endpoint, region, &again));
    barrier();
    GIVES(-ENOKEY, put(&theirs, 0, "cd", 2));
    /* Nothing is not kept. */
    GIVES(0, portolan_register(endpoint, NULL, 0, &options, &same));
    GIVES(0, portolan_deregister(endpoint, same));
    GIVES(-ENOENT, portolan_deregister(endpoint, same));
    /* Forgotten while it is registered. */
    GIVES(0, portolan_register(endpoint, shared, 100, &options, &region));
    GIVES(0, portolan_forget_memory(endpoint, shared, 100));
    GIVES(0, portolan_region_key(endpoint, region, &again));
    GIVES(0, portolan_deregister(endpoint, region));
    GIVES(-ENOENT, portolan_region_key(endpoint, region, &again));
    quiet();
}

/* A part of a region as a region of its own: rights and bounds are its own,
 * bytes the memory's. */
static void registered_again(void)
{
    portolan_region_options options, no_key;
    portolan_remote_key mine[2], theirs[2];
    struct iovec pieces[2];
    uint64_t whole, part, same, inner, none;

    memset(shared, 0, 10000);
    pieces[0].iov_base = shared + 5000;
    pieces[0].iov_len = 300;
    pieces[1].iov_base = shared;
    pieces[1].iov_len = 700;
    portolan_region_options_init(&options);
    options.rights = PORTOLAN_MAY_GET;
    GIVES(0, portolan_registerv(endpoint, pieces, 2, &options, &whole));
    options.rights = PORTOLAN_MAY_PUT;
    no_key = options;
    options.flags = PORTOLAN_KEY;
    options.key = 5;
    GIVES(0, portolan_register_again(endpoint, whole, 200, 300, &options, &part));
    GIVES(0, portolan_register_again(endpoint, whole, 200, 300, &options, &same));
    CHECK(part != 0 && part != whole && same == part);
    /* The key is taken by another extent, and by other rights. */
    GIVES(-EEXIST, portolan_register_again(endpoint, whole, 200, 299, &options, &none));
    options.rights = PORTOLAN_MAY_GET;
    GIVES(-EEXIST, portolan_register_again(endpoint, whole, 200, 300, &options, &none));
    /* A part of a part, and nothing beyond it. */
    GIVES(-ERANGE, portolan_register_again(endpoint, part, 290, 11, &no_key, &none));
    CHECK(none == 0);
    GIVES(0, portolan_register_again(endpoint, part, 290, 10, NULL, &inner));
    GIVES(0, portolan_region_key(endpoint, whole, &mine[0]));
    GIVES(0, portolan_region_key(endpoint, part, &mine[1]));
    GIVES(0, portolan_send_tagged(endpoint, other, 1, mine, sizeof mine));
    GIVES(0, portolan_receive_tagged(endpoint, other, 1, 0, theirs, sizeof theirs, NULL));
    fill(own, 300, me);
    GIVES(-EACCES, put(&theirs[0], 0, own, 1));
    GIVES(-EACCES, get(&theirs[1], 0, own, 1));
    GIVES(-ERANGE, put(&theirs[1], 290, own, 11));
    GIVES(0, put(&theirs[1], 0, own, 300));
    barrier();
    GIVES(0, portolan_region_read(endpoint, whole, 200, own, 300));
    CHECK(is_filled(own, 300, other) && shared[5199] == 0 && shared[200] == 0);
    CHECK(memcmp(shared + 5200, own, 100) == 0 && memcmp(shared, own + 100, 200) == 0);
    GIVES(0, portolan_region_read(endpoint, inner, 0, own, 10));
    CHECK(memcmp(shared + 190, own, 10) == 0);
    barrier();
    /* It needs neither the first region nor the other of its registrations. */
    GIVES(0, portolan_deregister(endpoint, part));
    GIVES(0, portolan_deregister(endpoint, whole));
    GIVES(0, portolan_deregister(endpoint, inner));
    GIVES(-ENOENT, portolan_register_again(endpoint, whole, 0, 1, NULL, &none));
    barrier();
    GIVES(-ENOKEY, get(&theirs[0], 0, own, 1));
    GIVES(0, put(&theirs[1], 99, "ab", 2));
    barrier();
    CHECK(shared[5299] == 'a' && shared[0] == 'b');
    GIVES(0, portolan_deregister(endpoint, part));
    GIVES(-ENOENT, portolan_deregister(endpoint, part));
    barrier();
    GIVES(-ENOKEY, put(&theirs[1], 0, "c", 1));
    quiet();
}

/* Rank 1 forbids all, then leaves. */
static void the_end(void)
{
    portolan_region_options options;
    portolan_remote_key key;
    uint64_t region = exchange(100, PORTOLAN_MAY_PUT, &key), op;

    GIVES(0, put(&key, 0, "x", 1));
    barrier();
    if (me == 1) {
        GIVES(0, portolan_forbid_onesided(endpoint));
        portolan_region_options_init(&options);
        GIVES(-EACCES, portolan_register(endpoint, shared, 1, &options, &op));
        GIVES(-EACCES, portolan_register_again(endpoint, region, 0, 1, NULL, &op));
        barrier();
        barrier();
        GIVES(0, portolan_deregister(endpoint, region));
        GIVES(0, portolan_close(endpoint));
        return;
    }
    barrier();
    GIVES(-EACCES, put(&key, 0, "x", 1));
    barrier();
    while (portolan_post_put(endpoint, 1, &key, 0, "x", 1, NULL, &op) == 0)
        CHECK(end_of(op).error != 0);
    GIVES(-EPIPE, portolan_post_put(endpoint, 1, &key, 0, "x", 1, NULL, &op));
    GIVES(-EPIPE, portolan_post_get(endpoint, 1, &key, 0, own, 1, NULL, &op));
    GIVES(-EPIPE, portolan_post_fetch_add(endpoint, 1, &key, 0, 1, NULL, &op));
    GIVES(-EPIPE, portolan_post_flush(endpoint, 1, NULL, &op));
    CHECK(op == 0);
    GIVES(0, portolan_deregister(endpoint, region));
    nothing_is_held();
    GIVES(0, portolan_close(endpoint));
}

static void plain(void)
{
    every_length();
    while_the_target_computes();
    several_pieces();
    signals();
    numbers();
    streams();
    refused();
    overlapping();
    found_again();
    registered_again();
    the_end();
}

#define THREADS 4
#define EACH 100

static portolan_remote_key common;

/* Each thread adds to one number of its own, and to one of all. */
static void *adder(void *user)
{
    uint64_t mine = *(uint64_t *)user, i;

    for (i = 0; i < EACH; i++) {
        CHECK(add(other, &common, mine, 1) == i);
        add(other, &common, 0, 1);
    }
    return NULL;
}

static void threads(void)
{
    pthread_t thread[THREADS];
    uint64_t place[THREADS], region, sum;
    int i;

    memset(shared, 0, 100);
    region = exchange(100, PORTOLAN_MAY_PUT | PORTOLAN_MAY_GET, &common);
    for (i = 0; i < THREADS; i++) {
        place[i] = 8 * (uint64_t)(i + 1);
        CHECK(pthread_create(&thread[i], NULL, adder, &place[i]) == 0);
    }
    for (i = 0; i < THREADS; i++)
        CHECK(pthread_join(thread[i], NULL) == 0);
    barrier();
    GIVES(0, portolan_region_read(endpoint, region, 0, &sum, sizeof sum));
    CHECK(sum == THREADS * EACH);
    GIVES(0, portolan_deregister(endpoint, region));
    quiet();
    GIVES(0, portolan_close(endpoint));
}

int main(int argc, char **argv)
{
    int many = argc > 1 && strcmp(argv[1], "threads") == 0;

    shared = (unsigned char *)malloc(BIG);
    own = (unsigned char *)malloc(BIG);
    CHECK(shared != NULL && own != NULL);
    join(many ? PORTOLAN_THREADS_MULTIPLE : PORTOLAN_THREADS_SINGLE);
    if (many)
        threads();
    else
        plain();
    free(shared);
    free(own);
    printf("onesided, rank %u: all is well\n", me);
    return 0;
}
