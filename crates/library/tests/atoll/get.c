/* atoll_get(). */
#include "test.h"

#define BIG 300000

/* Nothing that is registered lies beside something else that is. */
static unsigned char memory[BIG + 8], own[BIG + 8];

int main(void)
{
    static const size_t lengths[] = {0, 1, 8, 1500, 16385, BIG - 64};
    unsigned char *theirs;
    size_t i, n;

    start();
    GIVES(0, atoll_connect(self, self));
    fill(memory, BIG, (uint32_t)self);
    GIVES(0, atoll_register_memory(memory, BIG));
    GIVES(0, atoll_register_memory(own, BIG));
    GIVES(0, atoll_allow_rdma(self, ATOLL_RDMA_GET));
    theirs = swap_addresses(memory);
    for (i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        n = lengths[i];
        memset(own, 0, BIG);
        GIVES(0, atoll_get(self, other, own + 3, theirs + i, n, 0, 0));
        CHECK(is_all(own, 3, 0) && is_all(own + 3 + n, BIG - 3 - n, 0));
        while (n-- > 0)
            CHECK(own[3 + n] == byte_of(i + n, (uint32_t)other));
    }
    meet();
    /* The other's program makes no calls while ours gets. */
    memory[BIG - 1] = 0;
    meet();
    GIVES(0, atoll_allow_rdma(self, ATOLL_RDMA_BOTH));
    meet();
    if (self == 0) {
        GIVES(0, atoll_get(self, other, own, theirs, BIG - 1, 11, 12));
        CHECK(is_filled(own, BIG - 1, 1));
        own[0] = 9;
        GIVES(0, atoll_put(self, other, own, theirs + BIG - 1, 1));
    } else {
        await_byte(memory + BIG - 1);
    }
    meet();
    GIVES(0, atoll_allow_rdma(self, ATOLL_RDMA_GET));
    memset(own, 7, BIG);
    meet();
    GIVES(-ERANGE, atoll_get(self, other, own, theirs + BIG - 1, 2, 0, 0));
    GIVES(-ERANGE, atoll_get(self, other, own, theirs + 1, BIG, 0, 0));
    GIVES(-ENOKEY, atoll_get(self, other, own, theirs + BIG, 1, 0, 0));
    GIVES(-ENOKEY, atoll_get(self, other, own, (void *)UINTPTR_MAX, 1, 0, 0));
    GIVES(-EFAULT, atoll_get(self, other, own + 1, theirs, BIG, 0, 0));
    GIVES(-EFAULT, atoll_get(self, other, NULL, theirs, 1, 0, 0));
    GIVES(-ENXIO, atoll_get(self, 2, own, theirs, 1, 0, 0));
    GIVES(-EBADF, atoll_get(other, other, own, theirs, 1, 0, 0));
    GIVES(-EACCES, atoll_put(self, other, own, theirs, 1));
    CHECK(is_all(own, BIG, 7));
    GIVES(-EINVAL, atoll_get(self, self, memory, memory + 9, 10, 0, 0));
    GIVES(0, atoll_get(self, self, own, memory, 10, 0, 0));
    CHECK(is_filled(own, 10, (uint32_t)self) && own[10] == 7);
    return stop();
}
