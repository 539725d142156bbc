/* Two endpoints of one process, over libfabric and the provider. */
#ifndef COMMON_H
#define COMMON_H

#define _GNU_SOURCE
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#define CHECK(condition)                                                          \
    do {                                                                          \
        if (!(condition)) {                                                       \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);       \
            exit(1);                                                              \
        }                                                                         \
    } while (0)

/* A call that returns an error, or 0. */
#define GIVES(call, wanted)                                                       \
    do {                                                                          \
        long got_ = (long)(call);                                                 \
        if (got_ != (long)(wanted)) {                                             \
            fprintf(stderr, "%s:%d: %s is %ld (%s), not %s\n", __FILE__, __LINE__, \
                    #call, got_, fi_strerror((int)-got_), #wanted);               \
            exit(1);                                                              \
        }                                                                         \
    } while (0)

struct side {
    struct fid_ep *ep;
    struct fid_cq *cq;
    struct fid_av *av;
    fi_addr_t self, other;
    unsigned char address[64];
};

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;

static struct fi_info *hints_for(uint64_t caps)
{
    struct fi_info *hints = fi_allocinfo();
    CHECK(hints);
    hints->fabric_attr->prov_name = strdup("portolan");
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = caps;
    return hints;
}

static inline void open_domain(uint64_t caps)
{
    struct fi_info *hints = hints_for(caps);
    GIVES(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info), 0);
    fi_freeinfo(hints);
    GIVES(fi_fabric(info->fabric_attr, &fabric, NULL), 0);
    GIVES(fi_domain(fabric, info, &domain, NULL), 0);
}

static void open_side(struct side *side, enum fi_wait_obj wait, uint64_t bind_flags)
{
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = wait};
    struct fi_av_attr av = {.type = FI_AV_TABLE};
    GIVES(fi_cq_open(domain, &cq, &side->cq, NULL), 0);
    GIVES(fi_av_open(domain, &av, &side->av, NULL), 0);
    GIVES(fi_endpoint(domain, info, &side->ep, NULL), 0);
    GIVES(fi_ep_bind(side->ep, &side->av->fid, 0), 0);
    GIVES(fi_ep_bind(side->ep, &side->cq->fid, FI_TRANSMIT | FI_RECV | bind_flags), 0);
}

static void enable(struct side *side)
{
    size_t bytes = sizeof side->address;
    GIVES(fi_enable(side->ep), 0);
    GIVES(fi_getname(&side->ep->fid, side->address, &bytes), 0);
    CHECK(bytes == info->src_addrlen);
}

static void introduce(struct side *a, struct side *b)
{
    GIVES(fi_av_insert(a->av, a->address, 1, &a->self, 0, NULL), 1);
    GIVES(fi_av_insert(a->av, b->address, 1, &a->other, 0, NULL), 1);
}

static inline void open_both(struct side *a, struct side *b)
{
    open_side(a, FI_WAIT_NONE, 0);
    open_side(b, FI_WAIT_NONE, 0);
    enable(a);
    enable(b);
    introduce(a, b);
    introduce(b, a);
}

static inline void close_side(struct side *side)
{
    GIVES(fi_close(&side->ep->fid), 0);
    GIVES(fi_close(&side->cq->fid), 0);
    GIVES(fi_close(&side->av->fid), 0);
}

static inline void close_domain(void)
{
    GIVES(fi_close(&domain->fid), 0);
    GIVES(fi_close(&fabric->fid), 0);
    fi_freeinfo(info);
}

/* The next entry of a queue; the other side makes progress. */
static inline struct fi_cq_tagged_entry next_from(struct side *of, struct side *other, fi_addr_t *from)
{
    struct fi_cq_tagged_entry entry;
    ssize_t n;
    memset(&entry, 0x55, sizeof entry);
    while ((n = fi_cq_readfrom(of->cq, &entry, 1, from)) == -FI_EAGAIN) {
        n = fi_cq_read(other->cq, NULL, 0);
        CHECK(n == -FI_EAGAIN || n == -FI_EAVAIL);
    }
    GIVES(n, 1);
    return entry;
}

static inline struct fi_cq_tagged_entry next(struct side *of, struct side *other)
{
    return next_from(of, other, NULL);
}

/* The next entry, which is an error. */
static inline struct fi_cq_err_entry next_error(struct side *of, struct side *other)
{
    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry error;
    ssize_t n;
    while ((n = fi_cq_read(of->cq, &entry, 1)) == -FI_EAGAIN)
        fi_cq_read(other->cq, NULL, 0);
    GIVES(n, -FI_EAVAIL);
    memset(&error, 0, sizeof error);
    GIVES(fi_cq_readerr(of->cq, &error, 0), 1);
    CHECK(fi_cq_strerror(of->cq, error.prov_errno, NULL, NULL, 0));
    return error;
}

static inline void fill(unsigned char *memory, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++)
        memory[i] = (unsigned char)(seed + i * 7 + (i >> 8));
}

static inline int is_filled(const unsigned char *memory, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++)
        if (memory[i] != (unsigned char)(seed + i * 7 + (i >> 8)))
            return 0;
    return 1;
}

#endif
