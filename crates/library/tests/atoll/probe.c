/* atoll_probe(). */
#include "test.h"

static void none(void)
{
    int i;

    for (i = 0; i < 100; i++)
        GIVES(0, atoll_probe(self, ATOLL_ANY, ATOLL_ANY_TAG));
}

int main(void)
{
    char data[8];

    start();
    meet_quietly(none);
    GIVES(-ENXIO, atoll_probe(self, 2, 1));
    GIVES(-ENXIO, atoll_probe(self, -2, 1));
    GIVES(0, atoll_send(self, other, 1, "abc", 3));
    await(other, 1);
    await(ATOLL_ANY, 1);
    await(other, ATOLL_ANY_TAG);
    GIVES(0, atoll_probe(self, other, 2));
    GIVES(0, atoll_probe(self, self, 1));
    /* It stays until it is received. */
    GIVES(1, atoll_probe(self, other, 1));
    GIVES(3, atoll_recv(self, other, 1, data, sizeof data, NULL));
    GIVES(0, atoll_probe(self, other, 1));
    return stop();
}
