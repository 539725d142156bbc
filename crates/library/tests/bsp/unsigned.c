/* The standard's names with unsigned numbers and sizes of 64 bits. */
#define BSP_UNSIGNED
#include "test.h"

int main(void)
{
    size_t tag_bytes = 2, bytes, status;
    unsigned p, me, count;
    char area[64], tag[2];
    void *its_tag, *payload;

    bsp_begin(bsp_nprocs());
    p = bsp_nprocs();
    me = bsp_pid();
    memset(area, '.', sizeof area);
    bsp_push_reg(area, sizeof area);
    bsp_set_tagsize(&tag_bytes);
    bsp_sync();
    bsp_put((me + 1) % p, "abc", area, 61, 3);
    bsp_hpput((me + 1) % p, "d", area, me, 1);
    bsp_send(me, "tg", "payload", 7);
    bsp_send(me, "tg", "payload", 7);
    bsp_sync();
    CHECK(memcmp(area + 60, ".abc", 4) == 0 && area[(me + p - 1) % p] == 'd');
    bsp_qsize(&count, &bytes);
    CHECK(count == 2 && bytes == 14);
    bsp_get_tag(&status, tag);
    CHECK(status == 7 && memcmp(tag, "tg", 2) == 0);
    bsp_move(area, 64);
    CHECK(memcmp(area, "payload", 7) == 0);
    CHECK(bsp_hpmove(&its_tag, &payload) == 7 && memcmp(payload, "payload", 7) == 0);
    CHECK(bsp_hpmove(&its_tag, &payload) == (size_t)-1);
    bsp_get((me + 1) % p, area, 61, area, 3);
    bsp_hpget((me + 1) % p, area, 60, area + 3, 1);
    bsp_pop_reg(area);
    bsp_sync();
    CHECK(memcmp(area, "abc.", 4) == 0);
    bsp_end();
    return 0;
}
