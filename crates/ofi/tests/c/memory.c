/* One-sided memory: every call, and every way to fail. */
#include "common.h"

static struct side a, b;
static unsigned char here[1 << 20];
static _Alignas(16) unsigned char there[1 << 20];

static const uint64_t KEY = 0xfedcba9876543210;

static void accesses(void)
{
    static const size_t sizes[] = {1, 8, 4096, 70000, sizeof here};
    struct fi_cq_tagged_entry e;
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t n = sizes[i], at = sizeof there - n;
        fill(here, n, i);
        GIVES(fi_write(a.ep, here, n, NULL, a.other, at, KEY, &here), 0);
        e = next(&a, &b);
        CHECK(e.op_context == &here && e.flags == (FI_RMA | FI_WRITE) && is_filled(there + at, n, i));
        memset(here, 0, n);
        GIVES(fi_read(a.ep, here, n, NULL, a.other, at, KEY, &there), 0);
        e = next(&a, &b);
        CHECK(e.op_context == &there && e.flags == (FI_RMA | FI_READ) && is_filled(here, n, i));
    }
}

static void pieces(void)
{
    struct iovec iov[] = {{here, 10}, {here + 100, 20}};
    struct fi_rma_iov to = {.addr = 50, .len = 30, .key = KEY};
    struct fi_msg_rma msg = {.msg_iov = iov, .iov_count = 2, .addr = a.other, .rma_iov = &to,
                             .rma_iov_count = 1, .context = iov};
    fill(here, sizeof here, 3);
    GIVES(fi_writev(a.ep, iov, NULL, 2, a.other, 50, KEY, NULL), 0);
    next(&a, &b);
    CHECK(!memcmp(there + 50, here, 10) && !memcmp(there + 60, here + 100, 20));
    memset(here, 0, 200);
    GIVES(fi_readmsg(a.ep, &msg, 0), 0);
    CHECK(next(&a, &b).op_context == iov);
    CHECK(!memcmp(there + 50, here, 10) && !memcmp(there + 60, here + 100, 20));
    GIVES(fi_readv(a.ep, iov, NULL, 2, a.other, 50, KEY, NULL), 0);
    next(&a, &b);
    memset(here, 7, 200);
    /* Injected: the program's again at once, and behind a fence. */
    GIVES(fi_writemsg(a.ep, &msg, FI_INJECT | FI_FENCE | FI_DELIVERY_COMPLETE), 0);
    memset(here, 8, 200);
    CHECK(next(&a, &b).op_context == iov);
    CHECK(there[50] == 7 && there[79] == 7);
    to.len = 29;
    GIVES(fi_writemsg(a.ep, &msg, 0), -FI_EINVAL);
    to.len = 30;
    msg.rma_iov_count = 2;
    GIVES(fi_writemsg(a.ep, &msg, 0), -FI_EINVAL);
    GIVES(fi_inject_write(a.ep, "no completion", 14, a.other, 0, KEY), 0);
    while (strcmp((char *)there, "no completion")) {
        GIVES(fi_cq_read(a.cq, NULL, 0), -FI_EAGAIN);
        GIVES(fi_cq_read(b.cq, NULL, 0), -FI_EAGAIN);
    }
}

/* The other side hears of a write. */
static void data(void)
{
    struct fi_cq_tagged_entry e;
    fi_addr_t from = 0;
    GIVES(fi_writedata(a.ep, "told", 4, NULL, 99, a.other, 0, KEY, &e), 0);
    e = next_from(&b, &a, &from);
    CHECK(e.flags == (FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA) && e.data == 99 && e.len == 4);
    CHECK(from == b.other && !memcmp(there, "told", 4));
    CHECK(next(&a, &b).flags == (FI_RMA | FI_WRITE));
    GIVES(fi_inject_writedata(a.ep, "once", 4, ~(uint64_t)0, a.other, 0, KEY), 0);
    CHECK(next(&b, &a).data == ~(uint64_t)0);
}

static void fails(uint64_t key, uint64_t at, size_t bytes, int write, int error)
{
    struct fi_cq_err_entry e;
    if (write)
        GIVES(fi_write(a.ep, here, bytes, NULL, a.other, at, key, &e), 0);
    else
        GIVES(fi_read(a.ep, here, bytes, NULL, a.other, at, key, &e), 0);
    e = next_error(&a, &b);
    GIVES(e.err, error);
    CHECK(e.op_context == &e && (e.flags & FI_RMA));
    if (error == ERANGE)
        CHECK(!strncmp(fi_cq_strerror(a.cq, e.prov_errno, NULL, NULL, 0), "the access does not lie", 23));
}

static void refused(struct fid_mr *mr)
{
    struct fid_mr *other;
    fails(KEY + 1, 0, 8, 1, FI_ENOKEY);
    fails(KEY, sizeof there - 7, 8, 1, ERANGE);
    fails(KEY, ~(uint64_t)0, 8, 0, ERANGE);
    GIVES(fi_mr_reg(domain, there, 8, FI_REMOTE_READ, 0, KEY, 0, &other, NULL), -FI_ENOKEY);
    GIVES(fi_mr_reg(domain, there, 8, FI_REMOTE_READ, 0, 1, 0, &other, NULL), 0);
    fails(1, 0, 8, 1, FI_EACCES);
    GIVES(fi_read(a.ep, here, 8, NULL, a.other, 0, 1, NULL), 0);
    next(&a, &b);
    GIVES(fi_close(&domain->fid), -FI_EBUSY);
    GIVES(fi_close(&other->fid), 0);
    fails(1, 0, 8, 0, FI_ENOKEY);
    /* A key is free again at once. */
    for (int i = 0; i < 1000; i++) {
        GIVES(fi_mr_reg(domain, there + i, 8, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, 0, &other, NULL), 0);
        CHECK(fi_mr_key(other) == 1);
        GIVES(fi_close(&other->fid), 0);
    }
    GIVES(fi_mr_reg(domain, there, ~(size_t)0, FI_REMOTE_READ, 0, 1, 0, &other, NULL), -FI_EINVAL);
    GIVES(fi_mr_reg(domain, NULL, 8, FI_REMOTE_READ, 0, 1, 0, &other, NULL), -FI_EFAULT);
    GIVES(fi_mr_reg(domain, there, 8, FI_REMOTE_READ, 0, 1, FI_RMA_PMEM, &other, NULL), -FI_EBADFLAGS);
    GIVES(fi_close(&mr->fid), 0);
    fails(KEY, 0, 8, 1, FI_ENOKEY);
}

/* All memory of the process: places are addresses. */
static void address_space(void)
{
    uint64_t word = 1, at = (uint64_t)(uintptr_t)&word;
    struct fid_mr *all;
    GIVES(fi_mr_reg(domain, NULL, ~(size_t)0, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 7, 0, &all, NULL), 0);
    here[0] = 42;
    GIVES(fi_write(a.ep, here, 1, NULL, a.other, at, 7, NULL), 0);
    next(&a, &b);
    CHECK(word == 42);
    fails(7, 4096, 8, 1, ERANGE);
    fails(7, 4096, 8, 0, ERANGE);
    GIVES(fi_close(&all->fid), 0);
    fails(7, at, 1, 1, FI_ENOKEY);
}

/* Numbers of others: plain, fetching, comparing, in pieces; and what there is not. */
static void atomics(struct fid_mr *mr)
{
    uint64_t values[] = {5, 6}, found[2] = {0, 0}, compare[] = {8, 0}, *words = (uint64_t *)(void *)there;
    double number = 0.5;
    struct fi_ioc from[] = {{&values[0], 1}, {&values[1], 1}}, into[] = {{found, 2}}, with[] = {{compare, 2}};
    struct fi_rma_ioc to = {.addr = 0, .count = 2, .key = KEY};
    struct fi_msg_atomic msg = {.msg_iov = from, .iov_count = 2, .addr = a.other, .rma_iov = &to, .rma_iov_count = 1,
                                .datatype = FI_UINT64, .op = FI_SUM, .context = &msg};
    struct fi_atomic_attr attr;
    size_t count;
    CHECK(fi_mr_key(mr) == KEY);
    words[0] = 1, words[1] = 2;
    GIVES(fi_atomic(a.ep, values, 2, NULL, a.other, 0, KEY, FI_UINT64, FI_SUM, NULL), 0);
    CHECK(next(&a, &b).flags == (FI_ATOMIC | FI_WRITE) && words[0] == 6 && words[1] == 8);
    GIVES(fi_fetch_atomic(a.ep, values, 2, NULL, found, NULL, a.other, 0, KEY, FI_UINT64, FI_MAX, &found), 0);
    CHECK(next(&a, &b).flags == (FI_ATOMIC | FI_READ) && found[0] == 6 && found[1] == 8);
    GIVES(fi_compare_atomic(a.ep, values, 1, NULL, compare, NULL, found, NULL, a.other, 8, KEY, FI_UINT64, FI_CSWAP, NULL), 0);
    next(&a, &b);
    CHECK(found[0] == 8 && words[1] == 5);
    GIVES(fi_fetch_atomic(a.ep, NULL, 2, NULL, found, NULL, a.other, 0, KEY, FI_UINT64, FI_ATOMIC_READ, NULL), 0);
    next(&a, &b);
    CHECK(found[0] == 6 && found[1] == 5);
    GIVES(fi_atomicmsg(a.ep, &msg, FI_COMPLETION), 0);
    CHECK(next(&a, &b).op_context == &msg && words[0] == 11 && words[1] == 11);
    GIVES(fi_fetch_atomicmsg(a.ep, &msg, into, NULL, 1, 0), 0);
    next(&a, &b);
    CHECK(found[0] == 11 && words[1] == 17);
    msg.op = FI_CSWAP_NE;
    GIVES(fi_compare_atomicmsg(a.ep, &msg, with, NULL, 1, into, NULL, 1, 0), 0);
    next(&a, &b);
    CHECK(words[0] == 5 && words[1] == 6);
    *(double *)(void *)(there + 16) = 1.5;
    GIVES(fi_inject_atomic(a.ep, &number, 1, a.other, 16, KEY, FI_DOUBLE, FI_PROD), 0);
    while (*(volatile double *)(void *)(there + 16) != 0.75)
        GIVES(fi_cq_read(b.cq, NULL, 0), -FI_EAGAIN);
    /* At an odd address, and without the rights. */
    GIVES(fi_atomic(a.ep, values, 1, NULL, a.other, 3, KEY, FI_UINT64, FI_SUM, NULL), 0);
    GIVES(next_error(&a, &b).err, FI_EINVAL);
    GIVES(fi_atomic(a.ep, values, 1, NULL, a.other, 0, KEY + 1, FI_UINT64, FI_SUM, NULL), 0);
    GIVES(next_error(&a, &b).err, FI_ENOKEY);
    /* What there is not. */
    GIVES(fi_atomicvalid(a.ep, FI_DOUBLE, FI_SUM, &count), 0);
    CHECK(count == 128);
    GIVES(fi_compare_atomicvalid(a.ep, FI_INT8, FI_CSWAP, &count), 0);
    CHECK(count == 512);
    GIVES(fi_atomicvalid(a.ep, FI_DOUBLE, FI_BOR, &count), -FI_EOPNOTSUPP);
    GIVES(fi_atomicvalid(a.ep, FI_LONG_DOUBLE, FI_SUM, &count), -FI_EOPNOTSUPP);
    GIVES(fi_fetch_atomicvalid(a.ep, FI_INT8, FI_CSWAP, &count), -FI_EOPNOTSUPP);
    GIVES(fi_query_atomic(domain, FI_INT32, FI_SUM, &attr, FI_FETCH_ATOMIC), 0);
    CHECK(attr.size == 4 && attr.count == 256);
    GIVES(fi_atomic(a.ep, values, 1, NULL, a.other, 0, KEY, FI_DOUBLE, FI_BOR, NULL), -FI_EOPNOTSUPP);
    GIVES(fi_atomic(a.ep, values, 1, NULL, a.other, 0, KEY, -1, 4711, NULL), -FI_EOPNOTSUPP);
    GIVES(fi_atomic(a.ep, values, 0, NULL, a.other, 0, KEY, FI_UINT64, FI_SUM, NULL), -FI_EINVAL);
    GIVES(fi_atomic(a.ep, there, 129, NULL, a.other, 0, KEY, FI_UINT64, FI_SUM, NULL), -FI_EINVAL);
}

int main(void)
{
    struct fid_mr *mr;
    open_domain(FI_RMA | FI_ATOMIC | FI_SOURCE);
    /* One that is registered before endpoints are enabled is there as well. */
    GIVES(fi_mr_reg(domain, there, sizeof there, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &mr, NULL), 0);
    open_both(&a, &b);
    accesses();
    pieces();
    data();
    atomics(mr);
    address_space();
    refused(mr);
    close_side(&a);
    close_side(&b);
    close_domain();
    puts("memory: all is well");
    return 0;
}
