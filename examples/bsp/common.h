/* What the programs have in common: arguments, memory, numbers that any process can make. */
#ifndef COMMON_H
#define COMMON_H

#include <bsp.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REAL ((int)sizeof(double))

/* In process 0: its arguments are wrong, and the reason was printed. */
static int is_refused;

static inline void refuse(const char *why, const char *usage)
{
    if (!is_refused)
        fprintf(stderr, "%s\nusage: %s\n", why, usage);
    is_refused = 1;
}

/* The argument number `at`, which lies between two numbers, or what stands for it. */
static inline int argument(int argc, char *argv[], int at, int standard, int least, int most,
                           const char *usage)
{
    char *end, why[128];
    long number;

    if (argc <= at)
        return standard;
    number = strtol(argv[at], &end, 10);
    if (end == argv[at] || *end != '\0' || number < least || number > most) {
        snprintf(why, sizeof why, "%.40s: give a number from %d to %d", argv[at], least, most);
        refuse(why, usage);
        return standard;
    }
    return (int)number;
}

static inline void no_more_arguments(int argc, int most, const char *usage)
{
    if (argc - 1 > most)
        refuse("too many arguments", usage);
}

/* Memory for so many items, zeros. */
static inline void *memory(size_t items, size_t bytes)
{
    void *it = calloc(items ? items : 1, bytes);

    if (!it)
        bsp_abort("there is no memory for %lu items of %lu bytes", (unsigned long)items,
                  (unsigned long)bytes);
    return it;
}

/* All processes get what process 0 has: the others have no arguments, by the standard. */
static inline void from_first(void *what, int bytes)
{
    int i;

    bsp_push_reg(what, bytes);
    bsp_sync();
    if (bsp_pid() == 0)
        for (i = 1; i < bsp_nprocs(); i++)
            bsp_put(i, what, what, 0, bytes);
    bsp_pop_reg(what);
    bsp_sync();
}

/* Ends all processes with exit code 2 if the arguments are wrong. Only process 0 knows, and
 * if it ended alone, others could end with another code before. */
static inline void end_if_refused(void)
{
    int it = is_refused;

    from_first(&it, sizeof it);
    if (it) {
        bsp_end();
        exit(2);
    }
}

/* The sum of a number of each process, in a superstep; `room` is registered, for one of each. */
static inline double sum_of_all(double own, double *room)
{
    double sum = 0;
    int i;

    for (i = 0; i < bsp_nprocs(); i++)
        bsp_put(i, &own, room, bsp_pid() * REAL, REAL);
    bsp_sync();
    for (i = 0; i < bsp_nprocs(); i++)
        sum += room[i];
    return sum;
}

/* Scatters numbers: 64 bits that depend on each bit of `i` (Steele, Lea and Flood, "Fast
 * Splittable Pseudorandom Number Generators", OOPSLA 2014). */
static inline uint64_t scattered(uint64_t i)
{
    i = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    i = (i ^ i >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    i = (i ^ i >> 27) * UINT64_C(0x94d049bb133111eb);
    return i ^ i >> 31;
}

/* The i-th of a row of numbers between -1/2 and 1/2, the same in each process. */
static inline double value(uint64_t i)
{
    return (double)(scattered(i) >> 11) / 9007199254740992.0 - 0.5;
}

/* How many of the numbers below `end` are `first`, first + step, ... */
static inline int below(int end, int first, int step)
{
    return end > first ? (end - first + step - 1) / step : 0;
}

/* The first of n items in process s, where each has a block of them. */
static inline int block(int n, int s)
{
    return (int)((int64_t)n * s / bsp_nprocs());
}

/* How many rows the squarest grid has that the processes form. */
static inline int grid_rows(void)
{
    int rows = (int)sqrt((double)bsp_nprocs());

    while (bsp_nprocs() % rows != 0)
        rows--;
    return rows;
}

/* Prints the line that all programs end with: a text as by printf(), the time, the speed if
 * there is one, and whether the check holds. Returns the program's exit code. */
static inline int report(double seconds, double flops, double error, double bound, const char *format,
                         ...)
{
    /* Also if the error is no number. */
    int is_right = error <= bound;
    va_list arguments;

    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf(": p = %d, %.3g s", bsp_nprocs(), seconds);
    if (flops > 0)
        printf(", %.4g Mflop/s a process", flops / seconds / bsp_nprocs() * 1e-6);
    printf(", error %.2g: %s\n", error, is_right ? "right" : "WRONG");
    fflush(stdout);
    return !is_right;
}

#endif
