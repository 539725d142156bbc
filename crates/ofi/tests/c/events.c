/* Counters of what others write to memory and read of it (FI_RMA_EVENT), bound to an endpoint or
   to a region. */
#include "common.h"
#include <pthread.h>

enum { BYTES = 3 << 20 };

static struct side a, b;
static unsigned char here[BYTES];
static _Alignas(16) unsigned char there[BYTES];
static struct fid_cntr *written, *reads, *both;

static const uint64_t KEY = 7, OTHER = 8;

/* What the counters have counted since the last call. */
static void counted(uint64_t writes, uint64_t gets, uint64_t of_region)
{
    static uint64_t before[3];
    struct fid_cntr *all[] = {written, reads, both};
    uint64_t more[] = {writes, gets, of_region};
    for (int i = 0; i < 3; i++) {
        before[i] += more[i];
        /* The initiator sees its completion before the target has released the last bytes. */
        while (fi_cntr_read(all[i]) < before[i])
            fi_cq_read(a.cq, NULL, 0);
        GIVES(fi_cntr_read(all[i]), before[i]);
    }
}

static void write_to(struct side *from, fi_addr_t to, uint64_t key, size_t bytes)
{
    GIVES(fi_write(from->ep, here, bytes, NULL, to, 0, key, NULL), 0);
    next(from, from == &a ? &b : &a);
}

static void read_of(struct side *from, fi_addr_t to, uint64_t key, size_t bytes)
{
    GIVES(fi_read(from->ep, here, bytes, NULL, to, 0, key, NULL), 0);
    next(from, from == &a ? &b : &a);
}

static void accesses(void)
{
    static const size_t sizes[] = {1, 8, 4096, 70000, 1 << 20, BYTES};
    uint64_t one = 1, found;
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        fill(here, sizes[i], i);
        write_to(&a, a.other, KEY, sizes[i]);
        CHECK(is_filled(there, sizes[i], i));
        counted(1, 0, 0);
        memset(here, 0, sizes[i]);
        read_of(&a, a.other, KEY, sizes[i]);
        CHECK(is_filled(here, sizes[i], i));
        counted(0, 1, 0);
    }
    GIVES(fi_writedata(a.ep, here, 8, NULL, 5, a.other, 0, KEY, NULL), 0);
    next(&a, &b);
    CHECK(next(&b, &a).data == 5);
    counted(1, 0, 0);
    GIVES(fi_atomic(a.ep, &one, 1, NULL, a.other, 0, KEY, FI_UINT64, FI_SUM, NULL), 0);
    next(&a, &b);
    counted(1, 0, 0);
    GIVES(fi_fetch_atomic(a.ep, &one, 1, NULL, &found, NULL, a.other, 0, KEY, FI_UINT64, FI_SUM, NULL), 0);
    next(&a, &b);
    counted(1, 1, 0);
    GIVES(fi_fetch_atomic(a.ep, NULL, 1, NULL, &found, NULL, a.other, 0, KEY, FI_UINT64, FI_ATOMIC_READ, NULL), 0);
    next(&a, &b);
    counted(0, 1, 0);
    /* One's own, and what is refused. */
    write_to(&b, b.self, KEY, 8);
    read_of(&b, b.self, KEY, 8);
    counted(1, 1, 0);
    GIVES(fi_write(a.ep, here, 8, NULL, a.other, BYTES, KEY, NULL), 0);
    CHECK(next_error(&a, &b).err == ERANGE);
    counted(0, 0, 0);
}

/* A counter that is bound to a region in use; others of the domain are not counted by it. */
static void of_region(void)
{
    static unsigned char memory[64];
    uint64_t one = 1, found;
    struct fid_mr *mr;
    GIVES(fi_mr_reg(domain, memory, sizeof memory, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, OTHER, FI_RMA_EVENT, &mr, NULL), 0);
    write_to(&b, b.other, OTHER, 8);
    GIVES(fi_mr_bind(mr, &both->fid, 0), -FI_EBADFLAGS);
    GIVES(fi_mr_bind(mr, &both->fid, FI_SEND | FI_REMOTE_READ), -FI_EBADFLAGS);
    GIVES(fi_mr_bind(mr, &both->fid, FI_REMOTE_WRITE | FI_REMOTE_READ), 0);
    GIVES(fi_mr_enable(mr), 0);
    write_to(&b, b.other, OTHER, 64);
    read_of(&b, b.other, OTHER, 64);
    counted(0, 0, 2);
    write_to(&a, a.other, OTHER, 64);
    counted(1, 0, 1);
    /* It reads and writes, and is one access. */
    GIVES(fi_fetch_atomic(a.ep, &one, 1, NULL, &found, NULL, a.other, 0, OTHER, FI_UINT64, FI_SUM, NULL), 0);
    next(&a, &b);
    counted(1, 1, 1);
    GIVES(fi_close(&both->fid), -FI_EBUSY);
    GIVES(fi_close(&mr->fid), 0);
    counted(0, 0, 0);
}

static void *sleeper(void *at)
{
    GIVES(fi_cntr_wait(written, *(uint64_t *)at, -1), 0);
    return NULL;
}

/* As OpenSHMEM waits: nobody calls anything at the target. */
static void asleep(void)
{
    for (uint64_t i = 0; i < 100; i++) {
        uint64_t at = fi_cntr_read(written) + 1;
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, sleeper, &at) == 0);
        usleep(i % 4 * 200);
        GIVES(fi_inject_write(a.ep, &i, sizeof i, a.other, 0, KEY), 0);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(!memcmp(there, &i, sizeof i));
        counted(1, 0, 0);
    }
}

int main(void)
{
    struct fi_cntr_attr attr = {.wait_obj = FI_WAIT_UNSPEC};
    struct fid_mr *mr;
    alarm(120);
    open_domain(FI_RMA | FI_ATOMIC | FI_RMA_EVENT);
    CHECK(info->caps & FI_RMA_EVENT);
    open_side(&a, FI_WAIT_NONE, 0);
    open_side(&b, FI_WAIT_NONE, 0);
    GIVES(fi_cntr_open(domain, &attr, &written, NULL), 0);
    GIVES(fi_cntr_open(domain, &attr, &reads, NULL), 0);
    GIVES(fi_cntr_open(domain, &attr, &both, NULL), 0);
    GIVES(fi_ep_bind(b.ep, &written->fid, FI_REMOTE_WRITE), 0);
    GIVES(fi_mr_reg(domain, there, sizeof there, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &mr, NULL), 0);
    enable(&a);
    enable(&b);
    introduce(&a, &b);
    introduce(&b, &a);
    /* The region is in use when it is to be counted. */
    read_of(&a, a.other, KEY, 8);
    GIVES(fi_ep_bind(b.ep, &reads->fid, FI_REMOTE_READ), 0);
    accesses();
    of_region();
    asleep();
    GIVES(fi_close(&mr->fid), 0);
    close_side(&a);
    close_side(&b);
    counted(0, 0, 0);
    GIVES(fi_close(&written->fid), 0);
    GIVES(fi_close(&reads->fid), 0);
    GIVES(fi_close(&both->fid), 0);
    close_domain();
    puts("events: all is well");
    return 0;
}
