/* What is refused: the first word says what. There are three processes. */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

static int me;
static char area[16], other[16], large[1 << 20];

static int is(const char *how, const char *name)
{
    return strcmp(how, name) == 0;
}

static void aborts(void)
{
    bsp_abort("second");
}

/* Leaves 2 MB of all that the process may have: too little to find a line. The address
 * sanitizer ends a process by itself then. */
static void take_memory(void)
{
#ifndef __SANITIZE_ADDRESS__
    struct rlimit limit;
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    if (file == NULL || fscanf(file, "%ld", &pages) != 1)
        abort();
    fclose(file);
    limit.rlim_cur = limit.rlim_max = (rlim_t)(pages * sysconf(_SC_PAGESIZE)) + 2000000;
    setrlimit(RLIMIT_AS, &limit);
#endif
}

static void early(const char *how)
{
    char *none = NULL;

    if (is(how, "before"))
        bsp_sync();
    if (is(how, "pid-before"))
        printf("%d\n", bsp_pid());
    if (is(how, "none"))
        bsp_begin(0);
    if (is(how, "minus"))
        bsp_begin(-3);
    if (is(how, "init-null"))
        bsp_init(NULL, 0, &none);
    if (is(how, "transports") && is(getenv("PORTOLAN_RANK"), "1"))
        setenv("BSP_TRANSPORT", "tcp", 1);
}

static void spmd(const char *how)
{
    int number = -1;
    void *none = NULL;

    if (is(how, "twice"))
        bsp_begin(3);
    if (is(how, "init-late"))
        bsp_init(NULL, 0, NULL);
    if (is(how, "abort"))
        bsp_abort("%s %d\n", "that was all:", 7);
    if (is(how, "abort-one") && me == 1)
        bsp_abort("one of them");
    if (is(how, "abort-null"))
        bsp_abort_text(NULL);
    if (is(how, "abort-twice")) {
        atexit(aborts);
        bsp_abort("first");
    }
    if (is(how, "forks") && me == 0) {
        if (fork() == 0) {
            bsp_sync();
            _exit(0);
        }
        wait(NULL);
    }
    if (is(how, "forks-abort") && me == 0) {
        if (fork() == 0)
            bsp_abort("alone");
        wait(NULL);
    }
    if (is(how, "little-memory")) {
        take_memory();
        bsp_put(3, "x", area, 0, 1);
    }
    if (is(how, "hpput-unreadable") && me == 1)
        bsp_hpput(0, (void *)4096, large, 0, sizeof large);
    if (is(how, "hpput-huge"))
        bsp_hpput_64(0, area, area, 0, (size_t)1 << 62);
    if (is(how, "push-huge"))
        bsp_push_reg_64(area, (size_t)-1);
    if (is(how, "push-negative"))
        bsp_push_reg(area, -1);
    if (is(how, "push-null"))
        bsp_push_reg(NULL, 1);
    if (is(how, "pop-unknown"))
        bsp_pop_reg(other);
    if (is(how, "put-unknown"))
        bsp_put(0, "x", other, 0, 1);
    if (is(how, "put-early")) {
        bsp_push_reg(other, sizeof other);
        bsp_put(0, "x", other, 0, 1);
    }
    if (is(how, "put-nobody"))
        bsp_put(3, "x", area, 0, 1);
    if (is(how, "get-nobody"))
        bsp_get(-1, area, 0, other, 1);
    if (is(how, "put-offset"))
        bsp_put(0, "x", area, -1, 1);
    if (is(how, "put-size"))
        bsp_put(0, "x", area, 0, -1);
    if (is(how, "put-null"))
        bsp_put(0, NULL, area, 0, 1);
    if (is(how, "get-null"))
        bsp_get(0, area, 0, NULL, 1);
    if (is(how, "put-beyond") && me == 1)
        bsp_put(2, "xyz", area, 14, 3);
    if (is(how, "get-beyond") && me == 1)
        bsp_get(2, area, 17, other, 1);
    if (is(how, "get-absent")) {
        bsp_push_reg(me == 2 ? NULL : other, me == 2 ? 0 : 8);
        bsp_sync();
        if (me == 0)
            bsp_get(2, other, 0, area, 1);
    }
    if (is(how, "send-nobody"))
        bsp_send(17, NULL, "x", 1);
    if (is(how, "send-size"))
        bsp_send(0, NULL, "x", -1);
    if (is(how, "tagsize"))
        bsp_set_tagsize(&number);
    if (is(how, "move-empty"))
        bsp_move(area, 1);
    if (is(how, "pushes") && me == 2)
        bsp_push_reg(other, 1);
    if (is(how, "pops") && me == 0)
        bsp_pop_reg(area);
    if (is(how, "tagsizes")) {
        number = me == 1 ? 8 : 4;
        bsp_set_tagsize(&number);
    }
    if (is(how, "pops-other")) {
        bsp_push_reg(other, 1);
        bsp_push_reg(me == 1 ? area : other, 1);
        bsp_pop_reg(other);
    }
    if (is(how, "pops-null")) {
        bsp_push_reg(me == 1 ? NULL : other, 0);
        bsp_sync();
        bsp_pop_reg(me == 1 ? NULL : area);
    }
    if (is(how, "null-tagsize"))
        bsp_set_tagsize(NULL);
    if (is(how, "null-qsize"))
        bsp_qsize(NULL, &number);
    if (is(how, "null-status"))
        bsp_get_tag(NULL, area);
    if (is(how, "null-hpmove"))
        bsp_hpmove(NULL, &none);
    if (is(how, "null-move") || is(how, "null-tag")) {
        number = 4;
        bsp_set_tagsize(&number);
        bsp_sync();
        bsp_send(me, "tag", "x", 1);
        bsp_sync();
        if (is(how, "null-tag"))
            bsp_get_tag(&number, NULL);
        bsp_move(NULL, 1);
    }
    if (is(how, "huge-send"))
        bsp_send_64(0, NULL, area, (size_t)1 << 60);
    if (is(how, "huge-put"))
        bsp_put_64(0, area, area, 0, (size_t)1 << 60);
    if (is(how, "handler")) {
        atexit(bsp_sync);
        bsp_move(area, 1);
    }
    if (is(how, "ends") && me == 1) {
        bsp_end();
        return;
    }
    if (is(how, "exits") && me == 1)
        exit(0);
    if (is(how, "dies") && me == 1)
        abort();
    if (is(how, "stops") && me == 1)
        raise(SIGSTOP);
    bsp_sync();
    bsp_end();
    if (is(how, "after"))
        bsp_sync();
    if (is(how, "again"))
        bsp_begin(3);
    if (is(how, "nprocs-after"))
        CHECK(bsp_nprocs() == 3);
}

int main(int argc, char *argv[])
{
    const char *how = argc > 1 ? argv[1] : "";

    early(how);
    bsp_begin(3);
    me = bsp_pid();
    bsp_push_reg(area, sizeof area);
    bsp_push_reg(large, sizeof large);
    bsp_sync();
    spmd(how);
    return 0;
}
