/* atoll_read_header(). */
#include "test.h"

static void none(void)
{
    atoll_header header;

    memset(&header, 0xee, sizeof header);
    GIVES(0, atoll_read_header(self, &header));
    CHECK(is_all((unsigned char *)&header, sizeof header, 0xee));
}

int main(void)
{
    atoll_header header, again;
    unsigned char data[1000];
    uint32_t i;

    start();
    CHECK(sizeof header == 64);
    GIVES(-EFAULT, atoll_read_header(self, NULL));
    meet_quietly(none);
    /* In the order of arrival, whatever their tags. */
    for (i = 0; i < 5; i++) {
        fill(data, 100 * i, i);
        GIVES(0, atoll_send(self, other, 9 - i, data, 100 * i));
    }
    await(other, 5);
    for (i = 0; i < 5; i++) {
        GIVES(1, atoll_read_header(self, &header));
        CHECK(header.from == other && header.tag == 9 - i && header.length == 100 * i);
        CHECK(header.descriptor != 0);
        /* It stays. */
        GIVES(1, atoll_read_header(self, &again));
        CHECK(memcmp(&header, &again, sizeof header) == 0);
        GIVES(1, atoll_probe(self, header.from, header.tag));
        GIVES(header.length, atoll_recv(self, header.from, header.tag, data, sizeof data, NULL));
        CHECK(is_filled(data, 100 * i, i));
    }
    meet();
    meet_quietly(none);
    return stop();
}
