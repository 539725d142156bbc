/* How a program begins and ends: the first word says how. */
#include "test.h"

static int wanted;
/* Others than process 0 may not know what they are to begin with. */
static int expected;

static void spmd(void)
{
    bsp_begin(wanted);
    CHECK(bsp_nprocs() == expected);
    CHECK(bsp_pid() < expected);
    bsp_sync();
    bsp_end();
}

int main(int argc, char *argv[])
{
    const char *how = argc > 1 ? argv[1] : "";

    if (strcmp(how, "init") == 0 || strcmp(how, "later") == 0) {
        expected = strcmp(how, "init") == 0 ? 3 : 2;
        bsp_init(spmd, argc, argv);
        /* Process 0 alone comes here. */
        wanted = expected;
        if (bsp_nprocs() != 3)
            return 3;
        spmd();
        puts("only one");
        return 0;
    }
    wanted = strcmp(how, "fewer") == 0 ? 2 : strcmp(how, "one") == 0 ? 1 : 100;
    expected = wanted < 3 ? wanted : 3;
    if (bsp_nprocs() != 3)
        return 3;
    spmd();
    return 0;
}
