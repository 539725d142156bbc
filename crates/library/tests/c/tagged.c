/* Matched messages of two ranks: `tagged plain` and `tagged threads`. */
#include "tagged.h"

#include <pthread.h>

#define BIG (3u << 20)

static unsigned char *out, *in;

static void every_length(void)
{
    static const size_t lengths[] = {0, 1, 8, 1500, 65536, 65537, 70001, 131072, 131073, 500000, BIG};
    portolan_completion c = fresh();
    size_t i, n;

    for (i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        n = lengths[i];
        if (me == 0) {
            fill(out, n, (uint32_t)i);
            GIVES(0, portolan_send_tagged(endpoint, 1, i, n == 0 ? NULL : out, n));
            GIVES(0, portolan_receive_tagged(endpoint, 1, i, 0, in, n, &c));
        } else {
            GIVES(0, portolan_receive_tagged(endpoint, PORTOLAN_ANY, 0, UINT64_MAX, in, BIG, &c));
            GIVES(0, portolan_send_tagged(endpoint, 0, i, in, n));
        }
        CHECK(c.error == 0 && c.action == PORTOLAN_RECEIVED && c.peer == other && c.tag == i);
        CHECK(c.bytes == n && c.total == n && c.has_data == 0 && c.size == sizeof c);
        CHECK(is_filled(in, n, (uint32_t)i));
    }
    quiet();
}

static void several_pieces(void)
{
    portolan_tagged_options options;
    portolan_completion c = fresh();
    struct iovec pieces[4];
    uint64_t op;
    size_t n;

    for (n = 300; n <= 900000; n *= 30) {
        memset(pieces, 0, sizeof pieces);
        pieces[0].iov_base = me == 0 ? out : in;
        pieces[0].iov_len = n / 3;
        pieces[2].iov_base = (me == 0 ? out : in) + n / 3;
        pieces[2].iov_len = n - n / 3 - 50;
        pieces[3].iov_base = (me == 0 ? out : in) + n - 50;
        pieces[3].iov_len = 50;
        portolan_tagged_options_init(&options);
        fill(out, n, (uint32_t)n);
        memset(in, 0, n);
        if (me == 0) {
            options.flags = PORTOLAN_SYNC | PORTOLAN_DATA;
            options.data = 1u + n;
            GIVES(0, portolan_send_taggedv(endpoint, 1, n, pieces, 4, &options));
            options.context = 5;
            GIVES(0, portolan_post_sendv(endpoint, 1, n, pieces, 4, &options, &op));
            c = end_of(op);
            CHECK(c.error == 0 && c.action == PORTOLAN_SENT && c.peer == 1 && c.tag == n);
            CHECK(c.bytes == n && c.total == n && c.context == 5);
        } else {
            GIVES(0, portolan_receive_taggedv(endpoint, 0, n, 0, pieces, 4, &c));
            CHECK(is_filled(in, n, (uint32_t)n) && c.bytes == n);
            CHECK(c.has_data == 1 && c.data == 1u + n);
            memset(in, 0, n);
            options.context = 6;
            GIVES(0, portolan_post_receivev(endpoint, 0, n, 0, pieces, 4, &options, &op));
            c = end_of(op);
            CHECK(c.error == 0 && c.bytes == n && c.data == 1u + n && c.context == 6);
            CHECK(is_filled(in, n, (uint32_t)n));
        }
    }
    /* No pieces at all. */
    if (me == 0) {
        GIVES(0, portolan_send_taggedv(endpoint, 1, 1, NULL, 0, NULL));
        GIVES(0, portolan_post_send(endpoint, 1, 2, "two", 3, NULL, &op));
        CHECK(end_of(op).error == 0);
    } else {
        GIVES(0, portolan_receive_taggedv(endpoint, 0, 1, 0, NULL, 0, NULL));
        GIVES(-EMSGSIZE, portolan_receive_taggedv(endpoint, 0, 2, 0, NULL, 0, &c));
        CHECK(c.error == -EMSGSIZE && c.bytes == 0 && c.total == 3);
    }
    quiet();
}

static void too_long(void)
{
    portolan_completion c = fresh();
    uint64_t op;
    size_t n;

    for (n = 100; n <= 1000000; n *= 100) {
        fill(out, n, 3);
        if (me == 0) {
            GIVES(0, portolan_send_tagged(endpoint, 1, 4, out, n));
            GIVES(0, portolan_send_tagged(endpoint, 1, 5, out, n));
        } else {
            memset(in, 0, n);
            GIVES(-EMSGSIZE, portolan_receive_tagged(endpoint, 0, 4, 0, in, n - 7, &c));
            CHECK(c.error == -EMSGSIZE && c.bytes == n - 7 && c.total == n);
            CHECK(is_filled(in, n - 7, 3) && in[n - 7] == 0 && in[n - 1] == 0);
            GIVES(0, portolan_post_receive(endpoint, 0, 5, 0, in, 9, NULL, &op));
            c = end_of(op);
            CHECK(c.error == -EMSGSIZE && c.bytes == 9 && c.total == n);
        }
    }
    quiet();
}

/* A synchronous send ends when its message has met a receive. */
static void synchronous(void)
{
    portolan_tagged_options options;
    portolan_completion c = fresh();
    uint64_t op = 0;
    int i;

    portolan_tagged_options_init(&options);
    options.flags = PORTOLAN_SYNC;
    if (me == 0)
        GIVES(0, portolan_post_send(endpoint, 1, 1, "sync", 4, &options, &op));
    else
        while (portolan_probe(endpoint, 0, 1, 0, NULL) == 0)
            ;
    barrier();
    if (me == 0) {
        for (i = 0; i < 100; i++)
            GIVES(0, portolan_operation_test(endpoint, op, &c));
        GIVES(-ETIMEDOUT, portolan_operation_wait(endpoint, op, &c, 1000000));
        GIVES(0, portolan_cancel(endpoint, op));
    }
    barrier();
    if (me == 0) {
        CHECK(end_of(op).error == 0);
    } else {
        GIVES(0, portolan_receive_tagged(endpoint, 0, 1, 0, in, 4, NULL));
        CHECK(memcmp(in, "sync", 4) == 0);
    }
    quiet();
}

/* Wildcards, and bits of the tag that do not count. */
static void matching(void)
{
    portolan_completion c = fresh();
    uint64_t op[4];
    unsigned char got[4][8];
    unsigned i;

    memset(got, 0, sizeof got);
    if (me == 1) {
        GIVES(0, portolan_post_receive(endpoint, 0, 0x10, 0, got[0], 8, NULL, &op[0]));
        GIVES(0, portolan_post_receive(endpoint, PORTOLAN_ANY, 0x20, 0x0f, got[1], 8, NULL, &op[1]));
        GIVES(0, portolan_post_receive(endpoint, 0, 0, UINT64_MAX, got[2], 8, NULL, &op[2]));
        GIVES(0, portolan_post_receive(endpoint, PORTOLAN_ANY, 0x10, 0, got[3], 8, NULL, &op[3]));
    }
    barrier();
    if (me == 0) {
        GIVES(0, portolan_send_tagged(endpoint, 1, 0x10, "a", 1));
        GIVES(0, portolan_send_tagged(endpoint, 1, 0x10, "b", 1));
        GIVES(0, portolan_send_tagged(endpoint, 1, 0x10, "c", 1));
        GIVES(0, portolan_send_tagged(endpoint, 1, 0x2c, "d", 1));
    } else {
        static const uint64_t tags[] = {0x10, 0x2c, 0x10, 0x10};

        for (i = 0; i < 4; i++) {
            c = end_of(op[i]);
            CHECK(c.error == 0 && c.peer == 0 && c.tag == tags[i] && c.bytes == 1);
        }
        CHECK(got[0][0] == 'a' && got[1][0] == 'd' && got[2][0] == 'b' && got[3][0] == 'c');
    }
    /* To this rank itself. */
    GIVES(0, portolan_send_tagged(endpoint, me, 7, "self", 4));
    GIVES(0, portolan_receive_tagged(endpoint, me, 7, 0, in, 4, &c));
    CHECK(c.peer == me && memcmp(in, "self", 4) == 0);
    quiet();
}

static void probes_and_claims(void)
{
    portolan_probed probed;
    portolan_tagged_options options;
    portolan_completion c = fresh();
    struct iovec piece;
    uint64_t message = 0, op = 0, spare;
    size_t n;

    portolan_probed_init(&probed);
    portolan_tagged_options_init(&options);
    for (n = 5; n <= 500000; n *= 100) {
        if (me == 0) {
            fill(out, n, 8);
            options.flags = PORTOLAN_DATA;
            options.data = 44;
            GIVES(0, portolan_send_tagged(endpoint, 1, 9, out, 2));
            GIVES(0, portolan_post_send(endpoint, 1, 8, out, n, &options, &op));
            CHECK(end_of(op).error == 0);
            GIVES(0, portolan_send_tagged(endpoint, 1, 8, out, n));
            GIVES(0, portolan_send_tagged(endpoint, 1, 8, out, n));
            continue;
        }
        GIVES(0, portolan_receive_tagged(endpoint, 0, 9, 0, in, 2, NULL));
        while (portolan_probe(endpoint, PORTOLAN_ANY, 0, UINT64_MAX, &probed) == 0)
            ;
        CHECK(probed.from == 0 && probed.tag == 8 && probed.total == n);
        CHECK(probed.has_data == 1 && probed.data == 44 && probed.size == sizeof probed);
        GIVES(0, portolan_probe(endpoint, 0, 7, 0, &probed));
        GIVES(0, portolan_claim(endpoint, 0, 7, 0, &message, &probed));
        CHECK(message == 0);
        GIVES(1, portolan_claim(endpoint, 0, 8, 0, &message, &probed));
        CHECK(message != 0 && probed.total == n && probed.data == 44);
        /* Wrong options leave it claimed. */
        options.queue = 5;
        GIVES(-ENOENT, portolan_receive_claimed(endpoint, message, in, n, &options, &op));
        options.queue = 0;
        GIVES(0, portolan_receive_claimed(endpoint, message, in, n, &options, &op));
        GIVES(-ENOENT, portolan_receive_claimed(endpoint, message, in, n, &options, &spare));
        GIVES(-ENOENT, portolan_discard(endpoint, message));
        c = end_of(op);
        CHECK(c.error == 0 && c.bytes == n && c.tag == 8 && c.peer == 0 && c.data == 44);
        CHECK(is_filled(in, n, 8));
        /* The next in pieces, and the last not at all. */
        while (portolan_claim(endpoint, 0, 8, 0, &message, NULL) == 0)
            ;
        memset(in, 0, n);
        piece.iov_base = in;
        piece.iov_len = n;
        GIVES(0, portolan_receive_claimedv(endpoint, message, &piece, 1, NULL, &op));
        c = end_of(op);
        CHECK(c.error == 0 && c.has_data == 0 && is_filled(in, n, 8));
        while (portolan_claim(endpoint, 0, 8, 0, &message, NULL) == 0)
            ;
        GIVES(0, portolan_discard(endpoint, message));
        GIVES(-ENOENT, portolan_discard(endpoint, message));
    }
    quiet();
}

static void cancelled(void)
{
    portolan_completion c = fresh();
    uint64_t op;

    GIVES(0, portolan_post_receive(endpoint, PORTOLAN_ANY, 0xabc, 0, in, 8, NULL, &op));
    GIVES(-ETIMEDOUT, portolan_operation_wait(endpoint, op, &c, 1000000));
    GIVES(1, portolan_cancel(endpoint, op));
    GIVES(0, portolan_cancel(endpoint, op));
    GIVES(1, portolan_operation_test(endpoint, op, &c));
    CHECK(c.error == -ECANCELED && c.peer == PORTOLAN_ANY && c.tag == 0xabc && c.bytes == 0);
    GIVES(-ENOENT, portolan_cancel(endpoint, op));
    quiet();
}

/* Short and long messages in one buffer, one behind the other. */
static void many_in_one_buffer(void)
{
    static const size_t lengths[] = {5, 70001, 0, 200000, 9};
    portolan_tagged_options options;
    portolan_completion c[8];
    uint64_t op, next;
    uint32_t queue;
    size_t i, at = 0;

    portolan_tagged_options_init(&options);
    memset(c, 0, sizeof c);
    c[0].size = sizeof *c;
    GIVES(0, portolan_queue_open(endpoint, &queue));
    GIVES(-ENOENT, portolan_post_receive_many(endpoint, 0, 3, 0, in, BIG, 1, &options, &op));
    options.queue = queue + 1;
    GIVES(-ENOENT, portolan_post_receive_many(endpoint, 0, 3, 0, in, BIG, 1, &options, &op));
    options.queue = queue;
    options.context = 77;
    if (me == 1) {
        GIVES(0, portolan_post_receive_many(endpoint, 0, 3, 0, in, 270015 + 4, 5, &options, &op));
        GIVES(0, portolan_post_receive_many(endpoint, 0, 3, 0, in + BIG / 2, 7, 1, &options, &next));
    }
    barrier();
    for (i = 0; i < 5; i++) {
        if (me == 0) {
            fill(out, lengths[i], (uint32_t)i);
            GIVES(0, portolan_send_tagged(endpoint, 1, 3, out, lengths[i]));
            continue;
        }
        GIVES(1, portolan_queue_wait(endpoint, queue, c, 1, -1));
        CHECK(c->error == 0 && c->operation == op && c->action == PORTOLAN_RECEIVED && c->context == 77);
        CHECK(c->bytes == lengths[i] && c->offset == at && is_filled(in + at, lengths[i], (uint32_t)i));
        at += lengths[i];
    }
    if (me == 0) {
        GIVES(0, portolan_send_tagged(endpoint, 1, 3, "next, cut", 9));
    } else {
        GIVES(1, portolan_queue_wait(endpoint, queue, c, 1, -1));
        CHECK(c->error == 0 && c->operation == op && c->action == PORTOLAN_RECEIVED_MANY);
        CHECK(c->bytes == at && c->offset == 0 && c->context == 77);
        GIVES(1, portolan_queue_wait(endpoint, queue, c, 1, -1));
        CHECK(c->error == -EMSGSIZE && c->operation == next && c->bytes == 7 && c->total == 9);
        CHECK(memcmp(in + BIG / 2, "next, c", 7) == 0);
        GIVES(1, portolan_queue_wait(endpoint, queue, c, 1, -1));
        CHECK(c->error == 0 && c->operation == next && c->action == PORTOLAN_RECEIVED_MANY);
        GIVES(0, portolan_post_receive_many(endpoint, 0, 3, 0, in, 9, 1, &options, &op));
        GIVES(1, portolan_cancel(endpoint, op));
        GIVES(1, portolan_queue_read(endpoint, queue, c, 8));
        CHECK(c->error == -ECANCELED && c->operation == op && c->bytes == 0);
    }
    GIVES(0, portolan_queue_close(endpoint, queue));
    quiet();
}

#define MANY 100

static void queues_and_counters(void)
{
    portolan_tagged_options options;
    portolan_completion c[16];
    uint64_t op, done, failed, word[MANY];
    uint32_t queue, late, counter;
    int64_t i, n, k = 0;

    memset(c, 0, sizeof c);
    portolan_tagged_options_init(&options);
    GIVES(0, portolan_queue_open(endpoint, &queue));
    GIVES(0, portolan_counter_open(endpoint, &counter));
    CHECK(queue != 0 && counter != 0);
    options.queue = queue;
    options.counter = counter;
    c[0].size = sizeof *c;
    GIVES(0, portolan_queue_read(endpoint, queue, c, 16));
    GIVES(-ETIMEDOUT, portolan_queue_wait(endpoint, queue, c, 16, 1000000));
    GIVES(-ETIMEDOUT, portolan_counter_wait(endpoint, counter, 1, NULL, NULL, 1000000));
    if (me == 1)
        for (i = 0; i < MANY; i++) {
            options.context = (uint64_t)i;
            GIVES(0, portolan_post_receive(endpoint, 0, (uint64_t)i, 0, &word[i], sizeof word[i],
                                           &options, &op));
        }
    barrier();
    if (me == 0)
        for (i = 0; i < MANY; i++) {
            word[i] = 3 * (uint64_t)i;
            options.context = (uint64_t)i;
            GIVES(0, portolan_post_send(endpoint, 1, (uint64_t)i, &word[i], sizeof word[i],
                                        &options, &op));
        }
    while (k < MANY) {
        n = portolan_queue_wait(endpoint, queue, c, 16, -1);
        CHECK(n >= 1 && n <= 16);
        for (i = 0; i < n; i++, k++) {
            CHECK(c[i].error == 0 && c[i].context == (uint64_t)k && c[i].tag == (uint64_t)k);
            CHECK(c[i].size == sizeof *c && c[i].bytes == 8 && c[i].peer == other);
            CHECK(word[k] == 3 * (uint64_t)k);
        }
    }
    GIVES(0, portolan_counter_wait(endpoint, counter, MANY, &done, &failed, -1));
    CHECK(done == MANY && failed == 0);
    /* An older program's shorter structures lie closer together. */
    for (i = 0; i < 2; i++) {
        GIVES(0, portolan_post_receive(endpoint, other, 1, 0, in, 8, &options, &op));
        GIVES(1, portolan_cancel(endpoint, op));
    }
    memset(c, 0xee, sizeof c);
    c[0].size = 16;
    GIVES(2, portolan_queue_read(endpoint, queue, c, 2));
    CHECK(c[0].error == -ECANCELED && c[0].size == 16 && c[0].action == 16);
    CHECK((int32_t)c[0].peer == -ECANCELED && c[0].tag == op && c[0].bytes == 0xeeeeeeeeeeeeeeee);
    GIVES(0, portolan_counter_value(endpoint, counter, &done, &failed));
    CHECK(done == MANY && failed == 2);
    GIVES(0, portolan_counter_value(endpoint, counter, NULL, NULL));
    /* A receive that is under way when its queue is closed goes on; the next
     * queue of that number hears nothing of it. */
    GIVES(0, portolan_post_receive(endpoint, other, 2, 0, in, 8, &options, &op));
    GIVES(0, portolan_queue_close(endpoint, queue));
    GIVES(0, portolan_counter_close(endpoint, counter));
    GIVES(-ENOENT, portolan_post_receive(endpoint, other, 2, 0, in, 8, &options, &op));
    GIVES(0, portolan_queue_open(endpoint, &late));
    CHECK(late == queue);
    GIVES(0, portolan_send_tagged(endpoint, other, 2, "late", 4));
    quiet();
    c[0].size = sizeof *c;
    GIVES(0, portolan_queue_read(endpoint, late, c, 16));
    CHECK(memcmp(in, "late", 4) == 0);
    GIVES(0, portolan_queue_close(endpoint, late));
    barrier();
}

/* Push-zero, push-all, and something between. */
static void pushes(void)
{
    portolan_push shm, net, now, was[2];
    portolan_completion c = fresh();
    portolan_statistics statistics;
    uint64_t op;
    int i;

    portolan_push_init(&shm);
    portolan_push_init(&net);
    portolan_push_init(&now);
    portolan_statistics_init(&statistics);
    portolan_push_init(&was[0]);
    portolan_push_init(&was[1]);
    GIVES(0, portolan_push_read(endpoint, &was[0], &was[1]));
    CHECK(was[0].whole == 131072 && was[0].first == 1024 && was[0].second == 15360);
    CHECK(was[1].whole == 65536);
    CHECK(was[0].flags == (PORTOLAN_PUSH_OVERLAP | PORTOLAN_PUSH_MASKING));
    for (i = 0; i < 3; i++) {
        shm.whole = net.whole = i == 1 ? UINT64_MAX : 0;
        shm.first = net.first = i == 2 ? 100 : 0;
        shm.second = i == 2 ? UINT64_MAX : 0;
        net.second = i == 2 ? 2000 : 1;
        net.flags = i == 2 ? PORTOLAN_PUSH_OVERLAP : PORTOLAN_PUSH_MASKING;
        GIVES(0, portolan_set_push(endpoint, &shm, &net));
        GIVES(0, portolan_push_to(endpoint, me, &now));
        CHECK(memcmp(&now, &shm, sizeof now) == 0);
        GIVES(0, portolan_push_to(endpoint, other, &now));
        CHECK(memcmp(&now, &shm, sizeof now) == 0 || memcmp(&now, &net, sizeof now) == 0);
        GIVES(0, portolan_push_read(endpoint, &now, &now));
        CHECK(memcmp(&now, &net, sizeof now) == 0);
        fill(out, BIG, 70u + (uint32_t)i);
        GIVES(0, portolan_post_receive(endpoint, other, 3, 0, in, BIG, NULL, &op));
        GIVES(0, portolan_matched_statistics(endpoint, &statistics));
        CHECK(statistics.operations == 1 && statistics.size == sizeof statistics);
        barrier();
        GIVES(0, portolan_send_tagged(endpoint, other, 3, out, BIG));
        c = end_of(op);
        CHECK(c.error == 0 && c.bytes == BIG && is_filled(in, BIG, 70u + (uint32_t)i));
        barrier();
    }
    GIVES(0, portolan_set_push(endpoint, &was[0], &was[1]));
    /* Kept while nobody asks for it. */
    GIVES(0, portolan_send_tagged(endpoint, me, 5, out, 1000));
    GIVES(0, portolan_matched_statistics(endpoint, &statistics));
    CHECK(statistics.messages == 1 && statistics.pushed_bytes >= 1000);
    GIVES(0, portolan_receive_tagged(endpoint, me, 5, 0, in, 1000, NULL));
    /* With the least that can be granted, and the most. */
    GIVES(0, portolan_set_pushed_share(endpoint, 1));
    GIVES(0, portolan_send_tagged(endpoint, me, 5, out, 3000));
    GIVES(0, portolan_post_send(endpoint, me, 5, out, 3000, NULL, &op));
    GIVES(0, portolan_operation_test(endpoint, op, &c));
    GIVES(0, portolan_receive_tagged(endpoint, me, 5, 0, in, 3000, NULL));
    GIVES(0, portolan_receive_tagged(endpoint, me, 5, 0, in, 3000, NULL));
    CHECK(end_of(op).error == 0);
    GIVES(0, portolan_set_pushed_share(endpoint, UINT64_MAX));
    GIVES(0, portolan_post_send(endpoint, me, 5, out, 3000, NULL, &op));
    GIVES(1, portolan_operation_test(endpoint, op, &c));
    GIVES(0, portolan_receive_tagged(endpoint, me, 5, 0, in, 3000, NULL));
    quiet();
}

/* Both ranks send to each other by a call that waits. */
static void swap(size_t bytes, uint32_t seed)
{
    portolan_completion c;
    uint64_t op;

    fill(out, bytes, seed + me);
    memset(in, 0, bytes);
    GIVES(0, portolan_post_receive(endpoint, other, 6, 0, in, bytes, NULL, &op));
    barrier();
    GIVES(0, portolan_send_tagged(endpoint, other, 6, out, bytes));
    c = end_of(op);
    CHECK(c.error == 0 && c.bytes == bytes && is_filled(in, bytes, seed + other));
    barrier();
}

/* Messages of which nothing is pushed: asked for in little or much at once,
 * and copied by one side or by both. */
static void pulls(void)
{
    static const struct {
        uint64_t window, chunk;
        size_t bytes;
    } sizes[] = {{0, 0, 100}, {5000, 1000, 50000}, {UINT64_MAX, UINT64_MAX, BIG}};
    static const uint64_t least[] = {0, BIG, BIG + 1, UINT64_MAX};
    portolan_push none, was[2];
    uint64_t window = 0, chunk = 0, shared = 0, now, at;
    uint32_t i;

    portolan_push_init(&none);
    portolan_push_init(&was[0]);
    portolan_push_init(&was[1]);
    GIVES(0, portolan_push_read(endpoint, &was[0], &was[1]));
    GIVES(0, portolan_set_push(endpoint, &none, &none));
    GIVES(0, portolan_pull_read(endpoint, &window, &chunk));
    CHECK(window == 524288 && chunk == 131072);
    GIVES(0, portolan_share_min_read(endpoint, &shared));
    CHECK(shared == 131072);
    for (i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        GIVES(0, portolan_set_pull(endpoint, sizes[i].window, sizes[i].chunk));
        GIVES(0, portolan_pull_read(endpoint, &now, &at));
        CHECK(now == sizes[i].window && at == sizes[i].chunk);
        swap(sizes[i].bytes, 10 * i);
    }
    GIVES(0, portolan_set_pull(endpoint, window, chunk));
    for (i = 0; i < sizeof least / sizeof *least; i++) {
        GIVES(0, portolan_set_share_min(endpoint, least[i]));
        GIVES(0, portolan_share_min_read(endpoint, &now));
        CHECK(now == least[i]);
        swap(BIG, 100 + 10 * i);
    }
    GIVES(0, portolan_set_share_min(endpoint, shared));
    GIVES(0, portolan_set_push(endpoint, &was[0], &was[1]));
    quiet();
}

/* Rank 1 leaves. What it sent before is received all the same. */
static void the_end(void)
{
    portolan_tagged_options options;
    portolan_completion c = fresh();
    uint64_t posted, kept, sync, any;

    portolan_tagged_options_init(&options);
    options.flags = PORTOLAN_SYNC;
    if (me == 1) {
        GIVES(0, portolan_send_tagged(endpoint, 0, 1, "last", 4));
        barrier();
        GIVES(0, portolan_close(endpoint));
        return;
    }
    GIVES(0, portolan_post_receive(endpoint, 1, 2, 0, out, 8, NULL, &posted));
    GIVES(0, portolan_post_receive(endpoint, PORTOLAN_ANY, 3, 0, out + 8, 8, NULL, &any));
    GIVES(0, portolan_post_send(endpoint, 1, 4, out + 16, 8, &options, &sync));
    barrier();
    c = end_of(posted);
    CHECK(c.error == -EPIPE && c.peer == 1 && c.tag == 2 && c.bytes == 0);
    c = end_of(sync);
    CHECK(c.error == -EPIPE && c.action == PORTOLAN_SENT && c.bytes == 0 && c.total == 8);
    /* Told once: nobody is left to wait for. */
    GIVES(-EPIPE, portolan_operation_wait(endpoint, any, &c, -1));
    GIVES(-ETIMEDOUT, portolan_operation_wait(endpoint, any, &c, 1000000));
    GIVES(1, portolan_cancel(endpoint, any));
    CHECK(end_of(any).error == -ECANCELED);
    GIVES(-EPIPE, portolan_send_tagged(endpoint, 1, 1, "x", 1));
    GIVES(-EPIPE, portolan_send_taggedv(endpoint, 1, 1, NULL, 0, NULL));
    GIVES(-EPIPE, portolan_post_send(endpoint, 1, 1, "x", 1, NULL, &posted));
    CHECK(posted == 0);
    GIVES(0, portolan_receive_tagged(endpoint, PORTOLAN_ANY, 1, 0, in, 4, &c));
    CHECK(memcmp(in, "last", 4) == 0 && c.peer == 1);
    GIVES(-EPIPE, portolan_receive_tagged(endpoint, 1, 1, 0, in, 4, &c));
    CHECK(c.error == -EPIPE);
    GIVES(0, portolan_post_receive(endpoint, 1, 1, 0, in, 4, NULL, &kept));
    CHECK(end_of(kept).error == -EPIPE);
    nothing_is_held();
    GIVES(0, portolan_close(endpoint));
}

static void plain(void)
{
    every_length();
    several_pieces();
    too_long();
    synchronous();
    matching();
    probes_and_claims();
    cancelled();
    many_in_one_buffer();
    queues_and_counters();
    pushes();
    pulls();
    the_end();
}

#define THREADS 4
#define EACH 300

/* Each thread has a tag, and plays with the same one of the other rank. */
static void *player(void *user)
{
    uint64_t tag = *(uint64_t *)user, i, word;
    portolan_completion c = fresh();

    for (i = 0; i < EACH; i++) {
        word = tag << 32 | i;
        if (me == 0)
            GIVES(0, portolan_send_tagged(endpoint, 1, tag, &word, sizeof word));
        word = 0;
        GIVES(0, portolan_receive_tagged(endpoint, PORTOLAN_ANY, tag, 0, &word, sizeof word, &c));
        CHECK(word == (tag << 32 | i) && c.tag == tag && c.peer == other);
        if (me == 1)
            GIVES(0, portolan_send_tagged(endpoint, 0, tag, &word, sizeof word));
    }
    return NULL;
}

static void threads(void)
{
    pthread_t thread[THREADS];
    uint64_t tag[THREADS];
    int i;

    for (i = 0; i < THREADS; i++) {
        tag[i] = (uint64_t)i;
        CHECK(pthread_create(&thread[i], NULL, player, &tag[i]) == 0);
    }
    for (i = 0; i < THREADS; i++)
        CHECK(pthread_join(thread[i], NULL) == 0);
    quiet();
    GIVES(0, portolan_close(endpoint));
}

int main(int argc, char **argv)
{
    int many = argc > 1 && strcmp(argv[1], "threads") == 0;

    out = (unsigned char *)malloc(BIG);
    in = (unsigned char *)malloc(BIG);
    CHECK(out != NULL && in != NULL);
    join(many ? PORTOLAN_THREADS_MULTIPLE : PORTOLAN_THREADS_SINGLE);
    if (many)
        threads();
    else
        plain();
    free(out);
    free(in);
    printf("tagged, rank %u: all is well\n", me);
    return 0;
}
