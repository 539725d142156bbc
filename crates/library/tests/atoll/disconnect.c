/* atoll_disconnect(). */
#include "test.h"

int main(void)
{
    static unsigned char memory[8], own[8];
    unsigned char *theirs;
    char byte = 0;

    start();
    GIVES(0, atoll_register_memory(own, sizeof own));
    GIVES(0, atoll_register_memory(memory, sizeof memory));
    GIVES(0, atoll_allow_rdma(self, ATOLL_RDMA_BOTH));
    theirs = swap_addresses(memory);
    GIVES(0, atoll_put(self, other, own, theirs, 8));
    GIVES(-ENXIO, atoll_disconnect(self, 2));
    GIVES(-ENXIO, atoll_disconnect(self, -1));
    GIVES(-ENOTCONN, atoll_disconnect(self, self));
    meet();
    /* What was sent before still arrives; and so does what the other sends. */
    GIVES(0, atoll_send(self, other, 1, "x", 1));
    GIVES(0, atoll_disconnect(self, other));
    GIVES(-ENOTCONN, atoll_disconnect(self, other));
    GIVES(-ENOTCONN, atoll_send(self, other, 1, "y", 1));
    GIVES(-ENOTCONN, atoll_put(self, other, own, theirs, 8));
    GIVES(-ENOTCONN, atoll_get(self, other, own, theirs, 8, 0, 0));
    GIVES(1, atoll_recv(self, other, 1, &byte, 1, NULL));
    CHECK(byte == 'x');
    GIVES(0, atoll_connect(self, other));
    meet();
    GIVES(0, atoll_send(self, other, 1, "z", 1));
    /* The next is this one. */
    GIVES(1, atoll_recv(self, other, 1, &byte, 1, NULL));
    CHECK(byte == 'z');
    return stop();
}
