/*
 * Parallel matrix multiply by active messages: each rank owns a block of
 * columns of A, B and C, fetches A's other columns from their owners by
 * split-phase requests and computes while they are on their way.
 *
 *   portolan run -n 4 -- target/release/examples/c-matmul --size 64,128,256
 *
 * Every product is checked, element by element, against a plain triple loop.
 */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <portolan.h>

/* Request: [index, row or ALL, column of the owner's block]. */
#define FETCH 1
/* Answer with four 32-bit words: [index, row, words 0 and 1, words 2 and 3]. */
#define WORDS 2
/* Answer with a whole column: [index] and its bytes. */
#define LONG 3
/* A rank's figures, to rank 0: [total ns, computing ns, wrong elements]. */
#define FIGURES 4

#define ALL UINT64_MAX
/* Columns that are on their way while one is worked on. */
#define AHEAD 8
/* Each multiplication is repeated; medians are printed. */
#define REPEATS 11
#define SIZES_MAX 16

/* A is rows x inner, B inner x ranks * columns. */
struct shape {
    size_t rows, inner, columns;
};

/* A column of A that was asked for. */
struct landing {
    uint64_t index;
    size_t missing;
    float *values;
};

struct app {
    portolan_endpoint *endpoint;
    size_t rank, size;
    /* This rank's columns of A, one after another. */
    float *own;
    size_t rows;
    struct landing landing[AHEAD];
    /* The one that is waited for. */
    struct landing *wanted;
    /* Of all ranks. */
    size_t figures;
    uint64_t total_max, computing_sum, wrong_sum;
    /* The first that a handler met. */
    int error;
};

/* Small whole numbers: their sums of products are exact in 32-bit floats. */
static float a_of(size_t row, size_t column)
{
    return (float)((row * 7 + column * 3) % 9) - 4.0f;
}

static float b_of(size_t row, size_t column)
{
    return (float)((row * 5 + column * 11) % 7) - 3.0f;
}

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *get(size_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);

    if (memory == NULL) {
        fprintf(stderr, "matmul: no memory\n");
        exit(1);
    }
    return memory;
}

static void note_error(struct app *app, int error)
{
    if (error < 0 && app->error == 0)
        app->error = error;
}

/* ---- Handlers ---------------------------------------------------------- */

static void serve(portolan_context *context, const portolan_message *m, void *user)
{
    struct app *app = user;
    const float *column = app->own + m->args[2] * app->rows;
    uint64_t args[4];

    args[0] = m->args[0];
    if (m->args[1] == ALL) {
        note_error(app, portolan_reply(context, LONG, args, 1, column, app->rows * sizeof *column));
        return;
    }
    args[1] = m->args[1];
    memcpy(&args[2], column + m->args[1], 2 * sizeof args[2]);
    note_error(app, portolan_reply(context, WORDS, args, 4, NULL, 0));
}

static void land(struct app *app, uint64_t index, size_t row, const void *values, size_t count)
{
    struct landing *landing = &app->landing[index % AHEAD];

    if (landing->index != index || count > landing->missing) {
        note_error(app, -EPROTO);
        return;
    }
    memcpy(landing->values + row, values, count * sizeof *landing->values);
    landing->missing -= count;
}

static void take_words(portolan_context *context, const portolan_message *m, void *user)
{
    (void)context;
    land(user, m->args[0], m->args[1], &m->args[2], 4);
}

static void take_column(portolan_context *context, const portolan_message *m, void *user)
{
    (void)context;
    land(user, m->args[0], 0, m->payload, m->bytes / sizeof(float));
}

static void take_figures(portolan_context *context, const portolan_message *m, void *user)
{
    struct app *app = user;

    (void)context;
    app->figures++;
    if (m->args[0] > app->total_max)
        app->total_max = m->args[0];
    app->computing_sum += m->args[1];
    app->wrong_sum += m->args[2];
}

static int has_landed(void *user)
{
    const struct app *app = user;

    return app->wanted->missing == 0 || app->error != 0;
}

static int has_all_figures(void *user)
{
    const struct app *app = user;

    return app->figures == app->size || app->error != 0;
}

static int bind_all(struct app *app)
{
    static const portolan_handler handlers[] = {serve, take_words, take_column, take_figures};
    static const uint16_t ports[] = {FETCH, WORDS, LONG, FIGURES};
    portolan_binding binding;
    size_t i;
    int error;

    for (i = 0; i < 4; i++) {
        portolan_binding_init(&binding);
        binding.handler = handlers[i];
        binding.user = app;
        if ((error = portolan_bind(app->endpoint, ports[i], &binding)) < 0)
            return error;
    }
    return 0;
}

/* ---- The multiplication ------------------------------------------------ */

/* C += column * row k of B, for this rank's columns of C. */
static void update(float *restrict c, const float *restrict column, const float *restrict b,
                   size_t rows, size_t columns)
{
    size_t j, i;

    for (j = 0; j < columns; j++)
        for (i = 0; i < rows; i++)
            c[j * rows + i] += column[i] * b[j];
}

static int send_args(struct app *app, uint32_t rank, uint16_t port, const uint64_t *args)
{
    portolan_send_options options;

    portolan_send_options_init(&options);
    options.args = args;
    options.arg_count = 3;
    return portolan_sendx(app->endpoint, rank, port, NULL, 0, &options);
}

/* Asks for column k of A, which is to be this rank's remote column `index`. */
static int ask(struct app *app, size_t index, size_t k, size_t block, int words)
{
    struct landing *landing = &app->landing[index % AHEAD];
    uint64_t args[3];
    size_t row;
    int error;

    landing->index = index;
    landing->missing = app->rows;
    args[0] = index;
    args[2] = k % block;
    for (row = 0; row < app->rows; row += words ? 4 : app->rows) {
        args[1] = words ? row : ALL;
        if ((error = send_args(app, (uint32_t)(k / block), FETCH, args)) < 0)
            return error;
    }
    return 0;
}

static uint64_t count_wrong(const struct shape *s, const float *c, size_t first)
{
    uint64_t wrong = 0;
    size_t row, column, k;
    float exact;

    for (column = 0; column < s->columns; column++)
        for (row = 0; row < s->rows; row++) {
            exact = 0;
            for (k = 0; k < s->inner; k++)
                exact += a_of(row, k) * b_of(k, first + column);
            wrong += exact != c[column * s->rows + row];
        }
    return wrong;
}

/* Columns first to first + count of B's row k stand at b[k * count]. */
static float *make_b(size_t inner, size_t first, size_t count)
{
    float *b = get(inner * count, sizeof *b);
    size_t k, j;

    for (k = 0; k < inner; k++)
        for (j = 0; j < count; j++)
            b[k * count + j] = b_of(k, first + j);
    return b;
}

static float *make_a(size_t rows, size_t first, size_t count)
{
    float *a = get(rows * count, sizeof *a);
    size_t i;

    for (i = 0; i < rows * count; i++)
        a[i] = a_of(i % rows, first + i / rows);
    return a;
}

/* One multiplication, all ranks together: [total ns, computing ns, wrong]. */
static int multiply(struct app *app, const struct shape *s, int words, uint64_t *figures)
{
    size_t block = s->inner / app->size, remote = s->inner - block, first = app->rank * s->columns;
    size_t i, k, mine = app->rank * block;
    float *b = make_b(s->inner, first, s->columns);
    float *c = get(s->rows * s->columns, sizeof *c);
    uint64_t start, t, computing = 0;
    int error;

    app->own = make_a(s->rows, mine, block);
    app->rows = s->rows;
    for (i = 0; i < AHEAD; i++)
        app->landing[i].values = get(s->rows, sizeof(float));

    if ((error = portolan_barrier(app->endpoint, NULL)) < 0)
        goto out;
    start = now_ns();
    /* Our own columns come first, then those of the ranks after us: so not
     * everybody asks the same rank at once. */
    for (i = 0; i < AHEAD && i < remote; i++)
        if ((error = ask(app, i, (mine + block + i) % s->inner, block, words)) < 0)
            goto out;
    for (i = 0; i < s->inner; i++) {
        const float *column = app->own + i * s->rows;

        k = (mine + i) % s->inner;
        if (i >= block) {
            app->wanted = &app->landing[(i - block) % AHEAD];
            if ((error = portolan_wait_until(app->endpoint, has_landed, app, -1)) < 0)
                goto out;
            if ((error = app->error) < 0)
                goto out;
            column = app->wanted->values;
        }
        t = now_ns();
        update(c, column, b + k * s->columns, s->rows, s->columns);
        computing += now_ns() - t;
        if (i >= block && i + AHEAD < s->inner &&
            (error = ask(app, i - block + AHEAD, (k + AHEAD) % s->inner, block, words)) < 0)
            goto out;
        if ((error = (int)portolan_progress(app->endpoint)) < 0)
            goto out;
    }
    figures[0] = now_ns() - start;
    figures[1] = computing;
    /* Others may still fetch. */
    if ((error = portolan_barrier(app->endpoint, NULL)) < 0)
        goto out;
    figures[2] = count_wrong(s, c, first);
out:
    for (i = 0; i < AHEAD; i++)
        free(app->landing[i].values);
    free(app->own);
    free(b);
    free(c);
    return error;
}

/* The same product by one process alone, ns. */
static uint64_t alone(const struct shape *s, size_t size)
{
    size_t k, columns = s->columns * size;
    float *a = make_a(s->rows, 0, s->inner), *b = make_b(s->inner, 0, columns);
    float *c = get(s->rows * columns, sizeof *c);
    uint64_t start = now_ns(), took;

    for (k = 0; k < s->inner; k++)
        update(c, a + k * s->rows, b + k * columns, s->rows, columns);
    took = now_ns() - start;
    free(a);
    free(b);
    free(c);
    return took;
}

static int compare(const void *left, const void *right)
{
    const double *l = left, *r = right;

    return (*l > *r) - (*l < *r);
}

static double median(double *all)
{
    qsort(all, REPEATS, sizeof *all, compare);
    return all[REPEATS / 2];
}

/* Measures one shape and prints its line: medians over the repeats, times of
 * the slowest rank. */
static int measure(struct app *app, const struct shape *s, int words)
{
    double total[REPEATS], share[REPEATS], one[REPEATS], us, computing;
    uint64_t figures[3];
    int i, error;

    for (i = 0; i < REPEATS; i++) {
        if ((error = multiply(app, s, words, figures)) < 0)
            return error;
        if ((error = send_args(app, 0, FIGURES, figures)) < 0)
            return error;
        if (app->rank == 0) {
            if ((error = portolan_wait_until(app->endpoint, has_all_figures, app, -1)) < 0)
                return error;
            if (app->wrong_sum > 0) {
                fprintf(stderr, "matmul: %" PRIu64 " elements of the product are wrong\n",
                        app->wrong_sum);
                return -EPROTO;
            }
            total[i] = (double)app->total_max / 1e3;
            share[i] = (double)app->computing_sum / ((double)app->total_max * (double)app->size);
            one[i] = (double)alone(s, app->size) / 1e3;
            app->figures = 0;
            app->total_max = app->computing_sum = 0;
        }
        if ((error = portolan_barrier(app->endpoint, NULL)) < 0)
            return error;
    }
    if (app->rank == 0) {
        us = median(total);
        computing = 100 * median(share);
        printf("%6zu %6zu %8zu %7s %10.1f %10.1f %9.2f %12.1f %14.1f\n", s->rows, s->inner,
               s->columns, words ? "words" : "long", median(one), us, median(one) / us, computing,
               100 - computing);
    }
    return 0;
}

/* ---- The command line -------------------------------------------------- */

struct arguments {
    size_t sizes[SIZES_MAX];
    size_t size_count;
    int words, whole, columns;
};

static const char usage[] =
    "usage: c-matmul [--size N[,N...]] [--fetch words|long|both] [--columns]\n"
    "  --size     square matrices of these sizes (default 64,128,256)\n"
    "  --fetch    four 32-bit words by each request, a whole column, or both in turn (default)\n"
    "  --columns  utilisation against columns per process, at a constant amount of work\n";

static int parse_sizes(struct arguments *arguments, const char *text)
{
    char *end;

    arguments->size_count = 0;
    for (;;) {
        unsigned long n = strtoul(text, &end, 10);

        if (end == text || *text == '-' || n == 0 || n > 1u << 15 ||
            arguments->size_count == SIZES_MAX)
            return 0;
        arguments->sizes[arguments->size_count++] = n;
        if (*end == '\0')
            return 1;
        if (*end != ',')
            return 0;
        text = end + 1;
    }
}

static int parse(struct arguments *arguments, int argc, char **argv)
{
    int i;

    for (i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";

        if (strcmp(argv[i], "--columns") == 0) {
            arguments->columns = 1;
            continue;
        }
        if (strcmp(argv[i], "--size") == 0) {
            if (!parse_sizes(arguments, value))
                return 0;
        } else if (strcmp(argv[i], "--fetch") == 0) {
            arguments->words = strcmp(value, "long") != 0;
            arguments->whole = strcmp(value, "words") != 0;
            if (arguments->words && arguments->whole && strcmp(value, "both") != 0)
                return 0;
        } else {
            return 0;
        }
        i++;
    }
    return 1;
}

static int run(struct app *app, const struct arguments *arguments)
{
    /* rows * inner * columns is the same for all. */
    static const size_t constant_work[][2] = {{2, 1024}, {8, 512}, {32, 256}, {128, 128}, {512, 64}};
    size_t i, count = arguments->columns ? 5 : arguments->size_count;
    struct shape s;
    int error;

    if ((error = bind_all(app)) < 0)
        return error;
    if (app->rank == 0)
        printf("%6s %6s %8s %7s %10s %10s %9s %12s %14s\n", "rows", "inner", "columns", "fetch",
               "alone us", "time us", "speed-up", "computing %", "communicating %");
    for (i = 0; i < count; i++) {
        s.rows = s.inner = arguments->columns ? constant_work[i][1] : arguments->sizes[i];
        s.columns = arguments->columns ? constant_work[i][0] : s.inner / app->size;
        if (s.inner % app->size != 0 || s.rows % 4 != 0) {
            fprintf(stderr, "matmul: size %zu does not divide by %zu processes and by 4\n", s.inner,
                    app->size);
            return -EINVAL;
        }
        if (arguments->words && (error = measure(app, &s, 1)) < 0)
            return error;
        if (arguments->whole && (error = measure(app, &s, 0)) < 0)
            return error;
    }
    if (app->rank == 0)
        puts("every product was checked: all elements are right");
    return portolan_barrier(app->endpoint, NULL);
}

int main(int argc, char **argv)
{
    struct arguments arguments = {{64, 128, 256}, 3, 1, 1, 0};
    struct app app;
    char why[512];
    int error, closed;

    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        fputs(usage, stdout);
        return 0;
    }
    if (!parse(&arguments, argc, argv)) {
        fputs(usage, stderr);
        return 2;
    }
    memset(&app, 0, sizeof app);
    if (portolan_open(&app.endpoint, NULL, why, sizeof why) < 0) {
        fprintf(stderr, "matmul: %s\n", why);
        return 1;
    }
    app.rank = (size_t)portolan_rank(app.endpoint);
    app.size = (size_t)portolan_size(app.endpoint);
    error = run(&app, &arguments);
    closed = portolan_close(app.endpoint);
    if (error == 0)
        error = closed;
    if (error < 0) {
        fprintf(stderr, "matmul: %s\n", portolan_strerror(error));
        return 1;
    }
    return 0;
}
