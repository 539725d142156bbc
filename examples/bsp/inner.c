/*
 * The inner product of two vectors: each process has every p-th component of both, and
 * tells its sum to all.
 *
 * Bisseling, "Parallel Scientific Computation" (2004), Section 1.3.
 *
 *   portolan run -n 4 -- target/release/examples/bsp-inner [N]
 */
#include "common.h"

#define USAGE "inner [N]   (components, 1 to 100000000; default 1000000)"

static int asked, code;

/* One process alone, and how far off it may be: as far as rounding goes. */
static double sequential(int n, double *bound)
{
    double sum = 0, size = 0;
    int i;

    for (i = 0; i < n; i++) {
        double product = value((uint64_t)i) * value((uint64_t)n + (uint64_t)i);

        sum += product;
        size += fabs(product);
    }
    *bound = 1e-16 * n * size;
    return sum;
}

static void spmd(void)
{
    int p, s, n, own, i;
    double *x, *y, *room, start, seconds, sum = 0;

    bsp_begin(bsp_nprocs());
    end_if_refused();
    p = bsp_nprocs();
    s = bsp_pid();
    n = asked;
    from_first(&n, sizeof n);

    /* Component i is at i / p in process i % p. */
    own = below(n, s, p);
    x = (double *)memory((size_t)own, sizeof *x);
    y = (double *)memory((size_t)own, sizeof *y);
    room = (double *)memory((size_t)p, sizeof *room);
    for (i = 0; i < own; i++) {
        uint64_t global = (uint64_t)i * (uint64_t)p + (uint64_t)s;

        x[i] = value(global);
        y[i] = value((uint64_t)n + global);
    }
    bsp_push_reg(room, p * REAL);
    bsp_sync();

    start = bsp_time();
    for (i = 0; i < own; i++)
        sum += x[i] * y[i];
    sum = sum_of_all(sum, room);
    seconds = bsp_time() - start;

    if (s == 0) {
        double bound, error = fabs(sum - sequential(n, &bound));

        code = report(seconds, 2.0 * n, error, bound,
                      "inner product of %d components is %.10g", n, sum);
    }
    bsp_pop_reg(room);
    free(x);
    free(y);
    bsp_end();
    free(room);
}

int main(int argc, char *argv[])
{
    bsp_init(spmd, argc, argv);
    asked = argument(argc, argv, 1, 1000000, 1, 100000000, USAGE);
    no_more_arguments(argc, 1, USAGE);
    spmd();
    return code;
}
