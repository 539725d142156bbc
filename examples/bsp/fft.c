/*
 * The Fourier transform X[k] = sum over j of x[j] exp(-2 pi i j k / n), for powers of two.
 * Each process has every p-th element, before and after. It transforms what it has, turns
 * it by factors, and exchanges all but a p-th part; short transforms across what came from
 * all complete it. That takes one superstep, where n is at least p * p.
 *
 * Bisseling, "Parallel Scientific Computation" (2004), Section 3.4, in the case p <= sqrt(n).
 *
 *   portolan run -n 4 -- target/release/examples/bsp-fft [LOG2_N]
 */
#include "common.h"

#define USAGE "fft [LOG2_N]   (of the number of elements, 0 to 24; default 18)"
#define PAIR (2 * REAL)

static int asked, code;
static const double pi = 3.14159265358979323846;

/* Factors of a transform of n elements: exp(sign * 2 pi i k / n). */
static double *factors(int n, int sign)
{
    double *w = (double *)memory((size_t)n, PAIR);
    int k;

    for (k = 0; k < n; k++) {
        w[2 * k] = cos(2 * pi * k / n);
        w[2 * k + 1] = sign * sin(2 * pi * k / n);
    }
    return w;
}

/* Transforms n elements (real and imaginary parts in turns) at x[0], x[stride], ... in
 * place; `w` has factors of a transform of n times `coarse` elements. */
static void transform(double *x, int n, int stride, const double *w, int coarse)
{
    int i, j, half, k;

    /* Each element goes to where the bits of its number are reversed. */
    for (i = 0, j = 0; i < n; i++) {
        double *a = x + 2 * i * stride, *b = x + 2 * j * stride;

        if (i < j) {
            double re = a[0], im = a[1];

            a[0] = b[0];
            a[1] = b[1];
            b[0] = re;
            b[1] = im;
        }
        for (k = n / 2; k > 0 && j & k; k /= 2)
            j -= k;
        j += k;
    }
    for (half = 1; half < n; half *= 2)
        for (i = 0; i < n; i += 2 * half)
            for (k = 0; k < half; k++) {
                const double *f = w + 2 * (n / 2 / half * k * coarse);
                double *a = x + 2 * (i + k) * stride, *b = a + 2 * half * stride;
                double re = f[0] * b[0] - f[1] * b[1], im = f[0] * b[1] + f[1] * b[0];

                b[0] = a[0] - re;
                b[1] = a[1] - im;
                a[0] += re;
                a[1] += im;
            }
}

/* Transforms n elements, of which this process has n / p; `room` is registered for as many. */
static void fft(double *x, int n, double *room, int sign)
{
    int p = bsp_nprocs(), s = bsp_pid(), own = n / p, part = own / p, i, j;
    double *w = factors(n, sign);

    transform(x, own, 1, w, p);
    for (j = 0; j < own; j++) {
        const double *f = w + 2 * j * s;
        double re = f[0] * x[2 * j] - f[1] * x[2 * j + 1];
        double im = f[0] * x[2 * j + 1] + f[1] * x[2 * j];
        /* Element j goes to process j mod p: what goes to each is put together. */
        double *to = room + 2 * (j % p * part + j / p);

        to[0] = re;
        to[1] = im;
    }
    for (i = 0; i < p; i++)
        bsp_put(i, room + 2 * i * part, room, s * part * PAIR, part * PAIR);
    bsp_sync();
    for (j = 0; j < part; j++)
        transform(room + 2 * j, p, part, w, own);
    memcpy(x, room, (size_t)own * PAIR);
    free(w);
}

/* How far X[k] is from what the definition says. */
static double wrong_by(const double X[2], int k, int n, const double *w)
{
    double re = 0, im = 0;
    int j;

    for (j = 0; j < n; j++) {
        const double *f = w + 2 * ((int64_t)j * k % n);
        double a = value((uint64_t)(2 * j)), b = value((uint64_t)(2 * j + 1));

        re += a * f[0] - b * f[1];
        im += a * f[1] + b * f[0];
    }
    return fmax(fabs(re - X[0]), fabs(im - X[1]));
}

static void spmd(void)
{
    enum { SAMPLES = 8 };
    int p, s, n, own, i, k[SAMPLES];
    double *x, *room, *sums, samples[2 * SAMPLES] = {0}, start, error = 0;

    bsp_begin(bsp_nprocs());
    end_if_refused();
    p = bsp_nprocs();
    s = bsp_pid();
    n = asked;
    from_first(&n, sizeof n);
    own = n / p;
    x = (double *)memory((size_t)own, PAIR);
    room = (double *)memory((size_t)own, PAIR);
    sums = (double *)memory((size_t)p, REAL);
    bsp_push_reg(room, own * PAIR);
    bsp_push_reg(sums, p * REAL);
    for (i = 0; i < 2 * own; i++)
        x[i] = value((uint64_t)(2 * (i / 2 * p + s) + i % 2));
    bsp_sync();

    start = bsp_time();
    fft(x, n, room, -1);
    start = bsp_time() - start;

    for (i = 0; i < SAMPLES; i++) {
        k[i] = (int)(scattered((uint64_t)i) % (uint64_t)n);
        if (s == 0)
            bsp_get(k[i] % p, room, k[i] / p * PAIR, samples + 2 * i, PAIR);
    }
    bsp_sync();
    /* And back again: there all must be as it was. */
    fft(x, n, room, 1);
    for (i = 0; i < 2 * own; i++)
        error += fabs(x[i] / n - value((uint64_t)(2 * (i / 2 * p + s) + i % 2)));
    error = sum_of_all(error, sums) / n;
    if (s == 0) {
        double *w = factors(n, -1);

        for (i = 0; i < SAMPLES; i++)
            error = fmax(error, wrong_by(samples + 2 * i, k[i], n, w) / n);
        free(w);
        code = report(start, 5.0 * n * log(n) / log(2), error, 1e-14,
                      "Fourier transform of %d elements", n);
    }
    bsp_end();
    free(x);
    free(room);
    free(sums);
}

int main(int argc, char *argv[])
{
    int p;

    bsp_init(spmd, argc, argv);
    asked = 1 << argument(argc, argv, 1, 18, 0, 24, USAGE);
    no_more_arguments(argc, 1, USAGE);
    p = bsp_nprocs();
    if ((p & (p - 1)) != 0)
        refuse("the number of processes must be a power of two", USAGE);
    if ((int64_t)p * p > asked)
        refuse("too few elements: give the square of the number of processes or more", USAGE);
    spmd();
    return code;
}
