/*
 * Sorting by regular sampling: each process sorts what it has and shows p samples of it.
 * The sorted samples say which range each process gets, and all send it what belongs there.
 *
 * Shi and Schaeffer, "Parallel Sorting by Regular Sampling", Journal of Parallel and
 * Distributed Computing 14 (1992). No process gets more than two shares, if keys differ.
 *
 *   portolan run -n 4 -- target/release/examples/bsp-psrs [N]
 */
#include "common.h"

#define USAGE "psrs [N]   (keys, 1 to 100000000; default 1000000)"
#define KEY ((int)sizeof(uint64_t))

static int asked, code;

/* What a process has, before or after: the sum depends on the keys, and not on their order. */
struct share {
    uint64_t keys, sum, lowest, highest, is_sorted;
};

static int compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

    return (left > right) - (left < right);
}

static struct share share(const uint64_t *keys, int count)
{
    struct share it = {0, 0, 0, 0, 1};
    int i;

    it.keys = (uint64_t)count;
    for (i = 0; i < count; i++) {
        it.sum += scattered(keys[i]);
        it.is_sorted &= i == 0 || keys[i - 1] <= keys[i];
    }
    if (count > 0) {
        it.lowest = keys[0];
        it.highest = keys[count - 1];
    }
    return it;
}

/* Whether the shares of all are sorted, one after the other, and have the keys that were made. */
static int is_right(const struct share *of, int p, int n)
{
    uint64_t keys = 0, sum = 0, highest = 0;
    int i, good = 1;

    for (i = 0; i < p; i++) {
        if (of[i].keys == 0)
            continue;
        good &= of[i].is_sorted && of[i].lowest >= highest;
        highest = of[i].highest;
        keys += of[i].keys;
        sum += of[i].sum;
    }
    for (i = 0; i < n; i++)
        sum -= scattered(scattered((uint64_t)i));
    return good && keys == (uint64_t)n && sum == 0;
}

/* Sends each process the keys that lie between its samples, and returns those that come. */
static uint64_t *exchange(const uint64_t *keys, int own, const uint64_t *splits, int *count)
{
    int p = bsp_nprocs(), messages, bytes, from = 0, to, i;
    uint64_t *mine;

    for (i = 0; i < p; i++, from = to) {
        for (to = from; to < own && (i == p - 1 || keys[to] < splits[i + 1]); to++)
            ;
        if (to > from)
            bsp_send(i, NULL, keys + from, (to - from) * KEY);
    }
    bsp_sync();
    bsp_qsize(&messages, &bytes);
    mine = (uint64_t *)memory((size_t)bytes, 1);
    for (*count = 0; messages > 0; messages--) {
        bsp_get_tag(&bytes, NULL);
        bsp_move(mine + *count, bytes);
        *count += bytes / KEY;
    }
    return mine;
}

static void spmd(void)
{
    int p, s, n, own, count, first, i;
    uint64_t *keys, *mine, *samples, *splits;
    struct share *of, its;
    double start;

    bsp_begin(bsp_nprocs());
    end_if_refused();
    p = bsp_nprocs();
    s = bsp_pid();
    n = asked;
    from_first(&n, sizeof n);
    first = block(n, s);
    own = block(n, s + 1) - first;
    keys = (uint64_t *)memory((size_t)own, sizeof *keys);
    for (i = 0; i < own; i++)
        keys[i] = scattered((uint64_t)(first + i));
    samples = (uint64_t *)memory((size_t)p * (size_t)p, sizeof *samples);
    splits = (uint64_t *)memory((size_t)p, sizeof *splits);
    of = (struct share *)memory((size_t)p, sizeof *of);
    bsp_push_reg(samples, p * p * KEY);
    bsp_push_reg(of, p * (int)sizeof *of);
    bsp_sync();

    start = bsp_time();
    qsort(keys, (size_t)own, sizeof *keys, compare);
    /* Who has nothing shows the lowest key. */
    for (i = 0; i < p; i++)
        splits[i] = own > 0 ? keys[(int64_t)own * i / p] : 0;
    for (i = 0; i < p; i++)
        bsp_put(i, splits, samples, s * p * KEY, p * KEY);
    bsp_sync();
    qsort(samples, (size_t)p * (size_t)p, sizeof *samples, compare);
    for (i = 1; i < p; i++)
        splits[i] = samples[i * p + p / 2];
    mine = exchange(keys, own, splits, &count);
    qsort(mine, (size_t)count, sizeof *mine, compare);
    bsp_sync();
    start = bsp_time() - start;

    its = share(mine, count);
    bsp_put(0, &its, of, s * (int)sizeof its, sizeof its);
    bsp_sync();
    if (s == 0)
        code = report(start, 0, !is_right(of, p, n), 0,
                      "sorted %d keys, %.4g million a second", n, n / start * 1e-6);
    bsp_end();
    free(keys);
    free(mine);
    free(samples);
    free(splits);
    free(of);
}

int main(int argc, char *argv[])
{
    bsp_init(spmd, argc, argv);
    asked = argument(argc, argv, 1, 1000000, 1, 100000000, USAGE);
    no_more_arguments(argc, 1, USAGE);
    spmd();
    return code;
}
