/* atoll_connect(). */
#include "test.h"

int main(void)
{
    time_t began;
    int error;
    char byte = 0;

    start_alone();
    GIVES(-ENOTCONN, atoll_send(self, other, 1, "x", 1));
    GIVES(-ENOTCONN, atoll_put(self, other, &byte, &byte, 1));
    GIVES(-ENOTCONN, atoll_get(self, other, &byte, &byte, 1, 0, 0));
    GIVES(-ENXIO, atoll_connect(self, 2));
    GIVES(-ENXIO, atoll_connect(self, -1));
    GIVES(-ENXIO, atoll_connect(self, INT32_MIN));
    GIVES(-ENXIO, atoll_send(self, 2, 1, "x", 1));
    GIVES(0, atoll_connect(self, other));
    GIVES(0, atoll_connect(self, other));
    GIVES(0, atoll_send(self, other, 1, self == 0 ? "a" : "b", 1));
    GIVES(1, atoll_recv(self, other, 1, &byte, 1, NULL));
    CHECK(byte == (self == 0 ? 'b' : 'a'));
    /* To itself it takes one too. */
    GIVES(-ENOTCONN, atoll_send(self, self, 2, "s", 1));
    GIVES(0, atoll_connect(self, self));
    GIVES(0, atoll_send(self, self, 2, "s", 1));
    GIVES(1, atoll_recv(self, self, 2, &byte, 1, NULL));
    CHECK(byte == 's');
    meet();
    if (self == 1) {
        GIVES(0, atoll_finish(self, ATOLL_WAIT));
        return 0;
    }
    for (began = time(NULL); (error = atoll_connect(self, other)) == 0;) {
        CHECK(time(NULL) - began < PATIENCE);
        atoll_probe(self, ATOLL_ANY, ATOLL_ANY_TAG);
    }
    GIVES(-EPIPE, error);
    GIVES(-EPIPE, atoll_send(self, other, 1, "x", 1));
    GIVES(0, atoll_finish(self, ATOLL_WAIT));
    return 0;
}
