/* atoll_recv(), AtollLen, AtollFrom. */
#include "test.h"

static unsigned char data[200000];

int main(void)
{
    atoll_header header;
    struct timespec moment = {0, 30000000};
    int64_t got;

    start();
    CHECK(AtollLen == 0 && AtollFrom == ATOLL_ANY);
    GIVES(0, atoll_connect(self, self));
    /* The oldest that fits, before others. */
    GIVES(0, atoll_send(self, other, 1, "one", 3));
    GIVES(0, atoll_send(self, other, 2, "two", 3));
    GIVES(0, atoll_send(self, other, 2, "three", 5));
    memset(&header, 0xee, sizeof header);
    GIVES(3, atoll_recv(self, other, 2, data, sizeof data, &header));
    CHECK(memcmp(data, "two", 3) == 0);
    CHECK(header.from == other && header.tag == 2 && header.length == 3 && header.descriptor == 0);
    CHECK(AtollLen == 3 && AtollFrom == other);
    GIVES(3, atoll_recv(self, ATOLL_ANY, ATOLL_ANY_TAG, data, sizeof data, &header));
    CHECK(memcmp(data, "one", 3) == 0 && header.tag == 1);
    GIVES(5, atoll_recv(self, other, ATOLL_ANY_TAG, data, sizeof data, &header));
    CHECK(memcmp(data, "three", 5) == 0 && header.tag == 2 && AtollLen == 5);
    /* By source. */
    GIVES(0, atoll_send(self, self, 3, "me", 2));
    GIVES(0, atoll_send(self, other, 3, "you", 3));
    GIVES(3, atoll_recv(self, other, 3, data, sizeof data, NULL));
    GIVES(2, atoll_recv(self, ATOLL_ANY, 3, data, sizeof data, NULL));
    CHECK(memcmp(data, "me", 2) == 0 && AtollFrom == self);
    /* It waits, short or long. */
    if (self == 0) {
        nanosleep(&moment, NULL);
        GIVES(0, atoll_send(self, other, 4, NULL, 0));
        fill(data, sizeof data, 4);
        GIVES(0, atoll_send(self, other, 5, data, sizeof data));
    } else {
        GIVES(sizeof data, atoll_recv(self, 0, 5, data, sizeof data, NULL));
        CHECK(is_filled(data, sizeof data, 4));
        GIVES(0, atoll_recv(self, 0, 4, NULL, 0, NULL));
    }
    meet();
    /* Too long: the beginning is there, and nothing behind it. */
    GIVES(0, atoll_send(self, other, 6, "abcdef", 6));
    memset(data, 0, 8);
    GIVES(-EMSGSIZE, atoll_recv(self, other, 6, data, 4, &header));
    CHECK(memcmp(data, "abcd\0\0", 6) == 0 && header.length == 6 && AtollLen == 6);
    GIVES(0, atoll_probe(self, other, 6));
    GIVES(-EFAULT, atoll_recv(self, other, 6, NULL, 1, NULL));
    GIVES(-EMSGSIZE, atoll_recv(self, other, 6, data, SIZE_MAX, NULL));
    GIVES(-ENXIO, atoll_recv(self, 2, 6, data, 1, NULL));
    GIVES(-ENXIO, atoll_recv(self, -2, 6, data, 1, NULL));
    meet();
    if (self == 1) {
        GIVES(0, atoll_finish(self, ATOLL_WAIT));
        return 0;
    }
    /* Nobody is left who could send. */
    got = atoll_recv(self, ATOLL_ANY, 6, data, 1, NULL);
    GIVES(-EPIPE, got);
    GIVES(-EPIPE, atoll_recv(self, other, 6, data, 1, NULL));
    GIVES(0, atoll_finish(self, ATOLL_WAIT));
    return 0;
}
