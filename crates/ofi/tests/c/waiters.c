/* Several threads wait for one object, or for objects of one endpoint. What comes reaches all of
   them, whichever thread's call takes it in. */
#include "common.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>

enum { THREADS = 4, ROUNDS = 1000 };

struct waiter {
    pthread_t thread;
    void (*wait)(uint64_t at);
    uint64_t at;
    atomic_int id;
};

static struct side a, b;
static char bytes[THREADS];
static struct fid_cntr *received, *other, *fetched;
static struct fid_eq *eq;
static struct fid_wait *set;
static uint64_t base;
static struct waiter waiters[THREADS];
static pthread_barrier_t round_ends;
static atomic_ulong begun;

static const uint64_t KEY = 7;

static void *run(void *arg)
{
    struct waiter *it = arg;
    it->id = (int)syscall(SYS_gettid);
    it->wait(it->at);
    return NULL;
}

/* Whether a thread of this process sleeps, or has ended: a descriptor may be readable though
   nothing has come. */
static int sleeps(int id)
{
    char path[64], state = 'S';
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", id);
    FILE *file = fopen(path, "r");
    if (!file)
        return 1;
    CHECK(fscanf(file, "%*d (%*[^)]) %c", &state) != 0);
    fclose(file);
    return state == 'S';
}

/* Starts threads and returns when all of them sleep. */
static void start(int from, int to, void (*wait)(uint64_t))
{
    for (int i = from; i < to; i++) {
        waiters[i].wait = wait;
        waiters[i].at = (uint64_t)i;
        waiters[i].id = 0;
        CHECK(pthread_create(&waiters[i].thread, NULL, run, &waiters[i]) == 0);
    }
    for (int i = from; i < to; i++)
        for (int seen = 0; seen < 3; usleep(500))
            seen = waiters[i].id && sleeps(waiters[i].id) ? seen + 1 : 0;
}

static void join(int from, int to)
{
    for (int i = from; i < to; i++)
        CHECK(pthread_join(waiters[i].thread, NULL) == 0);
}

static void send_some(int count)
{
    for (int i = 0; i < count; i++)
        GIVES(fi_tinject(a.ep, "x", 1, a.other, 1), 0);
}

static void receive_some(int count)
{
    for (int i = 0; i < count; i++)
        GIVES(fi_trecv(b.ep, &bytes[i], 1, NULL, FI_ADDR_UNSPEC, 1, 0, NULL), 0);
}

static void for_entry(uint64_t at)
{
    struct fi_cq_tagged_entry entry;
    (void)at;
    GIVES(fi_cq_sread(b.cq, &entry, 1, NULL, -1), 1);
}

static void for_signal(uint64_t at)
{
    struct fi_cq_tagged_entry entry;
    (void)at;
    GIVES(fi_cq_sread(b.cq, &entry, 1, NULL, -1), -FI_EAGAIN);
}

static void for_count(uint64_t at)
{
    GIVES(fi_cntr_wait(received, base + at + 1, -1), 0);
}

static void for_error(uint64_t at)
{
    (void)at;
    GIVES(fi_cntr_wait(other, 1, -1), -FI_EAVAIL);
}

static void for_event(uint64_t at)
{
    struct fi_eq_entry entry;
    uint32_t event;
    (void)at;
    GIVES(fi_eq_sread(eq, &event, &entry, sizeof entry, -1, 0), sizeof entry);
}

static void for_set(uint64_t at)
{
    (void)at;
    GIVES(fi_wait(set, -1), 0);
}

/* Polls the descriptor of an object itself, whatever others read of it. */
static void for_descriptor(struct fid *it)
{
    struct pollfd fd = {.events = POLLIN};
    GIVES(fi_control(it, FI_GETWAIT, &fd.fd), 0);
    while (fi_trywait(fabric, &it, 1) == -FI_EAGAIN)
        fi_cntr_read(received);
    CHECK(poll(&fd, 1, -1) == 1);
}

static void for_queue_descriptor(uint64_t at)
{
    (void)at;
    for_descriptor(&b.cq->fid);
}

static void for_counter_descriptor(uint64_t at)
{
    (void)at;
    for_descriptor(&received->fid);
}

/* One object, as many threads as there is to come. */
static void alike(void)
{
    struct fi_eq_entry entry = {0};
    receive_some(THREADS);
    start(0, THREADS, for_entry);
    send_some(THREADS);
    join(0, THREADS);

    base = fi_cntr_read(received);
    receive_some(THREADS);
    start(0, THREADS, for_count);
    send_some(THREADS);
    join(0, THREADS);
    for (int i = 0; i < THREADS; i++)
        for_entry(0);

    start(0, THREADS, for_event);
    for (int i = 0; i < THREADS; i++)
        GIVES(fi_eq_write(eq, FI_NOTIFY, &entry, sizeof entry, 0), sizeof entry);
    join(0, THREADS);
}

/* What ends all waits. */
static void all_at_once(void)
{
    start(0, THREADS, for_signal);
    GIVES(fi_cq_signal(b.cq), 0);
    join(0, THREADS);
    start(0, THREADS, for_error);
    GIVES(fi_cntr_adderr(other, 1), 0);
    join(0, THREADS);
    CHECK(fi_cntr_read(other) == 0);
    start(0, THREADS, for_set);
    GIVES(fi_cntr_add(other, 1), 0);
    /* One of them may find it read. */
    CHECK(fi_cntr_read(other) == 1);
    join(0, THREADS);
}

/* Objects of one endpoint: who is up first takes in what the others wait for. */
static void mixed(void)
{
    base = fi_cntr_read(received);
    receive_some(2);
    start(0, 1, for_count);
    start(1, 2, for_entry);
    start(2, 3, for_queue_descriptor);
    start(3, 4, for_counter_descriptor);
    send_some(1);
    /* A thread that never waits takes it in, or one of them. */
    while (fi_cntr_read(received) == base)
        ;
    join(0, 4);
    start(0, 1, for_entry);
    send_some(1);
    join(0, 1);
}

/* Each waits for as many operations as are begun by then: nothing more comes in a round. */
static void in_rounds(uint64_t at)
{
    uint64_t one = 1, found;
    (void)at;
    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&round_ends);
        GIVES(fi_fetch_atomic(a.ep, &one, 1, NULL, &found, NULL, a.other, 0, KEY, FI_UINT64, FI_SUM, NULL), 0);
        GIVES(fi_cntr_wait(fetched, ++begun, -1), 0);
        pthread_barrier_wait(&round_ends);
    }
}

/* One thread polls a counter's descriptor, and another one reads the counter. */
static void read_by_another(void)
{
    struct fid *it = &received->fid;
    base = fi_cntr_read(received);
    while (fi_trywait(fabric, &it, 1) == -FI_EAGAIN)
        fi_cntr_read(received);
    receive_some(1);
    send_some(1);
    while (fi_cntr_read(received) == base)
        ;
    /* Read it is, but not by whoever has asked before. */
    GIVES(fi_trywait(fabric, &it, 1), -FI_EAGAIN);
    for_entry(0);
}

/* What ends within another thread's call rings no bell of a sender's. */
static void ended_by_calls(void)
{
    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry error = {0};
    void *context[1];
    send_some(1);
    GIVES(fi_trecv(b.ep, bytes, 1, NULL, FI_ADDR_UNSPEC, 2, 0, context), 0);
    GIVES(fi_tinject(a.ep, "x", 1, a.other, 2), 0);
    for_entry(0);
    /* The first one is there, and behind it nothing comes. */
    start(0, 1, for_entry);
    receive_some(1);
    join(0, 1);
    GIVES(fi_trecv(b.ep, bytes, 1, NULL, FI_ADDR_UNSPEC, 1, 0, context), 0);
    start(0, 1, for_queue_descriptor);
    GIVES(fi_cancel(&b.ep->fid, context), 0);
    join(0, 1);
    GIVES(fi_cq_read(b.cq, &entry, 1), -FI_EAVAIL);
    GIVES(fi_cq_readerr(b.cq, &error, 0), 1);
    CHECK(error.err == FI_ECANCELED);
    GIVES(fi_cntr_seterr(received, 0), 0);
}

int main(void)
{
    struct fi_cntr_attr attr = {.wait_obj = FI_WAIT_UNSPEC};
    struct fi_eq_attr eq_attr = {.wait_obj = FI_WAIT_UNSPEC, .flags = FI_WRITE};
    struct fi_wait_attr set_attr = {.wait_obj = FI_WAIT_UNSPEC};
    static uint64_t there;
    struct fid_mr *mr;
    /* A thread that misses a wake-up sleeps for ever. */
    alarm(120);
    open_domain(FI_TAGGED | FI_RMA | FI_ATOMIC);
    CHECK(pthread_barrier_init(&round_ends, NULL, THREADS) == 0);
    GIVES(fi_mr_reg(domain, &there, sizeof there, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &mr, NULL), 0);
    open_side(&a, FI_WAIT_NONE, FI_SELECTIVE_COMPLETION);
    open_side(&b, FI_WAIT_FD, 0);
    GIVES(fi_wait_open(fabric, &set_attr, &set), 0);
    GIVES(fi_eq_open(fabric, &eq_attr, &eq, NULL), 0);
    GIVES(fi_cntr_open(domain, &attr, &received, NULL), 0);
    GIVES(fi_cntr_open(domain, &attr, &fetched, NULL), 0);
    attr.wait_obj = FI_WAIT_SET;
    attr.wait_set = set;
    GIVES(fi_cntr_open(domain, &attr, &other, NULL), 0);
    GIVES(fi_ep_bind(b.ep, &received->fid, FI_RECV), 0);
    GIVES(fi_ep_bind(a.ep, &fetched->fid, FI_READ), 0);
    enable(&a);
    enable(&b);
    introduce(&a, &b);
    introduce(&b, &a);
    for (int round = 0; round < 20; round++) {
        alike();
        mixed();
        ended_by_calls();
    }
    read_by_another();
    all_at_once();
    start(0, THREADS, in_rounds);
    join(0, THREADS);
    CHECK(there == THREADS * ROUNDS);
    GIVES(fi_close(&mr->fid), 0);
    close_side(&a);
    close_side(&b);
    GIVES(fi_close(&received->fid), 0);
    GIVES(fi_close(&fetched->fid), 0);
    GIVES(fi_close(&set->fid), -FI_EBUSY);
    GIVES(fi_close(&other->fid), 0);
    GIVES(fi_close(&set->fid), 0);
    GIVES(fi_close(&eq->fid), 0);
    close_domain();
    puts("waiters: all is well");
    return 0;
}
