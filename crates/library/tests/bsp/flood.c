/* More than any buffer on the way holds, from all to all at once: nobody can send all of it
   before it receives. */
#include "test.h"

#define EACH (6 << 20)

static int value(int from, int to, int at)
{
    return (from * 31 + to * 7 + at / 4099) % 256;
}

int main(void)
{
    unsigned char *put, *got, *from, *to;
    int p, me, who, at;

    bsp_begin(bsp_nprocs());
    p = bsp_nprocs();
    me = bsp_pid();
    put = (unsigned char *)malloc((size_t)EACH * (size_t)p);
    got = (unsigned char *)malloc((size_t)EACH * (size_t)p);
    from = (unsigned char *)malloc((size_t)EACH * (size_t)p);
    to = (unsigned char *)malloc((size_t)EACH * (size_t)p);
    CHECK(put && got && from && to);
    bsp_push_reg(to, EACH * p);
    bsp_push_reg(from, EACH * p);
    bsp_sync();
    for (who = 0; who < p; who++) {
        for (at = 0; at < EACH; at++) {
            put[who * EACH + at] = (unsigned char)value(me, who, at);
            from[who * EACH + at] = (unsigned char)value(me, who, at + 1);
        }
        if (who % 2)
            bsp_put(who, put + who * EACH, to, me * EACH, EACH);
        else
            bsp_hpput(who, put + who * EACH, to, me * EACH, EACH);
        bsp_get(who, from, me * EACH, got + who * EACH, EACH);
        bsp_send(who, NULL, put + who * EACH, EACH);
    }
    bsp_sync();
    for (who = 0; who < p; who++) {
        for (at = 0; at < EACH; at++) {
            CHECK(to[who * EACH + at] == value(who, me, at));
            CHECK(got[who * EACH + at] == value(who, me, at + 1));
        }
    }
    bsp_qsize(&who, NULL);
    CHECK(who == p);
    bsp_end();
    free(put);
    free(got);
    free(from);
    free(to);
    return 0;
}
