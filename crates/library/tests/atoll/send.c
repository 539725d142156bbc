/* atoll_send(). */
#include "test.h"

int main(void)
{
    static const size_t lengths[] = {0, 1, 8, 1500, 65537, 200001, ATOLL_MAX_SEND_LENGTH};
    unsigned char *data = (unsigned char *)malloc(ATOLL_MAX_SEND_LENGTH + 1);
    static volatile unsigned char flag;
    static unsigned char one = 1, *theirs;
    size_t i, n, many = 0;
    time_t began;
    int error;

    CHECK(data != NULL);
    start();
    for (i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        n = lengths[i];
        fill(data, n, (uint32_t)i);
        GIVES(0, atoll_send(self, other, 7, n == 0 ? NULL : data, n));
        /* It was copied. */
        memset(data, 0xee, ATOLL_MAX_SEND_LENGTH);
        GIVES(n, atoll_recv(self, other, 7, data, ATOLL_MAX_SEND_LENGTH, NULL));
        CHECK(is_filled(data, n, (uint32_t)i));
        CHECK(data[n] == 0xee || n == ATOLL_MAX_SEND_LENGTH);
    }
    /* In order, none of it received yet. */
    for (i = 0; i < 1000; i++)
        GIVES(0, atoll_send(self, other, 8, &i, sizeof i));
    for (i = 0; i < 1000; i++) {
        GIVES(sizeof n, atoll_recv(self, other, 8, &n, sizeof n, NULL));
        CHECK(n == i);
    }
    GIVES(-EMSGSIZE, atoll_send(self, other, 7, data, ATOLL_MAX_SEND_LENGTH + 1));
    GIVES(-EMSGSIZE, atoll_send(self, other, 7, data, SIZE_MAX));
    GIVES(-EFAULT, atoll_send(self, other, 7, NULL, 1));
    GIVES(-EINVAL, atoll_send(self, other, ATOLL_ANY_TAG, data, 1));
    GIVES(-ENXIO, atoll_send(self, -2, 7, data, 1));
    GIVES(0, atoll_register_memory((void *)&flag, 1));
    GIVES(0, atoll_register_memory(&one, 1));
    GIVES(0, atoll_allow_rdma(self, ATOLL_RDMA_PUT));
    theirs = swap_addresses((void *)&flag);
    /* The send space holds four of the longest. */
    if (self == 0) {
        fill(data, ATOLL_MAX_SEND_LENGTH, 1);
        /* What was sent before may take some of it for a while. */
        for (began = time(NULL); many < 4;) {
            error = atoll_send(self, other, 9, data, ATOLL_MAX_SEND_LENGTH);
            CHECK(error == 0 || (error == -EAGAIN && time(NULL) - began < PATIENCE));
            many += error == 0;
        }
        GIVES(-EAGAIN, atoll_send(self, other, 9, data, ATOLL_MAX_SEND_LENGTH));
        GIVES(-EAGAIN, atoll_send(self, other, 9, NULL, 0));
        GIVES(0, atoll_put(self, other, &one, theirs, 1));
        GIVES(0, atoll_recv(self, other, 1, NULL, 0, NULL));
        for (began = time(NULL); (error = atoll_send(self, other, 9, "again", 5)) == -EAGAIN;)
            CHECK(time(NULL) - began < PATIENCE);
        GIVES(0, error);
    } else {
        for (began = time(NULL); flag == 0; atoll_probe(self, 0, 1))
            CHECK(time(NULL) - began < PATIENCE);
        for (i = 0; i < 4; i++) {
            GIVES(ATOLL_MAX_SEND_LENGTH, atoll_recv(self, 0, 9, data, ATOLL_MAX_SEND_LENGTH, NULL));
            CHECK(is_filled(data, ATOLL_MAX_SEND_LENGTH, 1));
        }
        GIVES(0, atoll_send(self, other, 1, NULL, 0));
        GIVES(5, atoll_recv(self, 0, 9, data, 5, NULL));
        CHECK(memcmp(data, "again", 5) == 0);
    }
    free(data);
    return stop();
}
