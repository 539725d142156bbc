/* Calls until there is no memory; the argument says which. */
#define _POSIX_C_SOURCE 200809L
#include <sys/resource.h>

#include "test.h"

static char area[8], own[8];

/* Leaves so many bytes of addresses beyond those that are in use. */
static void leave(unsigned long bytes)
{
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long pages;
    struct rlimit limit;

    CHECK(file && fscanf(file, "%lu", &pages) == 1);
    fclose(file);
    limit.rlim_cur = limit.rlim_max = pages * 4096 + bytes;
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

int main(int argc, char **argv)
{
    static char large[1 << 20];
    const char *how = argv[1];
    long i;

    CHECK(argc == 2);
    bsp_begin(1);
    bsp_push_reg(area, sizeof area);
    bsp_push_reg(large, sizeof large);
    bsp_sync();
    leave(8 << 20);
    for (i = 0; i < 100000000; i++) {
        if (strcmp(how, "put") == 0)
            bsp_put(0, own, area, i % 2, 1 + i % 3);
        if (strcmp(how, "long-put") == 0)
            bsp_put(0, large, large, 0, sizeof large);
        if (strcmp(how, "hpput") == 0)
            bsp_hpput(0, large, large, 0, 4096 + i % 2);
        if (strcmp(how, "get") == 0)
            bsp_get(0, area, i % 2, own, 1);
        if (strcmp(how, "send") == 0)
            bsp_send(0, NULL, own, 0);
        if (strcmp(how, "push") == 0)
            bsp_push_reg(own, 1 + i % 8);
    }
    return 0;
}
