/*
 * Conjugate gradients: solves A x = b for a symmetric positive definite matrix. It is read
 * from a file in the Matrix Market format, or it is that of a square of points that are each
 * joined to four others (the Laplacian in two dimensions). Each process has a block of rows,
 * and copies of those components of others that its rows need. b is made so that x is all
 * ones.
 *
 * Hestenes and Stiefel, "Methods of Conjugate Gradients for Solving Linear Systems", Journal
 * of Research of the National Bureau of Standards 49 (1952).
 *
 *   portolan run -n 4 -- target/release/examples/bsp-cg [SIDE | FILE]
 */
#include "common.h"

#define HEADER "%%MatrixMarket matrix coordinate real symmetric\n"
#define USAGE                                                                                      \
    "cg [SIDE | FILE]\n"                                                                           \
    "  SIDE  of the square, 1 to 1000 points; default 100\n"                                       \
    "  FILE  a matrix in the Matrix Market format: coordinate, real, symmetric"

/* How small the residual is to become, as a part of b. */
#define SMALL 1e-10

struct entry {
    int i, j;
    double a;
};

/* Component `which` of its owner goes to `place` in process `to`. */
struct copy {
    int which, place, to;
};

/* What a process has: entries with its own numbers of rows and columns. Copies of others'
 * components stand behind its own. */
struct part {
    int own, columns, entries, copies;
    struct entry *entry;
    struct copy *copy;
};

/* Process 0 alone has these: the file, how many entries it has and where they begin. */
static FILE *file;
static int rows, side, in_file, code;
static long at;

static int owner(int n, int i)
{
    int s = (int)((int64_t)i * bsp_nprocs() / n);

    while (block(n, s + 1) <= i)
        s++;
    return s;
}

static void send_entry(struct entry it, double *unused)
{
    (void)unused;
    bsp_send(owner(rows, it.i), NULL, &it, sizeof it);
}

/* Adds what the entry has of the residual, A (1 - x), which stands behind x. */
static void add_residual(struct entry it, double *x)
{
    x[rows + it.i] += it.a * (1 - x[it.j]);
}

/* Calls `act` with each entry of the matrix. */
static void each_entry(void (*act)(struct entry it, double *x), double *x)
{
    static const int step[5][2] = {{0, 0}, {-1, 0}, {1, 0}, {0, -1}, {0, 1}};
    struct entry it;
    int i, k;

    for (i = 0; !file && i < rows; i++)
        for (k = 0; k < 5; k++) {
            int column = i % side + step[k][0], row = i / side + step[k][1];

            it.i = i;
            it.j = row * side + column;
            it.a = k == 0 ? 4 : -1;
            if (column >= 0 && column < side && row >= 0 && row < side)
                act(it, x);
        }
    if (file)
        fseek(file, at, SEEK_SET);
    for (k = 0; k < in_file; k++) {
        int row, column;

        if (fscanf(file, "%d %d %lf", &row, &column, &it.a) != 3 || column < 1 || column > row ||
            row > rows)
            bsp_abort("entry %d of the file must be row, column and number, with row >= column",
                      k + 1);
        it.i = row - 1;
        it.j = column - 1;
        act(it, x);
        it.i = column - 1;
        it.j = row - 1;
        if (row != column)
            act(it, x);
    }
}

/* Takes all messages, which are items of a size. */
static void *take(int size, int *count)
{
    int bytes, i;
    char *items;

    bsp_qsize(count, &bytes);
    items = (char *)memory((size_t)*count, (size_t)size);
    for (i = 0; i < *count; i++) {
        void *tag, *item;

        bsp_hpmove(&tag, &item);
        memcpy(items + (size_t)i * (size_t)size, item, (size_t)size);
    }
    return items;
}

/* Takes the entries, numbers their columns, and asks for copies. */
static struct part receive(int n)
{
    int s = bsp_pid(), first = block(n, s), k, *number = (int *)memory((size_t)n, sizeof *number);
    struct part it;

    it.columns = it.own = block(n, s + 1) - first;
    it.entry = (struct entry *)take(sizeof *it.entry, &it.entries);
    for (k = 0; k < it.own; k++)
        number[first + k] = k;
    for (k = 0; k < it.entries; k++) {
        int j = it.entry[k].j, from = owner(n, j);

        if (from != s && number[j] == 0) {
            struct copy wanted = {0, 0, 0};

            wanted.which = j - block(n, from);
            wanted.place = number[j] = it.columns++;
            wanted.to = s;
            bsp_send(from, NULL, &wanted, sizeof wanted);
        }
        it.entry[k].i -= first;
        it.entry[k].j = number[j];
    }
    bsp_sync();
    it.copy = (struct copy *)take(sizeof *it.copy, &it.copies);
    free(number);
    return it;
}

static void multiply(const struct part *a, const double *v, double *to)
{
    int k;

    memset(to, 0, (size_t)a->own * sizeof *to);
    for (k = 0; k < a->entries; k++)
        to[a->entry[k].i] += a->entry[k].a * v[a->entry[k].j];
}

static double inner(int own, const double *x, const double *y, double *room)
{
    double sum = 0;
    int i;

    for (i = 0; i < own; i++)
        sum += x[i] * y[i];
    return sum_of_all(sum, room);
}

/* Solves for x; returns how many steps that took, and stores the length of b. */
static int solve(const struct part *a, int n, double *x, double *length)
{
    size_t own = (size_t)a->own;
    double *room = (double *)memory((size_t)bsp_nprocs(), REAL);
    double *d = (double *)memory((size_t)a->columns, REAL);
    double *r = (double *)memory(own, REAL), *q = (double *)memory(own, REAL);
    double rho, before, alpha;
    int i, steps;

    bsp_push_reg(room, bsp_nprocs() * REAL);
    bsp_push_reg(d, a->columns * REAL);
    bsp_sync();
    for (i = 0; i < a->columns; i++)
        d[i] = 1;
    multiply(a, d, r);
    memcpy(d, r, own * sizeof *d);
    rho = inner(a->own, r, r, room);
    *length = sqrt(rho);
    for (steps = 0; sqrt(rho) > SMALL * *length; steps++) {
        for (i = 0; i < a->copies; i++)
            bsp_put(a->copy[i].to, d + a->copy[i].which, d, a->copy[i].place * REAL, REAL);
        bsp_sync();
        multiply(a, d, q);
        alpha = inner(a->own, d, q, room);
        if (!(alpha > 0) || steps / 10 > n)
            bsp_abort("no solution after %d steps: is the matrix positive definite?", steps);
        alpha = rho / alpha;
        for (i = 0; i < a->own; i++) {
            x[i] += alpha * d[i];
            r[i] -= alpha * q[i];
        }
        before = rho;
        rho = inner(a->own, r, r, room);
        for (i = 0; i < a->own; i++)
            d[i] = r[i] + rho / before * d[i];
    }
    bsp_pop_reg(d);
    bsp_pop_reg(room);
    bsp_sync();
    free(room);
    free(d);
    free(r);
    free(q);
    return steps;
}

static void spmd(void)
{
    int s, n, steps, i;
    double *x, *all, start, length, error = 0, entries;
    struct part a;

    bsp_begin(bsp_nprocs());
    end_if_refused();
    s = bsp_pid();
    n = rows;
    from_first(&n, sizeof n);
    if (s == 0)
        each_entry(send_entry, NULL);
    bsp_sync();
    a = receive(n);
    x = (double *)memory((size_t)a.own, REAL);
    /* For all of x, and the residual. */
    all = (double *)memory(s == 0 ? 2 * (size_t)n : 0, REAL);
    bsp_push_reg(all, s == 0 ? n * REAL : 0);
    start = bsp_time();
    steps = solve(&a, n, x, &length);
    start = bsp_time() - start;
    bsp_put(0, x, all, block(n, s) * REAL, a.own * REAL);
    bsp_sync();
    if (s == 0) {
        each_entry(add_residual, all);
        for (i = 0; i < n; i++)
            error += all[n + i] * all[n + i];
        entries = file ? 2.0 * in_file : 5.0 * n;
        code = report(start, steps * (2 * entries + 10.0 * n), sqrt(error), 10 * SMALL * length,
                      "conjugate gradients for %d rows, %d steps", n, steps);
    }
    bsp_end();
    free(a.entry);
    free(a.copy);
    free(x);
    free(all);
}

/* Opens a file, and reads as far as its first entry. */
static void open_file(const char *path)
{
    char line[1100], why[200];
    int columns;

    file = fopen(path, "r");
    if (!file) {
        snprintf(why, sizeof why, "%.99s cannot be read", path);
        refuse(why, USAGE);
        return;
    }
    if (!fgets(line, sizeof line, file) || strcmp(line, HEADER) != 0)
        refuse("the file does not begin with: " HEADER, USAGE);
    while (fgets(line, sizeof line, file) && (line[0] == '%' || line[0] == '\n'))
        ;
    if (sscanf(line, "%d %d %d", &rows, &columns, &in_file) != 3 || rows < 1 || columns != rows ||
        in_file < 1)
        refuse("the file has no line with rows, as many columns, and entries", USAGE);
    at = ftell(file);
}

int main(int argc, char *argv[])
{
    bsp_init(spmd, argc, argv);
    no_more_arguments(argc, 1, USAGE);
    if (argc > 1 && argv[1][strspn(argv[1], "0123456789")] != '\0') {
        open_file(argv[1]);
    } else {
        side = argument(argc, argv, 1, 100, 1, 1000, USAGE);
        rows = side * side;
    }
    spmd();
    if (file)
        fclose(file);
    return code;
}
