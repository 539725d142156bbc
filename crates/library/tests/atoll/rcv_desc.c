/* atoll_rcv_desc(): receipt out of order. */
#include "test.h"

#define COUNT 5

static unsigned char data[300000];

int main(void)
{
    static const size_t lengths[COUNT] = {0, 10, 300000, 1500, 100};
    atoll_header header[COUNT], late;
    int order[COUNT] = {2, 4, 0, 3, 1}, i, k;

    start();
    GIVES(-ENOENT, atoll_rcv_desc(self, 0, data, 1));
    GIVES(-ENOENT, atoll_rcv_desc(self, 1, data, 1));
    GIVES(-ENOENT, atoll_rcv_desc(self, UINT64_MAX, data, 1));
    for (i = 0; i < COUNT; i++) {
        fill(data, lengths[i], (uint32_t)i);
        GIVES(0, atoll_send(self, other, (uint32_t)i, data, lengths[i]));
    }
    for (i = COUNT - 1; i >= 0; i--)
        while (atoll_find_header(self, other, (uint32_t)i, &header[i]) == 0)
            ;
    GIVES(-EFAULT, atoll_rcv_desc(self, header[1].descriptor, NULL, 1));
    for (k = 0; k < COUNT; k++) {
        i = order[k];
        memset(data, 0xee, sizeof data);
        GIVES(lengths[i], atoll_rcv_desc(self, header[i].descriptor, data, sizeof data));
        CHECK(is_filled(data, lengths[i], (uint32_t)i) && AtollLen == lengths[i]);
        CHECK(lengths[i] == sizeof data || data[lengths[i]] == 0xee);
        CHECK(AtollFrom == other);
        /* Once. */
        GIVES(-ENOENT, atoll_rcv_desc(self, header[i].descriptor, data, sizeof data));
        GIVES(0, atoll_probe(self, other, (uint32_t)i));
    }
    meet();
    GIVES(0, atoll_send(self, other, 7, "abcdef", 6));
    while (atoll_find_header(self, other, 7, &late) == 0)
        ;
    for (i = 0; i < COUNT; i++)
        CHECK(late.descriptor != header[i].descriptor);
    memset(data, 0, 8);
    GIVES(-EMSGSIZE, atoll_rcv_desc(self, late.descriptor, data, 4));
    CHECK(memcmp(data, "abcd\0\0", 6) == 0 && AtollLen == 6);
    GIVES(-ENOENT, atoll_rcv_desc(self, late.descriptor, data, 6));
    /* What was received otherwise has no descriptor any more. */
    GIVES(0, atoll_send(self, other, 8, "x", 1));
    while (atoll_find_header(self, other, 8, &late) == 0)
        ;
    GIVES(1, atoll_recv(self, other, 8, data, 1, NULL));
    GIVES(-ENOENT, atoll_rcv_desc(self, late.descriptor, data, 1));
    return stop();
}
