/* What the calls do, with as many processes as there are. */
#include "test.h"

#define MANY 20000
#define LONG 1500000

static int p, me;

/* Each puts its number to all, and gets that of all. */
static void everybody(void)
{
    int *all = (int *)malloc(sizeof(int) * (size_t)p), *got = (int *)malloc(sizeof(int) * (size_t)p);
    int own = me, i;

    bsp_push_reg(all, (int)sizeof(int) * p);
    bsp_push_reg(&own, sizeof own);
    bsp_sync();
    for (i = 0; i < p; i++) {
        bsp_put(i, &own, all, me * (int)sizeof(int), sizeof own);
        bsp_get(i, &own, 0, &got[i], sizeof own);
    }
    /* A put has copied. */
    own += 100;
    bsp_sync();
    for (i = 0; i < p; i++)
        CHECK(all[i] == i && got[i] == i + 100);
    bsp_pop_reg(all);
    bsp_pop_reg(&own);
    bsp_sync();
    free(all);
    free(got);
}

/* Gets read before puts are written, and their results are there before puts. */
static void order(void)
{
    int area[3], next = (me + 1) % p, before = (me + p - 1) % p, got = -1, value = 1000 + me;

    area[0] = me;
    area[1] = area[2] = -1;
    bsp_push_reg(area, sizeof area);
    bsp_sync();
    bsp_get(next, area, 0, &got, sizeof got);
    bsp_get(next, area, 0, &area[1], sizeof(int));
    bsp_put(next, &value, area, 0, sizeof value);
    bsp_put(next, &value, area, sizeof(int), sizeof value);
    bsp_sync();
    CHECK(got == next);
    CHECK(area[0] == 1000 + before);
    CHECK(area[1] == 1000 + before);
    CHECK(area[2] == -1);
    bsp_pop_reg(area);
    bsp_sync();
}

/* The newest registration counts, and those before it come back. */
static void registrations(void)
{
    char a[16], b[16];
    char value = 'x';

    memset(a, '.', sizeof a);
    memset(b, '.', sizeof b);
    bsp_push_reg(a, sizeof a);
    bsp_sync();
    /* From here on `a` names `b` in process 0. */
    bsp_push_reg(me == 0 ? b : a, sizeof a);
    bsp_put(0, &value, a, me % 16, 1);
    bsp_sync();
    CHECK(me != 0 || (a[0] == 'x' && b[0] == '.'));
    if (me != 0)
        bsp_put(0, &value, a, me % 16, 1);
    bsp_sync();
    if (me == 0 && p > 1)
        CHECK(b[1] == 'x');
    /* Usable until the superstep ends. */
    bsp_pop_reg(me == 0 ? b : a);
    if (me != 0)
        bsp_put(0, &value, a, (me + 5) % 16, 1);
    bsp_sync();
    if (me == 0 && p > 1)
        CHECK(b[6] == 'x');
    memset(a, '.', sizeof a);
    bsp_sync();
    bsp_put(0, &value, a, me % 16, 1);
    bsp_sync();
    CHECK(me != 0 || a[0] == 'x');
    /* Both cancel. */
    bsp_push_reg(b, sizeof b);
    bsp_pop_reg(b);
    bsp_pop_reg(a);
    bsp_sync();
    /* Who takes no part. */
    bsp_push_reg(me == 0 ? a : NULL, me == 0 ? (int)sizeof a : 0);
    bsp_sync();
    if (me == 0)
        bsp_put(0, &value, a, 3, 1);
    bsp_put(0, &value, b, -1, 0);
    bsp_get(0, b, -1, &value, 0);
    bsp_sync();
    CHECK(me != 0 || a[3] == 'x');
    bsp_pop_reg(me == 0 ? a : NULL);
    bsp_sync();
}

/* Who pops NULL pops what the others pop by the same call. */
static void nulls(void)
{
    char a[4] = "...", b[4] = "...", value = 'x';
    int last = me == p - 1, in_a = me == 0 || last, round;

    for (round = 0; round < 3; round++) {
        /* Two areas, each of one process or two: others have NULL in both. */
        bsp_push_reg(in_a ? a : NULL, in_a ? 4 : 0);
        bsp_push_reg(last ? b : NULL, last ? 4 : 0);
        /* Once while they are new. */
        if (round > 0)
            bsp_sync();
        if (round < 2) {
            bsp_pop_reg(in_a ? a : NULL);
            bsp_sync();
            if (last)
                bsp_put(p - 1, &value, b, 1, 1);
            bsp_sync();
            CHECK(!last || b[1] == value);
            bsp_pop_reg(last ? b : NULL);
        } else {
            bsp_pop_reg(in_a ? a : NULL);
            bsp_pop_reg(last ? b : NULL);
        }
        bsp_sync();
        /* All have the same numbers again. */
        bsp_push_reg(a, 4);
        bsp_sync();
        bsp_put((me + 1) % p, &value, a, round, 1);
        bsp_sync();
        CHECK(a[round] == value);
        bsp_pop_reg(a);
        bsp_sync();
    }
}

static void messages(void)
{
    int tag_bytes = (int)sizeof(int), tag, status, count, bytes, i, seen = 0, sum = 0;
    char payload[64];
    void *its_tag, *its_payload;

    bsp_qsize(&count, &bytes);
    CHECK(count == 0 && bytes == 0);
    bsp_get_tag(&status, &tag);
    CHECK(status == -1 && bsp_hpmove(&its_tag, &its_payload) == -1);
    bsp_set_tagsize(&tag_bytes);
    CHECK(tag_bytes == 0);
    /* These have no tags yet. */
    bsp_send(me, NULL, "none", 4);
    bsp_sync();
    bsp_get_tag(&status, NULL);
    CHECK(status == 4);
    bsp_move(payload, 2);
    CHECK(memcmp(payload, "no", 2) == 0);
    for (i = 0; i < p; i++) {
        memset(payload, me, sizeof payload);
        tag = me * 100 + i;
        bsp_send(i, &tag, payload, me % 64);
        bsp_send(i, &tag, payload, 0);
    }
    bsp_sync();
    bsp_qsize(&count, &bytes);
    CHECK(count == 2 * p);
    for (i = 0; i < p; i++)
        sum += i % 64;
    CHECK(bytes == sum);
    bsp_qsize(&count, NULL);
    for (i = 0; i < 2 * p; i++) {
        int from, length;

        bsp_get_tag(&status, &tag);
        from = tag / 100;
        CHECK(tag % 100 == me && (status == 0 || status == from % 64));
        if (i % 2) {
            bsp_move(payload, sizeof payload);
            CHECK(status == 0 || payload[status - 1] == from);
        } else {
            length = bsp_hpmove(&its_tag, &its_payload);
            CHECK(length == status && *(int *)its_tag == tag);
            CHECK(((uintptr_t)its_tag | (uintptr_t)its_payload) % 16 == 0);
        }
        seen += from;
    }
    CHECK(seen == p * (p - 1));
    bsp_qsize(&count, &bytes);
    CHECK(count == 0 && bytes == 0);
    /* What is not taken is gone. */
    bsp_send(me, &tag, payload, 1);
    bsp_sync();
    tag_bytes = 0;
    bsp_set_tagsize(&tag_bytes);
    CHECK(tag_bytes == (int)sizeof(int));
    bsp_sync();
    bsp_qsize(&count, &bytes);
    CHECK(count == 0);
    bsp_sync();
}

/* Much at once, scattered and in one piece, and long messages. */
static void much(void)
{
    double *area = (double *)malloc(sizeof(double) * MANY);
    char *from = (char *)malloc(LONG), *to = (char *)malloc(LONG);
    int next = (me + 1) % p, before = (me + p - 1) % p, i, step, status;
    void *tag, *payload;

    for (i = 0; i < MANY; i++)
        area[i] = -1;
    bsp_push_reg(area, (int)sizeof(double) * MANY);
    bsp_push_reg(to, LONG);
    bsp_sync();
    for (step = 0; step < 3; step++) {
        for (i = 0; i < MANY; i++) {
            double value = step * 1e6 + me * 1e5 + i;

            bsp_put(next, &value, area, (i * 7919 % MANY) * (int)sizeof(double), sizeof value);
        }
        memset(from, me + step, LONG);
        memset(to, 99, LONG);
        bsp_hpput(next, from, to, 0, LONG / 3);
        bsp_put(next, from, to, LONG / 3, LONG / 3);
        bsp_send(next, NULL, from, LONG - step);
        bsp_sync();
        for (i = 0; i < MANY; i++)
            CHECK(area[i * 7919 % MANY] == step * 1e6 + before * 1e5 + i);
        for (i = 0; i < LONG; i++)
            CHECK(to[i] == (i < LONG / 3 * 2 ? before + step : 99));
        status = bsp_hpmove(&tag, &payload);
        CHECK(status == LONG - step && ((char *)payload)[status - 1] == before + step);
        bsp_hpget(next, to, 10, from, LONG - 10);
        bsp_sync();
        CHECK(from[0] == me + step && from[LONG - 11] == 99);
    }
    bsp_pop_reg(to);
    bsp_pop_reg(area);
    bsp_sync();
    free(area);
    free(from);
    free(to);
}

/* The calls with sizes of 64 bits. */
static void long_sizes(void)
{
    size_t tag_bytes = 1, bytes, status;
    unsigned count;
    char area[8], tag = 't', its_tag;

    memset(area, '.', sizeof area);
    bsp_push_reg_64(area, sizeof area);
    bsp_set_tagsize_64(&tag_bytes);
    CHECK(tag_bytes == 0);
    bsp_sync();
    bsp_put_64((unsigned)me, "abc", area, 5, 3);
    bsp_send_64((unsigned)me, &tag, "payload", 7);
    bsp_sync();
    CHECK(memcmp(area, ".....abc", 8) == 0);
    bsp_qsize_64(&count, &bytes);
    CHECK(count == 1 && bytes == 7);
    bsp_get_tag_64(&status, &its_tag);
    CHECK(status == 7 && its_tag == 't');
    bsp_move_64(area, 3);
    CHECK(memcmp(area, "pay..abc", 8) == 0);
    bsp_get_tag_64(&status, &its_tag);
    CHECK(status == (size_t)-1);
    bsp_get_64((unsigned)me, area, 5, area, 3);
    tag_bytes = 0;
    bsp_set_tagsize_64(&tag_bytes);
    bsp_pop_reg(area);
    bsp_sync();
    CHECK(memcmp(area, "abc..abc", 8) == 0);
    bsp_sync();
}

int main(void)
{
    int round;
    double time;

    bsp_begin(bsp_nprocs());
    p = bsp_nprocs();
    me = bsp_pid();
    time = bsp_time();
    CHECK(time >= 0 && me >= 0 && me < p);
    for (round = 0; round < 3; round++) {
        everybody();
        order();
        registrations();
        nulls();
        messages();
        long_sizes();
    }
    much();
    for (round = 0; round < 2000; round++)
        bsp_sync();
    CHECK(bsp_time() >= time);
    bsp_end();
    return 0;
}
