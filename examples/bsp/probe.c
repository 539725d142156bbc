/* What a BSP computer costs: the speed of a process, a superstep, a word, a byte.
 *
 *   bspcc -O2 -o probe probe.c && bsprun -n 4 ./probe [MILLISECONDS]
 *
 * Standard BSPlib calls only, and no variables that threads would share. Process 0 prints
 * a line "NAME VALUE" for each figure: the median of several slices, which take so long
 * together (default 100 ms). `portolan bench bsp` reads them. */
#include <bsp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SLICES = 5,
    VECTOR = 1024,   /* doubles of a daxpy: they fit into the nearest cache */
    WORD = 8,        /* bytes */
    WORDS = 4096,    /* scattered puts of a word in a superstep */
    MANY = 100000,   /* the same where they stand beside one put of as many bytes */
    LARGE = 1 << 20, /* bytes of a large put */
    PAIR = 64 << 10  /* bytes from each to each other in a total exchange */
};

struct process {
    int p, self, right;
    double *x, *y;     /* vectors of the daxpy */
    char *from, *area; /* what is put, and where to */
    double agreed;     /* what process 0 told last */
};

typedef void step(struct process *me);

static void *room(int bytes)
{
    void *memory = malloc((size_t)bytes);

    if (!memory)
        bsp_abort("no memory for %d bytes\n", bytes);
    /* Written, so that each page is one of its own. */
    return memset(memory, 1, (size_t)bytes);
}

/* ---- What is measured ------------------------------------------------------------- */

static void daxpy(struct process *me)
{
    int i;

    for (i = 0; i < VECTOR; i++)
        me->y[i] += 1e-9 * me->x[i];
}

static void superstep(struct process *me)
{
    (void)me;
    bsp_sync();
}

/* To each other one, `bytes` of them. */
static void to_others(struct process *me, int bytes)
{
    int i;

    for (i = 1; i < me->p; i++)
        bsp_put((me->self + i) % me->p, me->from, me->area, me->self * bytes, bytes);
    bsp_sync();
}

static void exchange(struct process *me)
{
    to_others(me, WORD);
}

static void total_exchange(struct process *me)
{
    to_others(me, PAIR);
}

/* Each word has its place, and none follows the last: 40,503 has no factor in common with
 * the number of places. */
static void scatter(struct process *me, int to, int i, int places)
{
    int offset = (int)((long)i * 40503 % places) * WORD;

    bsp_put(to, me->from + offset, me->area, offset, WORD);
}

static void words(struct process *me)
{
    int i, others = me->p > 1 ? me->p - 1 : 1;

    for (i = 0; i < WORDS; i++)
        scatter(me, (me->right + i % others) % me->p, i, LARGE / WORD);
    bsp_sync();
}

static void scattered(struct process *me)
{
    int i;

    for (i = 0; i < MANY; i++)
        scatter(me, me->right, i, MANY);
    bsp_sync();
}

static void whole(struct process *me)
{
    bsp_put(me->right, me->from, me->area, 0, MANY * WORD);
    bsp_sync();
}

static void large(struct process *me)
{
    bsp_put(me->right, me->from, me->area, 0, LARGE);
    bsp_sync();
}

static void large_hp(struct process *me)
{
    bsp_hpput(me->right, me->from, me->area, 0, LARGE);
    bsp_sync();
}

/* ---- How it is measured ----------------------------------------------------------- */

/* What process 0 says, in all processes. */
static double agree(struct process *me, double value)
{
    int i;

    for (i = 0; me->self == 0 && i < me->p; i++)
        bsp_put(i, &value, &me->agreed, 0, sizeof value);
    bsp_sync();
    return me->agreed;
}

static double timed(struct process *me, step *does, long count)
{
    double start;
    long i;

    bsp_sync();
    start = bsp_time();
    for (i = 0; i < count; i++)
        does(me);
    return bsp_time() - start;
}

static int compare(const void *a, const void *b)
{
    double one = *(const double *)a, other = *(const double *)b;

    return (one > other) - (one < other);
}

/* Microseconds of a step, the median of slices that take so many seconds together. */
static double median_us(struct process *me, step *does, double seconds)
{
    double each[SLICES], took, slice = seconds / SLICES;
    long count, next = 1;
    int i;

    /* The first steps are slow: tries until half a slice is full. */
    do {
        count = next;
        took = agree(me, timed(me, does, count));
        next = took * 8 > slice ? (long)((double)count * slice / took) : count * 8;
    } while (took * 2 < slice && next > count);
    count = next > 0 ? next : 1;
    for (i = 0; i < SLICES; i++)
        each[i] = timed(me, does, count) / (double)count * 1e6;
    qsort(each, SLICES, sizeof *each, compare);
    return agree(me, each[SLICES / 2]);
}

static void say(const struct process *me, const char *name, double value)
{
    if (me->self == 0)
        printf("%s %.9g\n", name, value);
}

int main(int argc, char **argv)
{
    struct process me;
    double seconds, l, us;
    int bytes, i;

    bsp_begin(bsp_nprocs());
    me.p = bsp_nprocs();
    me.self = bsp_pid();
    me.right = (me.self + 1) % me.p;
    bytes = me.p * PAIR > LARGE ? me.p * PAIR : LARGE;
    me.x = (double *)room(VECTOR * (int)sizeof *me.x);
    me.y = (double *)room(VECTOR * (int)sizeof *me.y);
    for (i = 0; i < VECTOR; i++)
        me.x[i] = me.y[i] = 1.0;
    me.from = (char *)room(LARGE);
    me.area = (char *)room(bytes);
    bsp_push_reg(me.area, bytes);
    bsp_push_reg(&me.agreed, sizeof me.agreed);
    bsp_sync();
    seconds = agree(&me, argc > 1 ? atof(argv[1]) / 1e3 : 0.1);

    say(&me, "r_mflop_s", 2 * VECTOR / median_us(&me, daxpy, seconds));
    l = median_us(&me, superstep, seconds);
    say(&me, "l_us", l);
    say(&me, "exchange_us", median_us(&me, exchange, seconds));
    us = median_us(&me, words, seconds);
    say(&me, "g_word_us", us > l ? (us - l) / WORDS : 0.0);
    say(&me, "g_mb_s", LARGE / median_us(&me, large, seconds));
    say(&me, "g_hp_mb_s", LARGE / median_us(&me, large_hp, seconds));
    say(&me, "total_exchange_us", median_us(&me, total_exchange, seconds));
    say(&me, "scattered_us", median_us(&me, scattered, seconds));
    say(&me, "whole_us", median_us(&me, whole, seconds));
    /* The sums have a use, so they are computed. */
    if (me.y[0] + me.y[VECTOR - 1] < 2.0)
        puts("the daxpy computed nothing");
    bsp_end();
    return 0;
}
