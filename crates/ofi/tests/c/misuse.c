/* What is refused, and how: hints, addresses, flags, states, and closing in the wrong order. */
#include "common.h"

static struct side a, b;

static int asks(uint64_t caps, void (*change)(struct fi_info *))
{
    struct fi_info *hints = hints_for(caps), *found = NULL;
    int result;
    if (change)
        change(hints);
    result = fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &found);
    fi_freeinfo(hints);
    fi_freeinfo(found);
    return result;
}

static void dgram(struct fi_info *it) { it->ep_attr->type = FI_EP_DGRAM; }
static void contexts(struct fi_info *it) { it->ep_attr->rx_ctx_cnt = 2; }
static void shared(struct fi_info *it) { it->ep_attr->tx_ctx_cnt = FI_SHARED_CONTEXT; }
static void tags(struct fi_info *it) { it->ep_attr->mem_tag_format = 0xaaaaaaaaaaaaaaaa; }
static void shorter_tags(struct fi_info *it) { it->ep_attr->mem_tag_format = 0x5555555555555555; }
static void address(struct fi_info *it) { it->addr_format = FI_SOCKADDR_IN; }
static void strict(struct fi_info *it) { it->tx_attr->msg_order = FI_ORDER_STRICT; }
static void injects(struct fi_info *it) { it->tx_attr->inject_size = 1 << 20; }
static void places(struct fi_info *it) { it->tx_attr->rma_iov_limit = 2; }
static void longest(struct fi_info *it) { it->ep_attr->max_msg_size = ~(size_t)0; }
static void basic(struct fi_info *it) { it->domain_attr->mr_mode = FI_MR_BASIC; }
static void some_name(struct fi_info *it) { it->domain_attr->name = strdup("elsewhere"); }
static void modes(struct fi_info *it)
{
    it->mode = ~(uint64_t)0;
    it->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
}

static void hints(void)
{
    struct fi_info *found, *hints = hints_for(0);
    GIVES(asks(0, NULL), 0);
    GIVES(asks(FI_MSG | FI_RECV, NULL), 0);
    GIVES(asks(FI_MSG | FI_TAGGED | FI_RMA, modes), 0);
    GIVES(asks(FI_MSG, shorter_tags), 0);
    GIVES(asks(FI_MULTICAST, NULL), -FI_ENODATA);
    GIVES(asks(FI_MSG | FI_HMEM, NULL), -FI_ENODATA);
    GIVES(asks(FI_MSG | FI_SHARED_AV, NULL), -FI_ENODATA);
    GIVES(asks(FI_MSG, dgram), -FI_ENODATA);
    GIVES(asks(FI_MSG, contexts), -FI_ENODATA);
    GIVES(asks(FI_MSG, shared), -FI_ENODATA);
    GIVES(asks(FI_MSG, tags), -FI_ENODATA);
    GIVES(asks(FI_MSG, address), -FI_ENODATA);
    GIVES(asks(FI_MSG, strict), -FI_ENODATA);
    GIVES(asks(FI_MSG, injects), -FI_ENODATA);
    GIVES(asks(FI_RMA, places), -FI_ENODATA);
    GIVES(asks(FI_MSG, longest), -FI_ENODATA);
    GIVES(asks(FI_RMA, basic), -FI_ENODATA);
    GIVES(asks(FI_MSG, some_name), -FI_ENODATA);
    /* Where to listen; where others are nobody knows by a name. */
    GIVES(fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", "4711", 0, hints, &found), -FI_ENODATA);
    GIVES(fi_getinfo(FI_VERSION(1, 17), "192.0.2.77", NULL, FI_SOURCE, hints, &found), -FI_ENODATA);
    GIVES(fi_getinfo(FI_VERSION(1, 17), NULL, "no number", FI_SOURCE, hints, &found), -FI_ENODATA);
    GIVES(fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", NULL, FI_SOURCE, hints, &found), 0);
    CHECK(found->src_addrlen == 48 && found->domain_attr->mr_mode == 0);
    fi_freeinfo(found);
    /* Intel's MPI asks so first. */
    hints->domain_attr->mr_mode = 0;
    GIVES(fi_getinfo(0, NULL, NULL, 0, NULL, &found), 0);
    fi_freeinfo(found);
    fi_freeinfo(hints);
}

/* An endpoint has to be enabled, for which it needs an address vector and a queue. */
static void states(void)
{
    struct fi_av_attr av_attr = {.type = FI_AV_MAP}, named = {.name = "shared"};
    struct fi_cq_attr cq_attr = {.format = 99}, waits = {.wait_obj = FI_WAIT_MUTEX_COND};
    struct fid_ep *ep;
    struct fid_av *av;
    struct fid_cq *cq;
    char name[64];
    size_t bytes = sizeof name;
    GIVES(fi_endpoint(domain, info, &ep, NULL), 0);
    GIVES(fi_enable(ep), -FI_ENOAV);
    GIVES(fi_tinject(ep, "x", 1, 0, 1), -FI_EOPBADSTATE);
    GIVES(fi_getname(&ep->fid, name, &bytes), -FI_EOPBADSTATE);
    GIVES(fi_av_open(domain, &named, &av, NULL), -FI_ENOSYS);
    GIVES(fi_av_open(domain, &av_attr, &av, NULL), 0);
    GIVES(fi_ep_bind(ep, &av->fid, 0), 0);
    GIVES(fi_ep_bind(ep, &av->fid, 0), -FI_EINVAL);
    GIVES(fi_enable(ep), -FI_ENOCQ);
    GIVES(fi_cq_open(domain, &cq_attr, &cq, NULL), -FI_ENOSYS);
    GIVES(fi_cq_open(domain, &waits, &cq, NULL), -FI_ENOSYS);
    cq_attr.format = FI_CQ_FORMAT_CONTEXT;
    GIVES(fi_cq_open(domain, &cq_attr, &cq, NULL), 0);
    GIVES(fi_ep_bind(ep, &cq->fid, 0), -FI_EBADFLAGS);
    GIVES(fi_ep_bind(ep, &cq->fid, FI_REMOTE_WRITE | FI_RECV), -FI_EBADFLAGS);
    GIVES(fi_ep_bind(ep, &domain->fid, 0), -FI_EINVAL);
    GIVES(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), 0);
    GIVES(fi_enable(ep), 0);
    GIVES(fi_enable(ep), -FI_EOPBADSTATE);
    GIVES(fi_ep_bind(ep, &cq->fid, FI_RECV), -FI_EOPBADSTATE);
    /* No name is cut without a word. */
    bytes = info->src_addrlen - 1;
    GIVES(fi_getname(&ep->fid, name, &bytes), -FI_ETOOSMALL);
    CHECK(bytes == info->src_addrlen);
    bytes = sizeof name;
    GIVES(fi_getname(&ep->fid, name, &bytes), 0);
    GIVES(fi_close(&cq->fid), -FI_EBUSY);
    GIVES(fi_close(&av->fid), -FI_EBUSY);
    GIVES(fi_close(&domain->fid), -FI_EBUSY);
    GIVES(fi_close(&fabric->fid), -FI_EBUSY);
    GIVES(fi_close(&ep->fid), 0);
    GIVES(fi_close(&cq->fid), 0);
    GIVES(fi_close(&av->fid), 0);
}

static void addresses(void)
{
    size_t length = info->src_addrlen;
    unsigned char bad[4 * 64], text[64];
    fi_addr_t names[4], twice, unknown = 4711;
    int errors[4];
    size_t bytes = sizeof text;
    open_both(&a, &b);
    srand(1);
    for (size_t i = 0; i < length; i++)
        bad[i] = (unsigned char)rand();
    memset(bad + length, 0, length);
    memcpy(bad + 2 * length, b.address, length);
    bad[2 * length] ^= 0xff;
    memcpy(bad + 3 * length, b.address, length);
    GIVES(fi_av_insert(a.av, bad, 4, names, FI_SYNC_ERR, errors), 1);
    for (int i = 0; i < 3; i++)
        CHECK(names[i] == FI_ADDR_NOTAVAIL && errors[i] == FI_EINVAL);
    CHECK(names[3] != FI_ADDR_NOTAVAIL && errors[3] == 0);
    GIVES(fi_av_insert(a.av, bad, 1, NULL, 0, NULL), 0);
    /* The same peer by three names; one that is removed is no more. */
    GIVES(fi_av_insert(a.av, b.address, 1, &twice, 0, NULL), 1);
    GIVES(fi_tinject(a.ep, "x", 1, twice, 1), 0);
    GIVES(fi_av_remove(a.av, &names[3], 1, 0), 0);
    GIVES(fi_av_remove(a.av, &names[3], 1, 0), -FI_EINVAL);
    GIVES(fi_av_remove(a.av, &unknown, 1, 0), -FI_EINVAL);
    GIVES(fi_tinject(a.ep, "x", 1, names[3], 1), -FI_EINVAL);
    GIVES(fi_tinject(a.ep, "x", 1, FI_ADDR_UNSPEC, 1), -FI_EINVAL);
    GIVES(fi_tinject(a.ep, "x", 1, a.other, 1), 0);
    GIVES(fi_av_lookup(a.av, twice, text, &bytes), 0);
    CHECK(bytes == length && !memcmp(text, b.address, length));
    GIVES(fi_av_lookup(a.av, unknown, text, &bytes), -FI_ENOENT);
    bytes = sizeof text;
    CHECK(fi_av_straddr(a.av, b.address, (char *)text, &bytes));
    CHECK(!strncmp((char *)text, "portolan://", 11));
    for (int i = 0; i < 2; i++) {
        GIVES(fi_trecv(b.ep, text, 1, NULL, FI_ADDR_UNSPEC, 1, 0, NULL), 0);
        CHECK(next(&b, &a).len == 1);
    }
}

static void calls(void)
{
    static char large[1 << 14];
    struct iovec iov = {large, 8}, none = {NULL, 8};
    struct fi_msg_tagged msg = {.msg_iov = &iov, .iov_count = 1, .addr = a.other};
    GIVES(fi_tinject(a.ep, large, sizeof large, a.other, 1), -FI_EMSGSIZE);
    GIVES(fi_tsendmsg(a.ep, &msg, FI_MULTICAST), -FI_EBADFLAGS);
    GIVES(fi_trecvmsg(a.ep, &msg, FI_INJECT), -FI_EBADFLAGS);
    GIVES(fi_trecvmsg(a.ep, &msg, FI_DISCARD), -FI_EBADFLAGS);
    GIVES(fi_tsendmsg(a.ep, NULL, 0), -FI_EINVAL);
    msg.msg_iov = &none;
    GIVES(fi_tsendmsg(a.ep, &msg, 0), -FI_EFAULT);
    GIVES(fi_trecvmsg(a.ep, &msg, 0), -FI_EFAULT);
    msg.iov_count = 1 << 20;
    GIVES(fi_tsendmsg(a.ep, &msg, 0), -FI_EINVAL);
    GIVES(fi_cq_sread(a.cq, large, 1, NULL, 1), -FI_EINVAL);
    GIVES(fi_cq_signal(a.cq), -FI_ENOSYS);
    GIVES(fi_control(&a.ep->fid, FI_ALIAS, NULL), -FI_ENOSYS);
    for (size_t i = 0; i < 3; i++) {
        int unknown[] = {4711, FI_OPT_FI_HMEM_P2P, -1};
        GIVES(fi_getopt(&a.ep->fid, FI_OPT_ENDPOINT, unknown[i], large, &(size_t){8}), -FI_ENOPROTOOPT);
        GIVES(fi_setopt(&a.ep->fid, FI_OPT_ENDPOINT, unknown[i], large, 8), -FI_ENOPROTOOPT);
    }
    GIVES(fi_getopt(&a.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, large, &(size_t){4}), -FI_ETOOSMALL);
}

/* A peer that is removed while a long message to it is under way, and one that closes. */
static void gone(void)
{
    static char large[8 << 20], taken[8 << 20];
    GIVES(fi_tsend(a.ep, large, sizeof large, NULL, a.other, 5, &large), 0);
    GIVES(fi_trecv(a.ep, large, 8, NULL, FI_ADDR_UNSPEC, 6, 0, large + 1), 0);
    for (fi_addr_t name = 0; name < 8; name++)
        if (name != a.self)
            fi_av_remove(a.av, &name, 1, 0);
    /* What is under way to one that was removed goes on. */
    GIVES(fi_trecv(b.ep, taken, sizeof taken, NULL, FI_ADDR_UNSPEC, 5, 0, NULL), 0);
    CHECK(next(&b, &a).len == sizeof large);
    CHECK(next(&a, &b).op_context == large);
    close_side(&b);
    /* What is under way when its endpoint closes is told to nobody. */
    GIVES(fi_close(&a.cq->fid), -FI_EBUSY);
    close_side(&a);
}

int main(void)
{
    hints();
    open_domain(FI_MSG | FI_TAGGED | FI_RMA | FI_DIRECTED_RECV);
    states();
    addresses();
    calls();
    gone();
    close_domain();
    puts("misuse: all is well");
    return 0;
}
