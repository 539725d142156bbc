/* atoll_put(). */
#include "test.h"

#define BIG 300000

/* Nothing that is registered lies beside something else that is. */
static unsigned char memory[BIG + 8], own[BIG + 8];

int main(void)
{
    static const size_t lengths[] = {0, 1, 8, 1500, 16385, BIG - 64};
    unsigned char *theirs;
    time_t began;
    size_t i, n;

    start();
    GIVES(0, atoll_connect(self, self));
    GIVES(0, atoll_register_memory(memory, BIG));
    GIVES(0, atoll_register_memory(own, BIG));
    GIVES(0, atoll_allow_rdma(self, ATOLL_RDMA_PUT));
    theirs = swap_addresses(memory);
    for (i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        n = lengths[i];
        memset(memory, 0, BIG);
        meet();
        fill(own, n, (uint32_t)i + (uint32_t)self);
        GIVES(0, atoll_put(self, other, own, theirs + 5 + i, n));
        meet();
        CHECK(is_filled(memory + 5 + i, n, (uint32_t)i + (uint32_t)other));
        CHECK(is_all(memory, 5 + i, 0) && is_all(memory + 5 + i + n, BIG - 5 - i - n, 0));
        meet();
    }
    /* The target's program makes no calls; and ours knows its key no more. */
    memset(memory, 0, BIG);
    GIVES(0, atoll_allow_rdma(self, ATOLL_RDMA_PUT));
    meet();
    if (self == 0) {
        memset(own, 3, BIG);
        GIVES(0, atoll_put(self, other, own, theirs, BIG - 1));
        GIVES(0, atoll_put(self, other, own, theirs + BIG - 1, 1));
    } else {
        await_byte(memory + BIG - 1);
        CHECK(is_all(memory, BIG, 3));
    }
    meet();
    memset(memory, 0, BIG);
    memset(own, 7, BIG);
    meet();
    /* An address outside, on either side; one of nobody; an id of nobody. */
    GIVES(-ERANGE, atoll_put(self, other, own, theirs + BIG - 1, 2));
    GIVES(-ERANGE, atoll_put(self, other, own, theirs + 1, BIG));
    GIVES(-ENOKEY, atoll_put(self, other, own, theirs + BIG, 1));
    GIVES(-ENOKEY, atoll_put(self, other, own, NULL, 1));
    GIVES(-ENOKEY, atoll_put(self, other, own, (void *)UINTPTR_MAX, 1));
    GIVES(-EFAULT, atoll_put(self, other, own + 1, theirs, BIG));
    GIVES(-EFAULT, atoll_put(self, other, NULL, theirs, 1));
    GIVES(-EFAULT, atoll_put(self, other, own, theirs, SIZE_MAX));
    GIVES(-ENXIO, atoll_put(self, 2, own, theirs, 1));
    GIVES(-EBADF, atoll_put(other, other, own, theirs, 1));
    /* Only puts were allowed. */
    GIVES(-EACCES, atoll_get(self, other, own, theirs, 1, 0, 0));
    meet();
    CHECK(is_all(memory, BIG, 0) && is_all(own, BIG, 7));
    /* To itself: not where it would overlap. */
    GIVES(-EINVAL, atoll_put(self, self, memory, memory + 9, 10));
    GIVES(-EINVAL, atoll_put(self, self, memory + 9, memory, 10));
    GIVES(0, atoll_put(self, self, own, memory + 10, 10));
    CHECK(is_all(memory, 10, 0) && is_all(memory + 10, 10, 7) && memory[20] == 0);
    meet();
    if (self == 1) {
        GIVES(0, atoll_finish(self, ATOLL_WAIT));
        return 0;
    }
    /* A dead target. */
    for (began = time(NULL); atoll_put(self, other, own, theirs, 1) != -EPIPE;)
        CHECK(time(NULL) - began < PATIENCE);
    GIVES(0, atoll_finish(self, ATOLL_WAIT));
    return 0;
}
