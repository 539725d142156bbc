/* What `portolan bench` asks of another MPI: barriers, or the first messages.
 * Built by that MPI's own compiler when it is measured. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
    int rank, size, i;
    long count;
    double from;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    count = argc > 1 ? atol(argv[1]) : 0;
    if (count > 0) {
        for (i = 0; i < 16; i++)
            MPI_Barrier(MPI_COMM_WORLD);
        from = now_ns();
        for (i = 0; i < count; i++)
            MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0)
            printf("portolan-bench %.0f\n", now_ns() - from);
    } else if (rank == 0) {
        for (i = 1; i < size; i++)
            MPI_Recv(&count, 1, MPI_LONG, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        printf("portolan-bench %.0f\n", now_ns());
    } else {
        MPI_Send(&count, 1, MPI_LONG, 0, 0, MPI_COMM_WORLD);
    }
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
