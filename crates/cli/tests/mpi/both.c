/*
 * Two engines in one process: an endpoint of the job that Open MPI's launcher has started, and
 * that of the provider which MPI calls. Each rank passes a number on by both, in turn.
 */
#include <mpi.h>
#include <portolan.h>
#include <stdio.h>

#define CHECK(what)                                            \
    do {                                                       \
        if (!(what)) {                                         \
            fprintf(stderr, "line %d: " #what "\n", __LINE__); \
            MPI_Abort(MPI_COMM_WORLD, 1);                      \
        }                                                      \
    } while (0)

struct inbox {
    uint64_t sum, seen, wanted;
};

static void take(portolan_context *context, const portolan_message *message, void *user)
{
    struct inbox *inbox = user;
    (void)context;
    inbox->sum += portolan_arg(message, 0);
    inbox->seen++;
}

static int has_come(void *user)
{
    const struct inbox *inbox = user;
    return inbox->seen >= inbox->wanted;
}

int main(int argc, char **argv)
{
    portolan_endpoint *endpoint;
    portolan_binding binding;
    portolan_send_options options;
    struct inbox inbox = {0, 0, 0};
    char why[512] = "";
    int rank, size;

    CHECK(MPI_Init(&argc, &argv) == 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (portolan_open(&endpoint, NULL, why, sizeof why) < 0)
        fprintf(stderr, "%s\n", why);
    CHECK(!*why);
    CHECK((int)portolan_rank(endpoint) == rank && (int)portolan_size(endpoint) == size);
    portolan_binding_init(&binding);
    binding.handler = take;
    binding.user = &inbox;
    CHECK(portolan_bind(endpoint, 1, &binding) == 0);
    CHECK(portolan_barrier(endpoint, NULL) == 0);
    int left = (rank + size - 1) % size, right = (rank + 1) % size;
    uint64_t sum = 0;
    for (uint64_t round = 0; round < 1000; round++) {
        uint64_t mine = round * (uint64_t)(rank + 1), theirs = 0;
        portolan_send_options_init(&options);
        options.args = &mine;
        options.arg_count = 1;
        CHECK(portolan_sendx(endpoint, (uint32_t)right, 1, NULL, 0, &options) == 0);
        CHECK(MPI_Sendrecv(&mine, 1, MPI_UINT64_T, right, 5, &theirs, 1, MPI_UINT64_T,
                           MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE) == 0);
        CHECK(theirs == round * (uint64_t)(left + 1));
        sum += theirs;
        inbox.wanted++;
        CHECK(portolan_wait_until(endpoint, has_come, &inbox, -1) == 0);
    }
    /* The neighbour may have been a message ahead before. */
    CHECK(inbox.seen == 1000 && inbox.sum == sum);
    CHECK(portolan_barrier(endpoint, NULL) == 0);
    CHECK(portolan_close(endpoint) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    if (rank == 0)
        puts("both are well");
    return 0;
}
