/* atoll_deregister_memory(). */
#include "test.h"

static unsigned char memory[1000], own[1000];

int main(void)
{
    unsigned char *theirs;

    start();
    memset(own, 1, sizeof own);
    GIVES(-ENOENT, atoll_deregister_memory(memory, sizeof memory));
    GIVES(-ENOENT, atoll_deregister_memory(NULL, 0));
    GIVES(0, atoll_allow_rdma(self, ATOLL_RDMA_BOTH));
    GIVES(0, atoll_register_memory(own, sizeof own));
    GIVES(0, atoll_register_memory(memory, sizeof memory));
    GIVES(0, atoll_register_memory(memory, sizeof memory));
    theirs = swap_addresses(memory);
    GIVES(0, atoll_put(self, other, own, theirs, 10));
    meet();
    /* Registered twice; and only what was registered. */
    GIVES(0, atoll_deregister_memory(memory, sizeof memory));
    GIVES(-ENOENT, atoll_deregister_memory(memory, sizeof memory - 1));
    GIVES(-ENOENT, atoll_deregister_memory(memory + 1, sizeof memory - 1));
    meet();
    GIVES(0, atoll_put(self, other, own, theirs + 10, 10));
    meet();
    GIVES(0, atoll_deregister_memory(memory, sizeof memory));
    GIVES(-ENOENT, atoll_deregister_memory(memory, sizeof memory));
    meet();
    /* The other side still has the key, which is wrong now. */
    GIVES(-ENOKEY, atoll_put(self, other, own, theirs + 20, 10));
    GIVES(-ENOKEY, atoll_get(self, other, own, theirs, 10, 0, 0));
    meet();
    CHECK(is_all(memory, 20, 1) && is_all(memory + 20, sizeof memory - 20, 0));
    /* Other bytes are registered there now: the old key is not good for them. */
    GIVES(0, atoll_register_memory(memory, 25));
    meet();
    GIVES(0, atoll_put(self, other, own, theirs + 20, 5));
    GIVES(-ERANGE, atoll_put(self, other, own, theirs + 20, 6));
    GIVES(-ENOKEY, atoll_put(self, other, own, theirs + 25, 1));
    meet();
    CHECK(is_all(memory, 25, 1) && is_all(memory + 25, sizeof memory - 25, 0));
    /* And ours may not be put from any more. */
    GIVES(0, atoll_deregister_memory(own, sizeof own));
    GIVES(-EFAULT, atoll_put(self, other, own, theirs, 1));
    return stop();
}
