/* Gets that read at once: "computes" and a path that is free, or what is refused. */
#define _POSIX_C_SOURCE 200809L
#include <mcbsp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            bsp_abort("%s:%d: %s", __FILE__, __LINE__, #condition);                                \
    } while (0)

enum { BYTES = 100000 };

int main(int argc, char **argv)
{
    static char area[BYTES], got[BYTES];
    const char *how = argv[1];
    unsigned me, p, i;
    int tag = 0;
    struct timespec millisecond = {0, 1000000};
    size_t tag_bytes = sizeof tag;
    void *tags, *payload;

    CHECK(argc == 2);
    bsp_begin(bsp_nprocs());
    me = bsp_pid();
    p = bsp_nprocs();
    for (i = 0; i < BYTES; i++)
        area[i] = (char)(i * 7 + me);
    bsp_push_reg(area, me == 1 ? BYTES : BYTES - 1);
    bsp_sync();
    if (strcmp(how, "beyond") == 0 && me == 1)
        bsp_direct_get(0, area, 99990, got, 10);
    if (strcmp(how, "unknown") == 0)
        bsp_direct_get(0, got, 0, area, 1);
    if (strcmp(how, "nobody") == 0)
        bsp_direct_get(p, area, 0, got, 1);
    if (how[0] == '/') {
        if (me == 0) {
            /* It makes no call until the others have read. */
            while (access(how, F_OK) != 0)
                nanosleep(&millisecond, NULL);
        } else {
            bsp_direct_get(0, area, 3, got, BYTES - 4);
            for (i = 0; i < BYTES - 4; i++)
                CHECK(got[i] == (char)((i + 3) * 7));
            bsp_direct_get(me, area, 5, got, 1);
            CHECK(got[0] == (char)(35 + me));
            bsp_direct_get(0, area, 1u << 30, got, 0);
            if (me == 1)
                fclose(fopen(how, "w"));
        }
    }
    /* Of areas that were pushed in the superstep before, again and again. */
    for (i = 0; i < 50; i++) {
        bsp_push_reg(got, i + 1);
        area[0] = (char)i;
        bsp_sync();
        got[i] = (char)(i + me);
        bsp_sync();
        bsp_direct_get((me + 1) % p, got, i, area, 1);
        CHECK(area[0] == (char)(i + (me + 1) % p));
        bsp_pop_reg(got);
        bsp_sync();
    }
    bsp_set_tagsize(&tag_bytes);
    bsp_sync();
    bsp_hpsend((me + 1) % p, &tag, "hp", 2);
    bsp_sync();
    CHECK(bsp_hpmove(&tags, &payload) == 2 && memcmp(payload, "hp", 2) == 0);
    bsp_end();
    return 0;
}
