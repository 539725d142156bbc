/* Writes a profile to the folder that it is given, of supersteps whose volumes are known. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>

#include "test.h"

enum { LONG = 10000 };

int main(int argc, char **argv)
{
    static char area[LONG], bytes[LONG];
    int me, p;

    CHECK(argc == 2);
    setenv("BSP_PROFILE", argv[1], 1);
    bsp_begin(bsp_nprocs());
    me = bsp_pid();
    p = bsp_nprocs();
    /* Nothing has been measured, or what was is no nonsense. */
    CHECK(bsp_s() >= 0 && bsp_l() >= 0 && bsp_g() >= 0);
    CHECK(bsp_dtime() >= 0 && bsp_dtime() <= bsp_time());
    bsp_push_reg(area, LONG);
    bsp_sync();
    /* 1: a short and a long put to the next. */
    bsp_put((me + 1) % p, bytes, area, 0, 8);
    bsp_put((me + 1) % p, bytes, area, 0, LONG);
    bsp_sync();
    /* 2: a get from process 0; to itself it does not travel. */
    bsp_get(0, area, 0, bytes, 100);
    bsp_sync();
    /* 3: nothing; 4 is bsp_end. */
    bsp_sync();
    if (me == 1 && getenv("REMOVE"))
        CHECK(remove(getenv("REMOVE")) == 0);
    bsp_end();
    return 0;
}
