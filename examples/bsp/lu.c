/*
 * LU decomposition with partial pivoting, PA = LU. The processes form a grid of M times N,
 * and element (i, j) is in process (i mod M, j mod N), so that all have work to the end.
 * A stage of three supersteps finds the pivot, swaps two rows, and spreads a row and a
 * column for the update.
 *
 * Bisseling, "Parallel Scientific Computation" (2004), Section 2.3; its Section 2.4 has
 * what makes the spreading cheaper where there are many processes.
 *
 *   portolan run -n 4 -- target/release/examples/bsp-lu [N]
 */
#include "common.h"

#define USAGE "lu [N]   (rows, 1 to 10000; default 500)"

static int asked, code;

static double element(int n, int i, int j)
{
    return value((uint64_t)i * (uint64_t)n + (uint64_t)j);
}

/* Decomposes what this process has of the matrix, row by row; rows[i] is which row of A the
 * row i became. */
static void decompose(int n, double *a, int *rows, int M, int N)
{
    int p = M * N, s = bsp_pid() % M, t = bsp_pid() / M, wide = below(n, t, N), i, j, k;
    double *column = (double *)memory((size_t)n, REAL), *row = (double *)memory((size_t)n, REAL);
    /* The largest element of each part of the column, and its row. */
    double *pivots = (double *)memory((size_t)M, 2 * REAL);

    bsp_push_reg(a, below(n, s, M) * wide * REAL);
    bsp_push_reg(column, n * REAL);
    bsp_push_reg(row, n * REAL);
    bsp_push_reg(pivots, 2 * M * REAL);
    bsp_sync();
    for (k = 0; k < n; k++) {
        int is_column = t == k % N, best = 0, r, was;
        int i_next = below(k + 1, s, M), j_next = below(k + 1, t, N), high = below(n, s, M);
        double mine[2] = {0, 0}, pivot;

        mine[1] = k;
        for (i = below(k, s, M); is_column && i < high; i++) {
            double it = a[i * wide + k / N];

            if (fabs(it) > fabs(mine[0])) {
                mine[0] = it;
                mine[1] = i * M + s;
            }
        }
        for (i = 0; is_column && i < p; i++)
            bsp_put(i, mine, pivots, 2 * s * REAL, 2 * REAL);
        bsp_sync();

        for (i = 1; i < M; i++)
            if (fabs(pivots[2 * i]) > fabs(pivots[2 * best]))
                best = i;
        pivot = pivots[2 * best];
        r = (int)pivots[2 * best + 1];
        if (pivot == 0)
            bsp_abort("the matrix is singular: column %d has no pivot", k);
        was = rows[k];
        rows[k] = rows[r];
        rows[r] = was;
        if (r != k && s == k % M)
            bsp_put(r % M + t * M, a + k / M * wide, a, r / M * wide * REAL, wide * REAL);
        if (r != k && s == r % M)
            bsp_put(k % M + t * M, a + r / M * wide, a, k / M * wide * REAL, wide * REAL);
        bsp_sync();

        if (is_column) {
            for (i = i_next; i < high; i++)
                column[i] = a[i * wide + k / N] /= pivot;
            for (j = 0; j < N; j++)
                bsp_put(s + j * M, column + i_next, column, i_next * REAL, (high - i_next) * REAL);
        }
        for (i = 0; s == k % M && i < M; i++)
            bsp_put(i + t * M, a + k / M * wide + j_next, row, j_next * REAL,
                    (wide - j_next) * REAL);
        bsp_sync();
        for (i = i_next; i < high; i++)
            for (j = j_next; j < wide; j++)
                a[i * wide + j] -= column[i] * row[j];
    }
    bsp_pop_reg(column);
    bsp_pop_reg(row);
    bsp_pop_reg(pivots);
    bsp_sync();
    free(column);
    free(row);
    free(pivots);
}

/* How far P A x and L U x are apart, for some x, as a part of the largest. */
static double residual(int n, double *const *parts, const int *rows, int M, int N)
{
    double *y = (double *)memory((size_t)n, sizeof *y), worst = 0, largest = 0, sum, other;
    int i, j;

#define LU(i, j) parts[(i) % M + (j) % N * M][(i) / M * below(n, (j) % N, N) + (j) / N]
    for (i = 0; i < n; i++)
        for (j = i; j < n; j++)
            y[i] += LU(i, j) * value(~(uint64_t)j);
    for (i = 0; i < n; i++) {
        for (j = 0, sum = y[i]; j < i; j++)
            sum += LU(i, j) * y[j];
        for (j = 0, other = 0; j < n; j++)
            other += element(n, rows[i], j) * value(~(uint64_t)j);
        worst = fmax(worst, fabs(sum - other));
        largest = fmax(largest, fabs(other));
    }
    free(y);
    return worst / largest;
}

static void spmd(void)
{
    int p, n, M, N, s, t, i, j, high, wide, *rows;
    double *a, **parts, start;

    bsp_begin(bsp_nprocs());
    end_if_refused();
    p = bsp_nprocs();
    n = asked;
    from_first(&n, sizeof n);
    M = grid_rows();
    N = p / M;
    s = bsp_pid() % M;
    t = bsp_pid() / M;
    high = below(n, s, M);
    wide = below(n, t, N);
    a = (double *)memory((size_t)high * (size_t)wide, sizeof *a);
    rows = (int *)memory((size_t)n, sizeof *rows);
    for (i = 0; i < high; i++)
        for (j = 0; j < wide; j++)
            a[i * wide + j] = element(n, i * M + s, j * N + t);
    for (i = 0; i < n; i++)
        rows[i] = i;
    bsp_sync();
    start = bsp_time();
    decompose(n, a, rows, M, N);
    start = bsp_time() - start;

    parts = (double **)memory((size_t)p, sizeof *parts);
    for (i = 0; bsp_pid() == 0 && i < p; i++) {
        int bytes = below(n, i % M, M) * below(n, i / M, N) * REAL;

        parts[i] = (double *)memory((size_t)bytes, 1);
        bsp_hpget(i, a, 0, parts[i], bytes);
    }
    bsp_sync();
    if (bsp_pid() == 0)
        code = report(start, 2.0 / 3 * n * n * n, residual(n, parts, rows, M, N), 1e-14 * n,
                      "LU decomposition of %d rows", n);
    bsp_end();
    for (i = 0; i < p; i++)
        free(parts[i]);
    free(parts);
    free(rows);
    free(a);
}

int main(int argc, char *argv[])
{
    bsp_init(spmd, argc, argv);
    asked = argument(argc, argv, 1, 500, 1, 10000, USAGE);
    no_more_arguments(argc, 1, USAGE);
    spmd();
    return code;
}
