/* What `portolan bench mpi` measures, in plain MPI. Built by each MPI's own compiler.
 *
 *   PROGRAM WHAT MILLISECONDS BYTES...
 *
 * Process 0 prints a line "portolan-bench VALUE..." with a value for each size. */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    WINDOW_BYTES = 1 << 24, /* under way at once at most */
    WINDOW = 64             /* messages likewise */
};

static int self, processes;
static char *from, *into;

/* Each process has a core, in turn, also where the hosts of a lab share them. */
static void bind_self(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"};
    cpu_set_t allowed, one;
    unsigned i;
    int core, turn;

    for (i = 0; i < sizeof names / sizeof *names; i++) {
        const char *rank = getenv(names[i]);

        if (!rank || sched_getaffinity(0, sizeof allowed, &allowed) < 0)
            continue;
        turn = atoi(rank) % CPU_COUNT(&allowed);
        for (core = 0; turn > 0 || !CPU_ISSET(core, &allowed); core++)
            turn -= CPU_ISSET(core, &allowed) ? 1 : 0;
        CPU_ZERO(&one);
        CPU_SET(core, &one);
        sched_setaffinity(0, sizeof one, &one);
        return;
    }
}

/* ---- Each does it so many times --------------------------------------------------- */

static void pingpong(int bytes, long count)
{
    for (; count > 0 && self < 2; count--) {
        if (self == 0)
            MPI_Send(from, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
        MPI_Recv(into, bytes, MPI_BYTE, 1 - self, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (self == 1)
            MPI_Send(from, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    }
}

static int window_of(int bytes)
{
    int fit = bytes > 0 ? WINDOW_BYTES / bytes : WINDOW;

    return fit < 1 ? 1 : fit > WINDOW ? WINDOW : fit;
}

/* Windows of messages, each answered once. */
static void stream(int bytes, long count)
{
    MPI_Request all[WINDOW];
    int i, window = window_of(bytes);

    for (; count > 0 && self < 2; count--) {
        for (i = 0; i < window; i++)
            if (self == 0)
                MPI_Isend(from, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &all[i]);
            else
                MPI_Irecv(into, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &all[i]);
        MPI_Waitall(window, all, MPI_STATUSES_IGNORE);
        if (self == 0)
            MPI_Recv(into, 1, MPI_BYTE, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(from, 1, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
    }
}

static void allreduce(int bytes, long count)
{
    for (; count > 0; count--)
        MPI_Allreduce(from, into, bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static void alltoall(int bytes, long count)
{
    for (; count > 0; count--)
        MPI_Alltoall(from, bytes, MPI_BYTE, into, bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static void bcast(int bytes, long count)
{
    for (; count > 0; count--)
        MPI_Bcast(into, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
}

/* ---- How it is measured ----------------------------------------------------------- */

typedef void act(int bytes, long count);

/* Seconds of so many, as process 0 sees them. */
static double timed(act *does, int bytes, long count)
{
    double start;

    MPI_Barrier(MPI_COMM_WORLD);
    start = MPI_Wtime();
    does(bytes, count);
    return MPI_Wtime() - start;
}

/* Microseconds of one. */
static double mean_us(act *does, int bytes, double slice)
{
    long count = 4;
    double took;

    do {
        took = timed(does, bytes, count);
        MPI_Bcast(&took, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        if (took * 4 >= slice)
            break;
        count *= took * 32 > slice ? 2 : 8;
    } while (count < 1L << 40);
    count = (long)((double)count * slice / took) + 1;
    return timed(does, bytes, count) / (double)count * 1e6;
}

static void *room(size_t bytes)
{
    void *memory = malloc(bytes);

    if (!memory) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return memset(memory, 0, bytes);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        act *does;
    } all[] = {{"pingpong", pingpong},   {"bandwidth", stream},   {"rate", stream},
               {"allreduce", allreduce}, {"alltoall", alltoall}, {"bcast", bcast}};
    act *does = NULL;
    size_t most = 8;
    int i;

    bind_self();
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &self);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    for (i = 0; i < (int)(sizeof all / sizeof *all); i++)
        if (argc > 1 && !strcmp(argv[1], all[i].name))
            does = all[i].does;
    for (i = 3; i < argc; i++)
        if (strtoul(argv[i], NULL, 10) > most)
            most = strtoul(argv[i], NULL, 10);
    from = (char *)room(most * (size_t)processes);
    into = (char *)room(most * (size_t)processes);
    if (self == 0)
        printf("portolan-bench");
    for (i = 3; does && i < argc; i++) {
        int bytes = atoi(argv[i]);
        double us = mean_us(does, bytes, atof(argv[2]) / 1e3);

        if (does == pingpong)
            us /= 2;
        if (does == stream)
            us /= window_of(bytes);
        if (self == 0)
            printf(" %.9g", us);
    }
    if (self == 0)
        puts("");
    fflush(stdout);
    MPI_Finalize();
    free(from);
    free(into);
    return 0;
}
