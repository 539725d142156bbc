/* How a program hears of ends: selective completion, counters, descriptors, wait and poll sets,
   event queues. */
#include "common.h"
#include <pthread.h>

static struct side a, b;
static char byte[8];

static void send_one(struct fid_ep *ep, fi_addr_t to)
{
    GIVES(fi_tinject(ep, "x", 1, to, 1), 0);
}

static void receive_one(void *context)
{
    GIVES(fi_trecv(b.ep, byte, 1, NULL, FI_ADDR_UNSPEC, 1, 0, context), 0);
}

/* Ends that are not asked for are not told, but for bad ones. */
static void selective(void)
{
    struct iovec iov = {byte, 1};
    struct fi_msg_tagged msg = {.msg_iov = &iov, .iov_count = 1, .addr = a.other, .tag = 1, .context = &msg};
    struct fi_cq_tagged_entry e;
    receive_one(&iov);
    GIVES(fi_tsend(a.ep, byte, 1, NULL, a.other, 1, &iov), 0);
    CHECK(next(&b, &a).op_context == &iov);
    receive_one(&iov);
    GIVES(fi_tsendmsg(a.ep, &msg, FI_COMPLETION), 0);
    CHECK(next(&a, &b).op_context == &msg);
    CHECK(next(&b, &a).op_context == &iov);
    GIVES(fi_cq_read(a.cq, &e, 1), -FI_EAGAIN);
    GIVES(fi_trecv(a.ep, byte, 1, NULL, FI_ADDR_UNSPEC, 1, 0, &iov), 0);
    GIVES(fi_cancel(&a.ep->fid, &iov), 0);
    CHECK(next_error(&a, &b).err == FI_ECANCELED);
}

static void counters(struct fid_cntr *sent, struct fid_cntr *received)
{
    struct fi_cq_tagged_entry e;
    uint64_t before = fi_cntr_read(received), sends = fi_cntr_read(sent);
    for (int i = 0; i < 10; i++) {
        receive_one(&e);
        send_one(a.ep, a.other);
    }
    GIVES(fi_cntr_wait(received, before + 10, -1), 0);
    GIVES(fi_cntr_wait(sent, sends + 10, -1), 0);
    CHECK(fi_cntr_read(sent) == sends + 10 && fi_cntr_readerr(received) == 0);
    GIVES(fi_cntr_wait(received, before + 11, 1), -FI_ETIMEDOUT);
    GIVES(fi_cntr_set(received, 5), 0);
    GIVES(fi_cntr_add(received, 2), 0);
    CHECK(fi_cntr_read(received) == 7);
    receive_one(&e);
    GIVES(fi_cancel(&b.ep->fid, &e), 0);
    GIVES(fi_cntr_wait(received, 8, -1), -FI_EAVAIL);
    CHECK(fi_cntr_readerr(received) == 1);
    GIVES(fi_cntr_adderr(received, 2), 0);
    CHECK(fi_cntr_readerr(received) == 3);
    GIVES(fi_cntr_seterr(received, 0), 0);
    CHECK(fi_cntr_readerr(received) == 0 && fi_cntr_read(received) == 7);
    for (int i = 0; i < 10; i++)
        CHECK(next(&b, &a).op_context == &e);
    CHECK(next_error(&b, &a).err == FI_ECANCELED);
}

/* Sleeps on the descriptor of a queue, as programs with an event loop of their own do. */
static void descriptor(void)
{
    struct fi_cq_tagged_entry e;
    struct fid *fids[] = {&b.cq->fid};
    struct pollfd fd = {.events = POLLIN};
    GIVES(fi_control(&b.cq->fid, FI_GETWAIT, &fd.fd), 0);
    for (int i = 0; i < 20; i++) {
        ssize_t n;
        receive_one(&e);
        send_one(a.ep, a.other);
        while ((n = fi_cq_read(b.cq, &e, 1)) == -FI_EAGAIN)
            if (fi_trywait(fabric, fids, 1) == 0)
                CHECK(poll(&fd, 1, -1) == 1);
        GIVES(n, 1);
        receive_one(&e);
        send_one(a.ep, a.other);
        GIVES(fi_cq_sread(b.cq, &e, 1, NULL, -1), 1);
    }
    GIVES(fi_cq_sread(b.cq, &e, 1, NULL, 1), -FI_EAGAIN);
}

static void *signals(void *unused)
{
    GIVES(fi_cq_signal(b.cq), 0);
    return unused;
}

static void signalled(void)
{
    struct fi_cq_tagged_entry e;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, signals, NULL) == 0);
    GIVES(fi_cq_sread(b.cq, &e, 1, NULL, -1), -FI_EAGAIN);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void sets(void)
{
    struct fi_poll_attr poll_attr = {0};
    struct fi_cq_tagged_entry e;
    struct fid_poll *set;
    void *context[4];
    int n;
    GIVES(fi_poll_open(domain, &poll_attr, &set), 0);
    b.cq->fid.context = &b;
    GIVES(fi_poll_add(set, &b.cq->fid, 0), 0);
    GIVES(fi_poll_add(set, &b.ep->fid, 0), -FI_EINVAL);
    GIVES(fi_poll(set, context, 4), 0);
    receive_one(&e);
    send_one(a.ep, a.other);
    while ((n = fi_poll(set, context, 4)) == 0)
        ;
    CHECK(n == 1 && context[0] == &b);
    CHECK(next(&b, &a).op_context == &e);
    GIVES(fi_close(&b.cq->fid), -FI_EBUSY);
    GIVES(fi_poll_del(set, &b.cq->fid, 0), 0);
    GIVES(fi_poll_del(set, &b.cq->fid, 0), -FI_EINVAL);
    GIVES(fi_close(&set->fid), 0);
}

/* A queue that is waited for in a set. */
static void wait_set(void)
{
    struct fi_wait_attr attr = {.wait_obj = FI_WAIT_UNSPEC};
    struct fi_eq_attr eq_attr = {.wait_obj = FI_WAIT_SET, .flags = FI_WRITE};
    struct fi_eq_entry entry = {.data = 42}, read;
    struct fid_wait *set;
    struct fid_eq *eq;
    uint32_t event;
    GIVES(fi_wait_open(fabric, &attr, &set), 0);
    eq_attr.wait_set = set;
    GIVES(fi_eq_open(fabric, &eq_attr, &eq, NULL), 0);
    GIVES(fi_wait(set, 1), -FI_ETIMEDOUT);
    GIVES(fi_eq_read(eq, &event, &read, sizeof read, 0), -FI_EAGAIN);
    GIVES(fi_eq_write(eq, FI_NOTIFY, &entry, sizeof entry, 0), sizeof entry);
    GIVES(fi_wait(set, -1), 0);
    GIVES(fi_eq_read(eq, &event, &read, 1, 0), -FI_ETOOSMALL);
    GIVES(fi_eq_sread(eq, &event, &read, sizeof read, -1, FI_PEEK), sizeof read);
    GIVES(fi_eq_sread(eq, &event, &read, sizeof read, -1, 0), sizeof read);
    CHECK(event == FI_NOTIFY && read.data == 42);
    GIVES(fi_eq_sread(eq, &event, &read, sizeof read, 1, 0), -FI_EAGAIN);
    GIVES(fi_close(&set->fid), -FI_EBUSY);
    GIVES(fi_close(&eq->fid), 0);
    GIVES(fi_close(&set->fid), 0);
}

int main(void)
{
    struct fi_cntr_attr attr = {.wait_obj = FI_WAIT_UNSPEC};
    struct fid_cntr *sent, *received;
    open_domain(FI_TAGGED);
    open_side(&a, FI_WAIT_NONE, FI_SELECTIVE_COMPLETION);
    open_side(&b, FI_WAIT_FD, 0);
    GIVES(fi_cntr_open(domain, &attr, &sent, NULL), 0);
    GIVES(fi_cntr_open(domain, &attr, &received, NULL), 0);
    GIVES(fi_ep_bind(a.ep, &sent->fid, FI_SEND), 0);
    GIVES(fi_ep_bind(b.ep, &received->fid, FI_RECV), 0);
    enable(&a);
    enable(&b);
    introduce(&a, &b);
    introduce(&b, &a);
    selective();
    counters(sent, received);
    descriptor();
    signalled();
    sets();
    wait_set();
    GIVES(fi_close(&sent->fid), -FI_EBUSY);
    close_side(&a);
    CHECK(fi_cntr_read(sent) > 0);
    close_side(&b);
    GIVES(fi_close(&sent->fid), 0);
    GIVES(fi_close(&received->fid), 0);
    close_domain();
    puts("waiting: all is well");
    return 0;
}
