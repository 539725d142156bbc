/* What BSP_CHECK finds: the argument says what. There are three processes. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <unistd.h>

#include "test.h"

static char area[20000], own[20000];

int main(int argc, char **argv)
{
    const char *how = argv[1];
    int me;

    CHECK(argc == 2);
    setenv("BSP_CHECK", strcmp(how, "value") == 0 ? "yes" : "1", 1);
    bsp_begin(bsp_nprocs());
    me = bsp_pid();
    bsp_push_reg(area, sizeof area);
    bsp_sync();
    /* What is right is not told: neighbours, puts that overlap puts, gets that overlap gets. */
    bsp_hpput(0, own, area, me * 5000, 5000);
    bsp_put((me + 1) % 3, own, area, 15000, 10);
    bsp_put((me + 1) % 3, own, area, 15005, 10);
    bsp_hpget(1, area, 16000, own + 6000, 100);
    bsp_hpget(2, area, 16000, own + 6100, 100);
    bsp_sync();
    if (strcmp(how, "puts") == 0) {
        if (me == 1)
            bsp_hpput(0, own, area, 0, 5000);
        if (me == 2)
            bsp_put(0, own, area, 4992, 8);
    }
    if (strcmp(how, "get") == 0 && me > 0) {
        if (me == 1)
            bsp_hpget(0, area, 10, own, 4);
        else
            bsp_put(0, own, area, 12, 8);
    }
    /* The area is read here, and written there. */
    if (strcmp(how, "source") == 0 && me == 0)
        bsp_hpput(1, area, area, 0, 6000);
    if (strcmp(how, "source") == 0 && me == 2)
        bsp_put(0, own, area, 5999, 1);
    if (strcmp(how, "target") == 0 && me == 2) {
        bsp_hpget(0, area, 0, own, 10);
        bsp_get(1, area, 0, own + 5, 10);
    }
    if (strcmp(how, "changed") == 0 && me == 1) {
        bsp_hpput(2, own, area, 0, 100);
        own[99]++;
    }
    if (strcmp(how, "waits") == 0 && me == 1)
        sleep(11);
    bsp_sync();
    bsp_end();
    return 0;
}
