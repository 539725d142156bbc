/* Messages, tagged and not: every call, and what completions say. */
#include "common.h"

static struct side a, b;
static unsigned char out[1 << 20], in[1 << 20];

static void tagged(void)
{
    static const size_t sizes[] = {0, 1, 64, 4096, 70000, sizeof out};
    struct fi_cq_tagged_entry e;
    fi_addr_t from = 0;
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t n = sizes[i];
        int late = i % 2;
        fill(out, n, i);
        memset(in, 0, n);
        if (!late)
            GIVES(fi_trecv(b.ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, 7, 0, &in), 0);
        GIVES(fi_tsend(a.ep, out, n, NULL, a.other, 7, &out), 0);
        if (late)
            GIVES(fi_trecv(b.ep, in, sizeof in, NULL, b.other, 7, 0, &in), 0);
        e = next_from(&b, &a, &from);
        CHECK(e.op_context == &in && e.flags == (FI_TAGGED | FI_RECV));
        CHECK(e.len == n && e.tag == 7 && from == b.other && is_filled(in, n, i));
        e = next(&a, &b);
        CHECK(e.op_context == &out && e.flags == (FI_TAGGED | FI_SEND));
    }
    /* Bits that do not count, and the order among what fits. */
    GIVES(fi_tinject(a.ep, "one", 3, a.other, 0x101), 0);
    GIVES(fi_tinjectdata(a.ep, "two", 3, 0x123456789abcdef0, a.other, 0x102), 0);
    GIVES(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 0x100, 0xff, &in), 0);
    e = next(&b, &a);
    CHECK(e.tag == 0x101 && !(e.flags & FI_REMOTE_CQ_DATA) && !memcmp(in, "one", 3));
    GIVES(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 0x100, 0xff, &in), 0);
    e = next(&b, &a);
    CHECK(e.tag == 0x102 && (e.flags & FI_REMOTE_CQ_DATA) && e.data == 0x123456789abcdef0);
    /* To itself. */
    GIVES(fi_tsenddata(a.ep, "self", 4, NULL, 5, a.self, 9, NULL), 0);
    CHECK(next(&a, &b).flags & FI_SEND);
    GIVES(fi_trecv(a.ep, in, 8, NULL, a.self, 9, 0, NULL), 0);
    e = next(&a, &b);
    CHECK((e.flags & FI_RECV) && e.data == 5 && e.len == 4);
}

static void untagged(void)
{
    struct fi_cq_tagged_entry e;
    struct iovec from[] = {{out, 3}, {NULL, 0}, {out + 100, 5000}}, into[] = {{in, 2}, {in + 10, 6000}};
    struct fi_msg msg = {.msg_iov = from, .iov_count = 3, .addr = a.other, .context = from, .data = 11};
    fill(out, sizeof out, 1);
    /* A message without a tag does not meet a receive with one. */
    GIVES(fi_trecv(b.ep, in + 9000, 8, NULL, FI_ADDR_UNSPEC, 0, ~(uint64_t)0, &e), 0);
    GIVES(fi_sendmsg(a.ep, &msg, FI_REMOTE_CQ_DATA), 0);
    GIVES(fi_recvv(b.ep, into, NULL, 2, FI_ADDR_UNSPEC, into), 0);
    e = next(&b, &a);
    CHECK(e.op_context == into && e.flags == (FI_MSG | FI_RECV | FI_REMOTE_CQ_DATA));
    CHECK(e.len == 5003 && e.data == 11);
    CHECK(!memcmp(in, out, 2) && in[10] == out[2] && !memcmp(in + 11, out + 100, 5000));
    CHECK(next(&a, &b).op_context == from);
    GIVES(fi_tinject(a.ep, NULL, 0, a.other, 1), 0);
    CHECK(next(&b, &a).op_context == &e);
    /* Injected from pieces, which are the program's again at once. */
    from[2].iov_len = 50;
    msg.addr = b.other;
    GIVES(fi_recv(a.ep, in, 100, NULL, FI_ADDR_UNSPEC, &msg), 0);
    GIVES(fi_sendmsg(b.ep, &msg, FI_INJECT | FI_COMPLETION), 0);
    memset(out, 0, 200);
    CHECK(next(&b, &a).op_context == from);
    CHECK(next(&a, &b).len == 53);
    fill(out, 200, 1);
    CHECK(!memcmp(in, out, 3) && !memcmp(in + 3, out + 100, 50));
    GIVES(fi_recvmsg(a.ep, &(struct fi_msg){.msg_iov = into, .iov_count = 1, .addr = FI_ADDR_UNSPEC}, 0), 0);
    GIVES(fi_senddata(b.ep, out, 2, NULL, 3, b.other, NULL), 0);
    CHECK(next(&a, &b).data == 3);
    CHECK(next(&b, &a).flags == (FI_MSG | FI_SEND));
    GIVES(fi_recv(a.ep, in, 1, NULL, FI_ADDR_UNSPEC, NULL), 0);
    GIVES(fi_injectdata(b.ep, "x", 1, 4, b.other), 0);
    CHECK(next(&a, &b).data == 4 && *in == 'x');
    GIVES(fi_recv(a.ep, in, 1, NULL, FI_ADDR_UNSPEC, NULL), 0);
    GIVES(fi_inject(b.ep, "y", 1, b.other), 0);
    CHECK(!(next(&a, &b).flags & FI_REMOTE_CQ_DATA) && *in == 'y');
    /* Sent when it has been matched. */
    msg.addr = a.other;
    GIVES(fi_sendmsg(a.ep, &msg, FI_DELIVERY_COMPLETE), 0);
    for (int i = 0; i < 1000; i++) {
        GIVES(fi_cq_read(a.cq, &e, 1), -FI_EAGAIN);
        GIVES(fi_cq_read(b.cq, &e, 1), -FI_EAGAIN);
    }
    GIVES(fi_recv(b.ep, in, 100, NULL, FI_ADDR_UNSPEC, NULL), 0);
    CHECK(next(&b, &a).len == 53);
    CHECK(next(&a, &b).op_context == from);
}

static void probes(void)
{
    struct fi_context one, two;
    struct iovec into = {in, 100};
    struct fi_msg_tagged msg = {.msg_iov = &into, .iov_count = 1, .addr = FI_ADDR_UNSPEC,
                                .tag = 20, .ignore = 1, .context = &one};
    struct fi_cq_err_entry error;
    struct fi_cq_tagged_entry e;
    GIVES(fi_trecvmsg(b.ep, &msg, FI_PEEK), 0);
    error = next_error(&b, &a);
    CHECK(error.err == FI_ENOMSG && error.op_context == &one);
    GIVES(fi_tinject(a.ep, "first", 5, a.other, 20), 0);
    GIVES(fi_tinject(a.ep, "second", 6, a.other, 21), 0);
    GIVES(fi_tinject(a.ep, "third", 5, a.other, 20), 0);
    /* Messages of one peer keep their order: when this one has come, the others have. */
    GIVES(fi_tinject(a.ep, "last", 4, a.other, 29), 0);
    GIVES(fi_trecv(b.ep, in, 100, NULL, FI_ADDR_UNSPEC, 29, 0, NULL), 0);
    CHECK(next(&b, &a).len == 4);
    GIVES(fi_trecvmsg(b.ep, &msg, FI_PEEK), 0);
    e = next(&b, &a);
    CHECK(e.len == 5 && e.tag == 20 && e.op_context == &one);
    /* The first is claimed, so the second is the next. */
    GIVES(fi_trecvmsg(b.ep, &msg, FI_PEEK | FI_CLAIM), 0);
    CHECK(next(&b, &a).len == 5);
    msg.context = &two;
    GIVES(fi_trecvmsg(b.ep, &msg, FI_PEEK | FI_DISCARD), 0);
    CHECK(next(&b, &a).len == 6);
    GIVES(fi_trecvmsg(b.ep, &msg, FI_PEEK | FI_CLAIM), 0);
    CHECK(next(&b, &a).len == 5);
    GIVES(fi_trecvmsg(b.ep, &msg, FI_CLAIM | FI_DISCARD), 0);
    CHECK(next(&b, &a).op_context == &two);
    GIVES(fi_trecvmsg(b.ep, &msg, FI_CLAIM), -FI_EINVAL);
    msg.context = &one;
    GIVES(fi_trecvmsg(b.ep, &msg, FI_CLAIM), 0);
    e = next(&b, &a);
    CHECK(e.len == 5 && e.tag == 20 && !memcmp(in, "first", 5));
}

/* Never more entries than there is room for, wherever they come from. */
static void in_pieces(void)
{
    struct fi_cq_tagged_entry e[4], canary;
    struct fi_msg_tagged peek = {.addr = FI_ADDR_UNSPEC, .tag = 30, .context = &peek};
    memset(&canary, 0x77, sizeof canary);
    GIVES(fi_tinject(b.ep, "peeked", 6, b.self, 30), 0);
    for (int i = 0; i < 3; i++) {
        GIVES(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 31, 0, in), 0);
        GIVES(fi_tinject(b.ep, "x", 1, b.self, 31), 0);
    }
    for (int i = 0; i < 100; i++)
        GIVES(fi_cq_read(b.cq, NULL, 0), -FI_EAGAIN);
    GIVES(fi_trecvmsg(b.ep, &peek, FI_PEEK), 0);
    GIVES(fi_trecvmsg(b.ep, &peek, FI_PEEK | FI_DISCARD), 0);
    memset(e, 0x77, sizeof e);
    GIVES(fi_cq_read(b.cq, e, 3), 3);
    CHECK(e[0].op_context == &peek && e[1].op_context == &peek && e[2].op_context == in);
    CHECK(!memcmp(&e[3], &canary, sizeof canary));
    GIVES(fi_cq_read(b.cq, e, 4), 2);
    CHECK(e[0].op_context == in && e[1].op_context == in && !memcmp(&e[3], &canary, sizeof canary));
}

static void errors(void)
{
    struct fi_cq_err_entry error;
    /* Too long: the beginning is there. */
    GIVES(fi_trecv(b.ep, in, 3, NULL, FI_ADDR_UNSPEC, 1, 0, &error), 0);
    GIVES(fi_tinject(a.ep, "abcdefgh", 8, a.other, 1), 0);
    error = next_error(&b, &a);
    CHECK(error.err == FI_ETRUNC && error.len == 3 && error.olen == 5 && error.tag == 1);
    CHECK(error.op_context == &error && !memcmp(in, "abc", 3));
    /* Cancelled, once. */
    GIVES(fi_trecv(b.ep, in, 3, NULL, FI_ADDR_UNSPEC, 1, 0, in), 0);
    GIVES(fi_cancel(&b.ep->fid, &error), -FI_ENOENT);
    GIVES(fi_cancel(&b.ep->fid, in), 0);
    error = next_error(&b, &a);
    CHECK(error.err == FI_ECANCELED && error.op_context == in);
    GIVES(fi_cancel(&b.ep->fid, in), -FI_ENOENT);
    GIVES(fi_cq_readerr(b.cq, &error, 0), -FI_EAGAIN);
}

static void many(void)
{
    struct iovec into = {in, 100};
    struct fi_msg msg = {.msg_iov = &into, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &msg};
    struct fi_cq_tagged_entry e;
    size_t min = 60;
    GIVES(fi_setopt(&b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &min, sizeof min), 0);
    GIVES(fi_recvmsg(b.ep, &msg, FI_MULTI_RECV), 0);
    GIVES(fi_inject(a.ep, "0123456789", 10, a.other), 0);
    GIVES(fi_inject(a.ep, "abcdefghijklmnopqrstuvwxyzabcdefgh", 34, a.other), 0);
    e = next(&b, &a);
    CHECK(e.buf == in && e.len == 10 && e.flags == (FI_MSG | FI_RECV) && e.op_context == &msg);
    e = next(&b, &a);
    CHECK(e.buf == in + 10 && e.len == 34 && !memcmp(e.buf, "abcd", 4));
    e = next(&b, &a);
    /* No message comes with this one. */
    CHECK(e.flags == FI_MULTI_RECV && e.len == 0 && !e.buf && e.op_context == &msg);
    /* Cancelled with room left. */
    GIVES(fi_recvmsg(b.ep, &msg, FI_MULTI_RECV), 0);
    GIVES(fi_cancel(&b.ep->fid, &msg), 0);
    CHECK(next_error(&b, &a).err == FI_ECANCELED);
}

/* A read behind one that has emptied the queue looks nowhere: a library of MPI reads on until
 * there is nothing. The next one looks. */
static void emptied(void)
{
    struct fi_cq_tagged_entry e[8];
    for (uint64_t tag = 0; tag < 2; tag++)
        GIVES(fi_trecv(a.ep, in + tag, 1, NULL, a.self, tag, 0, in + tag), 0);
    GIVES(fi_tinject(a.ep, "0", 1, a.self, 0), 0);
    GIVES(fi_cq_read(a.cq, e, 8), 1);
    GIVES(fi_tinject(a.ep, "1", 1, a.self, 1), 0);
    GIVES(fi_cq_read(a.cq, e, 8), -FI_EAGAIN);
    GIVES(fi_cq_read(a.cq, e, 8), 1);
    CHECK(e[0].op_context == in + 1 && in[1] == '1');
}

int main(void)
{
    open_domain(FI_MSG | FI_TAGGED | FI_DIRECTED_RECV | FI_SOURCE | FI_MULTI_RECV);
    open_both(&a, &b);
    tagged();
    untagged();
    probes();
    in_pieces();
    errors();
    many();
    emptied();
    close_side(&a);
    close_side(&b);
    close_domain();
    puts("messages: all is well");
    return 0;
}
