/* atoll_find_header(). */
#include "test.h"

static void none(void)
{
    atoll_header header;

    memset(&header, 0xee, sizeof header);
    GIVES(0, atoll_find_header(self, ATOLL_ANY, ATOLL_ANY_TAG, &header));
    CHECK(is_all((unsigned char *)&header, sizeof header, 0xee));
}

int main(void)
{
    atoll_header header, first;
    uint32_t i, got;

    start();
    GIVES(0, atoll_connect(self, self));
    GIVES(-EFAULT, atoll_find_header(self, other, 1, NULL));
    GIVES(-ENXIO, atoll_find_header(self, 2, 1, &header));
    meet_quietly(none);
    for (i = 0; i < 6; i++)
        GIVES(0, atoll_send(self, other, i / 2, &i, sizeof i));
    GIVES(0, atoll_send(self, self, 2, &i, sizeof i));
    while (atoll_find_header(self, other, 2, &header) == 0)
        ;
    CHECK(header.from == other && header.tag == 2 && header.length == sizeof i);
    GIVES(0, atoll_find_header(self, other, 3, &first));
    GIVES(1, atoll_find_header(self, ATOLL_ANY, 0, &first));
    CHECK(first.tag == 0 && first.descriptor != header.descriptor);
    /* What was passed over is found by all other calls, in its order, and before
     * what has come since. */
    GIVES(1, atoll_read_header(self, &first));
    CHECK(first.tag == 0 || first.from == self);
    GIVES(1, atoll_probe(self, other, 1));
    GIVES(4, atoll_recv(self, other, 1, &got, sizeof got, NULL));
    CHECK(got == 2);
    GIVES(4, atoll_recv(self, other, ATOLL_ANY_TAG, &got, sizeof got, NULL));
    CHECK(got == 0);
    GIVES(4, atoll_recv(self, other, ATOLL_ANY_TAG, &got, sizeof got, NULL));
    CHECK(got == 1);
    GIVES(4, atoll_recv(self, other, ATOLL_ANY_TAG, &got, sizeof got, NULL));
    CHECK(got == 3);
    GIVES(1, atoll_find_header(self, self, ATOLL_ANY_TAG, &header));
    CHECK(header.from == self && header.tag == 2);
    GIVES(4, atoll_recv(self, self, 2, &got, sizeof got, NULL));
    CHECK(got == 6);
    for (i = 4; i < 6; i++) {
        GIVES(4, atoll_recv(self, other, 2, &got, sizeof got, NULL));
        CHECK(got == i);
    }
    GIVES(0, atoll_find_header(self, ATOLL_ANY, 2, &header));
    return stop();
}
