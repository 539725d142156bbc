/*
 * A sparse matrix times a vector, u = A v. The processes form a grid of M times N; nonzero
 * (i, j) is in process (i mod M, j mod N), and components i of u and v are in process
 * i mod p. Each process gets the components of v that it needs, once each, multiplies, and
 * sends what it has for each row to who owns that component of u.
 *
 * Bisseling, "Parallel Scientific Computation" (2004), Section 4.3: the supersteps fan-out
 * and fan-in.
 *
 *   portolan run -n 4 -- target/release/examples/bsp-spmv [N [NONZEROS [ROUNDS]]]
 */
#include "common.h"

#define USAGE                                                                                      \
    "spmv [N [NONZEROS [ROUNDS]]]\n"                                                               \
    "  N         rows, 1 to 1000000; default 20000\n"                                             \
    "  NONZEROS  in a row, 1 to 1000; default 10\n"                                                \
    "  ROUNDS    products, 1 to 1000000; default 10"

static int asked[3], code;

/* Nonzero k of row i stands in this column. */
static int column(int n, int each, int i, int k)
{
    return (int)(scattered((uint64_t)i * (uint64_t)each + (uint64_t)k) % (uint64_t)n);
}

static double nonzero(int each, int i, int k)
{
    return value(~((uint64_t)i * (uint64_t)each + (uint64_t)k));
}

/* The nonzeros of this process by rows: those of rows[r] are from start[r] on, and columns
 * are numbered as `wanted` lists them. */
struct matrix {
    int rows, columns, *row, *start, *wanted, *index;
    double *element;
};

static struct matrix make(int n, int each, int M, int N)
{
    int s = bsp_pid() % M, t = bsp_pid() / M, i, k, j, count = 0, most = (n + M - 1) / M * each;
    int *number = (int *)memory((size_t)n, sizeof *number);
    struct matrix it = {0, 0, NULL, NULL, NULL, NULL, NULL};

    it.row = (int *)memory((size_t)n, sizeof(int));
    it.start = (int *)memory((size_t)n + 1, sizeof(int));
    it.wanted = (int *)memory((size_t)n, sizeof(int));
    it.index = (int *)memory((size_t)most, sizeof(int));
    it.element = (double *)memory((size_t)most, sizeof(double));
    for (i = s; i < n; i += M) {
        int before = count;

        for (k = 0; k < each; k++) {
            if ((j = column(n, each, i, k)) % N != t)
                continue;
            if (number[j] == 0) {
                it.wanted[it.columns] = j;
                number[j] = ++it.columns;
            }
            it.index[count] = number[j] - 1;
            it.element[count++] = nonzero(each, i, k);
        }
        if (count > before) {
            it.row[it.rows++] = i;
            it.start[it.rows] = count;
        }
    }
    free(number);
    return it;
}

/* One product; `v` is registered, `room` is for what is got of it. */
static void multiply(const struct matrix *a, const double *v, double *room, double *u, int own)
{
    int p = bsp_nprocs(), r, k, bytes, tag, messages;

    for (k = 0; k < a->columns; k++)
        bsp_get(a->wanted[k] % p, v, a->wanted[k] / p * REAL, room + k, REAL);
    bsp_sync();
    for (r = 0; r < a->rows; r++) {
        double sum = 0;

        for (k = a->start[r]; k < a->start[r + 1]; k++)
            sum += a->element[k] * room[a->index[k]];
        tag = a->row[r] / p;
        bsp_send(a->row[r] % p, &tag, &sum, REAL);
    }
    bsp_sync();
    memset(u, 0, (size_t)own * sizeof *u);
    for (bsp_qsize(&messages, &bytes); messages > 0; messages--) {
        double sum;

        bsp_get_tag(&bytes, &tag);
        bsp_move(&sum, REAL);
        u[tag] += sum;
    }
}

/* How far u is from the product as one process makes it, row by row. */
static double wrong_by(int n, int each, int p, const double *u, int share)
{
    double worst = 0;
    int i, k;

    for (i = 0; i < n; i++) {
        double sum = 0;

        for (k = 0; k < each; k++)
            sum += nonzero(each, i, k) * value((uint64_t)column(n, each, i, k));
        worst = fmax(worst, fabs(sum - u[i % p * share + i / p]));
    }
    return worst;
}

static void spmd(void)
{
    int p, M, N, of[3], n, own, share, i, tag_bytes = sizeof(int);
    double *u, *v, *room, *all, start;
    struct matrix a;

    bsp_begin(bsp_nprocs());
    end_if_refused();
    p = bsp_nprocs();
    memcpy(of, asked, sizeof of);
    from_first(of, sizeof of);
    n = of[0];
    M = grid_rows();
    N = p / M;
    a = make(n, of[1], M, N);
    share = (n + p - 1) / p;
    own = below(n, bsp_pid(), p);
    u = (double *)memory((size_t)own, REAL);
    v = (double *)memory((size_t)own, REAL);
    room = (double *)memory((size_t)a.columns, REAL);
    all = (double *)memory(bsp_pid() == 0 ? (size_t)share * (size_t)p : 0, REAL);
    for (i = 0; i < own; i++)
        v[i] = value((uint64_t)i * (uint64_t)p + (uint64_t)bsp_pid());
    bsp_push_reg(v, own * REAL);
    bsp_push_reg(all, bsp_pid() == 0 ? share * p * REAL : 0);
    bsp_set_tagsize(&tag_bytes);
    bsp_sync();

    start = bsp_time();
    for (i = 0; i < of[2]; i++)
        multiply(&a, v, room, u, own);
    start = bsp_time() - start;

    bsp_hpput(0, u, all, bsp_pid() * share * REAL, own * REAL);
    bsp_sync();
    if (bsp_pid() == 0)
        code = report(start, 2.0 * n * of[1] * of[2], wrong_by(n, of[1], p, all, share),
                      1e-15 * of[1], "%d products of %d rows with %d nonzeros each", of[2], n, of[1]);
    bsp_end();
    free(a.row);
    free(a.start);
    free(a.wanted);
    free(a.index);
    free(a.element);
    free(u);
    free(v);
    free(room);
    free(all);
}

int main(int argc, char *argv[])
{
    bsp_init(spmd, argc, argv);
    asked[0] = argument(argc, argv, 1, 20000, 1, 1000000, USAGE);
    asked[1] = argument(argc, argv, 2, 10, 1, 1000, USAGE);
    asked[2] = argument(argc, argv, 3, 10, 1, 1000000, USAGE);
    no_more_arguments(argc, 3, USAGE);
    spmd();
    return code;
}
