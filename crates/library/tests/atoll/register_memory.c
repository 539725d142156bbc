/* atoll_register_memory(). */
#include "test.h"

/* Nothing that is registered lies beside something else that is. */
static unsigned char memory[100010], own[100010];
#define BYTES 100000

int main(void)
{
    unsigned char *theirs;

    start();
    GIVES(-EFAULT, atoll_register_memory(NULL, 1));
    GIVES(-EINVAL, atoll_register_memory(memory, 0));
    GIVES(-EINVAL, atoll_register_memory(memory, SIZE_MAX));
    GIVES(0, atoll_allow_rdma(self, ATOLL_RDMA_BOTH));
    theirs = swap_addresses(memory);
    /* Neither side has registered anything, then one, then both. */
    GIVES(-EFAULT, atoll_put(self, other, own, theirs, 10));
    GIVES(-EFAULT, atoll_get(self, other, own, theirs, 10, 0, 0));
    GIVES(0, atoll_register_memory(own, BYTES));
    GIVES(-ENOKEY, atoll_put(self, other, own, theirs, 10));
    GIVES(-ENOKEY, atoll_get(self, other, own, theirs, 10, 0, 0));
    meet();
    GIVES(0, atoll_register_memory(memory, 50000));
    meet();
    fill(own, BYTES, 1);
    GIVES(0, atoll_put(self, other, own, theirs, 50000));
    GIVES(-ERANGE, atoll_put(self, other, own, theirs, 50001));
    GIVES(-ENOKEY, atoll_put(self, other, own, theirs + 50000, 1));
    meet();
    CHECK(is_filled(memory, 50000, 1) && is_all(memory + 50000, 50000, 0));
    /* What overlaps it may be accessed as well; across both it lies in none. */
    GIVES(0, atoll_register_memory(memory + 40000, 60000));
    meet();
    fill(own, BYTES, 2);
    GIVES(0, atoll_put(self, other, own, theirs + 45000, 55000));
    GIVES(-ERANGE, atoll_put(self, other, own, theirs + 30000, 70000));
    meet();
    CHECK(is_filled(memory + 45000, 55000, 2) && is_filled(memory, 45000, 1));
    GIVES(0, atoll_get(self, other, own, theirs + 45000, 5000, 0, 0));
    /* Of what is ours all must be registered too, by its bytes. */
    GIVES(-EFAULT, atoll_put(self, other, own + 1, theirs, BYTES));
    GIVES(-EFAULT, atoll_get(self, other, own + BYTES, theirs, 1, 0, 0));
    GIVES(-EFAULT, atoll_put(self, other, own, theirs, BYTES + 1));
    GIVES(-EFAULT, atoll_put(self, other, own, theirs, 3 * BYTES));
    /* Longer than anything that is registered there. */
    meet();
    GIVES(0, atoll_deregister_memory(own, BYTES));
    GIVES(0, atoll_deregister_memory(memory, 50000));
    GIVES(0, atoll_deregister_memory(memory + 40000, 60000));
    if (self == 0)
        GIVES(0, atoll_register_memory(own, BYTES));
    else
        GIVES(0, atoll_register_memory(memory, 10));
    meet();
    if (self == 0) {
        GIVES(-ERANGE, atoll_put(self, other, own, theirs, BYTES));
        GIVES(-ENOKEY, atoll_put(self, other, own, theirs + 10, BYTES));
        GIVES(0, atoll_put(self, other, own, theirs, 10));
    }
    return stop();
}
