/* atoll_allow_rdma(). */
#include "test.h"

static unsigned char memory[100], own[100];

/* What the other side lets us do, and nothing else is done. */
static void may(unsigned char *theirs, int get, int put)
{
    memset(memory, 1, sizeof memory);
    memset(own, 2, sizeof own);
    meet();
    GIVES(get ? 0 : -EACCES, atoll_get(self, other, own, theirs, 10, 0, 0));
    CHECK(is_all(own, 10, get ? 1 : 2) && is_all(own + 10, 90, 2));
    meet();
    GIVES(put ? 0 : -EACCES, atoll_put(self, other, own + 10, theirs + 10, 10));
    meet();
    CHECK(is_all(memory + 10, 10, put ? 2 : 1) && is_all(memory + 20, 80, 1));
    meet();
}

int main(void)
{
    static const int order[] = {ATOLL_RDMA_GET, ATOLL_RDMA_PUT,  ATOLL_RDMA_OFF, ATOLL_RDMA_BOTH,
                                ATOLL_RDMA_PUT, ATOLL_RDMA_BOTH, ATOLL_RDMA_GET, ATOLL_RDMA_OFF};
    static unsigned char late[10];
    unsigned char *theirs;
    size_t i;

    start();
    GIVES(-EINVAL, atoll_allow_rdma(self, 4));
    GIVES(-EINVAL, atoll_allow_rdma(self, -1));
    /* To ourselves only. */
    GIVES(-EBADF, atoll_allow_rdma(other, ATOLL_RDMA_BOTH));
    GIVES(0, atoll_register_memory(memory, sizeof memory));
    GIVES(0, atoll_register_memory(own, sizeof own));
    theirs = swap_addresses(memory);
    /* Off at first, and with it nothing is told of what is registered. */
    may(theirs, 0, 0);
    GIVES(-EACCES, atoll_put(self, other, own, theirs + 100000, 1));
    for (i = 0; i < sizeof order / sizeof *order; i++) {
        meet();
        GIVES(0, atoll_allow_rdma(self, order[i]));
        meet();
        may(theirs, (order[i] & ATOLL_RDMA_GET) != 0, (order[i] & ATOLL_RDMA_PUT) != 0);
    }
    /* What is registered later is allowed alike. */
    meet();
    GIVES(0, atoll_allow_rdma(self, ATOLL_RDMA_PUT));
    theirs = swap_addresses(late);
    GIVES(-ENOKEY, atoll_put(self, other, own, theirs, 10));
    meet();
    GIVES(0, atoll_register_memory(late, sizeof late));
    meet();
    GIVES(0, atoll_put(self, other, own, theirs, 10));
    GIVES(-EACCES, atoll_get(self, other, own, theirs, 10, 0, 0));
    meet();
    CHECK(is_all(late, 10, own[0]));
    return stop();
}
