/* What programs other than MPIs ask for, as OpenSHMEM: counters that are bound to an endpoint which
 * is enabled, queues of no format, numbers that are aligned in regions which are not. */
#include "common.h"

static struct side a, b;
static struct fid_cntr *early, *late;
static _Alignas(64) uint64_t there[8];

static const uint64_t KEY = 7;

static void counted(struct fid_cntr *cntr, uint64_t wanted)
{
    uint64_t found;
    while ((found = fi_cntr_read(cntr)) < wanted)
        fi_cq_read(b.cq, NULL, 0);
    CHECK(found == wanted);
}

int main(void)
{
    struct fi_cq_attr plain = {.format = FI_CQ_FORMAT_UNSPEC, .wait_obj = FI_WAIT_NONE};
    struct fi_av_attr table = {.type = FI_AV_TABLE};
    struct fi_cntr_attr events = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC};
    unsigned char entry[128];
    struct fid_mr *mr;
    uint64_t word = 5, one = 1, found = 0;
    ssize_t n;
    open_domain(FI_MSG | FI_RMA | FI_ATOMIC);
    GIVES(fi_cntr_open(domain, &events, &early, NULL), 0);
    GIVES(fi_cntr_open(domain, &events, &late, NULL), 0);
    GIVES(fi_cq_open(domain, &plain, &a.cq, NULL), 0);
    GIVES(fi_av_open(domain, &table, &a.av, NULL), 0);
    GIVES(fi_endpoint(domain, info, &a.ep, NULL), 0);
    GIVES(fi_ep_bind(a.ep, &a.av->fid, 0), 0);
    GIVES(fi_ep_bind(a.ep, &a.cq->fid, FI_TRANSMIT | FI_RECV), 0);
    GIVES(fi_ep_bind(a.ep, &early->fid, FI_SEND), 0);
    open_side(&b, FI_WAIT_NONE, 0);
    enable(&a);
    enable(&b);
    introduce(&a, &b);
    introduce(&b, &a);

    /* One that counts already, and one that does not. */
    GIVES(fi_ep_bind(a.ep, &early->fid, FI_WRITE), 0);
    GIVES(fi_ep_bind(a.ep, &late->fid, FI_READ), 0);
    GIVES(fi_ep_bind(a.ep, &late->fid, FI_WRITE), -FI_EINVAL);
    GIVES(fi_ep_bind(a.ep, &b.cq->fid, FI_RECV), -FI_EOPBADSTATE);
    GIVES(fi_mr_reg(domain, (char *)there + 4, sizeof there - 4, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &mr, NULL), 0);
    GIVES(fi_write(a.ep, &word, sizeof word, NULL, a.other, 4, KEY, &word), 0);
    counted(early, 1);
    CHECK(there[1] == 5);

    /* An entry is a context, and not a byte more. */
    memset(entry, 0xa5, sizeof entry);
    while ((n = fi_cq_read(a.cq, entry, 1)) == -FI_EAGAIN)
        fi_cq_read(b.cq, NULL, 0);
    GIVES(n, 1);
    CHECK(*(void **)entry == &word);
    for (size_t i = sizeof(struct fi_cq_entry); i < sizeof entry; i++)
        CHECK(entry[i] == 0xa5);

    /* At offset 4 it is aligned; at 8 only its offset is; at 6 neither. */
    GIVES(fi_fetch_atomic(a.ep, &one, 1, NULL, &found, NULL, a.other, 4, KEY, FI_UINT64, FI_SUM, NULL), 0);
    counted(late, 1);
    CHECK(found == 5 && there[1] == 6);
    GIVES(fi_fetch_atomic(a.ep, &one, 1, NULL, &found, NULL, a.other, 8, KEY, FI_UINT64, FI_ATOMIC_READ, NULL), 0);
    counted(late, 2);
    GIVES(fi_fetch_atomic(a.ep, &one, 1, NULL, &found, NULL, a.other, 6, KEY, FI_UINT64, FI_SUM, NULL), 0);
    while (fi_cntr_readerr(late) == 0)
        fi_cq_read(b.cq, NULL, 0);
    CHECK(there[1] == 6);

    GIVES(fi_send(a.ep, &word, sizeof word, NULL, a.other, NULL), 0);
    counted(early, 2);
    GIVES(fi_close(&mr->fid), 0);
    close_side(&a);
    close_side(&b);
    GIVES(fi_close(&early->fid), 0);
    GIVES(fi_close(&late->fid), 0);
    close_domain();
    puts("late: all is well");
    return 0;
}
