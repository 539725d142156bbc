/* Keys are the program's, and can be guessed: regions are for those that were inserted at least
 * once, unless the setting says that they are for all. */
#include "common.h"

static struct side client, server;
static unsigned char here[64];
static _Alignas(8) unsigned char there[64];

static const uint64_t KEY = 0;

static void ended(uint64_t flags, int error)
{
    if (error)
        GIVES(next_error(&client, &server).err, error);
    else
        CHECK(next(&client, &server).flags & flags);
}

/* Every kind of access ends so. */
static void accesses(int error)
{
    uint64_t one = 1, found = 0;
    fill(here, sizeof here, 1);
    memset(there, 0, sizeof there);
    GIVES(fi_write(client.ep, here, sizeof here, NULL, client.other, 0, KEY, NULL), 0);
    ended(FI_WRITE, error);
    CHECK(is_filled(there, sizeof there, 1) == !error);
    fill(there, sizeof there, 2);
    GIVES(fi_read(client.ep, here, sizeof here, NULL, client.other, 0, KEY, NULL), 0);
    ended(FI_READ, error);
    CHECK(is_filled(here, sizeof here, 2) == !error);
    memset(there, 0, sizeof there);
    GIVES(fi_fetch_atomic(client.ep, &one, 1, NULL, &found, NULL, client.other, 0, KEY, FI_UINT64, FI_SUM, NULL), 0);
    ended(FI_ATOMIC, error);
    GIVES(fi_atomic(client.ep, &one, 1, NULL, client.other, 0, KEY, FI_UINT64, FI_SUM, NULL), 0);
    ended(FI_ATOMIC, error);
    CHECK(there[0] == (error ? 0 : 2));
    GIVES(fi_writedata(client.ep, here, 1, NULL, 9, client.other, 0, KEY, NULL), 0);
    if (!error)
        CHECK(next(&server, &client).data == 9);
    ended(FI_WRITE, error);
}

static void insert(void)
{
    GIVES(fi_av_insert(server.av, client.address, 1, &server.other, 0, NULL), 1);
}

int main(void)
{
    struct fid_mr *mr;
    open_domain(FI_TAGGED | FI_RMA | FI_ATOMIC);
    open_side(&client, FI_WAIT_NONE, 0);
    open_side(&server, FI_WAIT_NONE, 0);
    enable(&client);
    enable(&server);
    introduce(&client, &server);
    GIVES(fi_mr_reg(domain, there, sizeof there, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &mr, NULL), 0);
    if (getenv("PORTOLAN_REGION_PEERS")) {
        accesses(0);
    } else {
        accesses(FI_EACCES);
        /* What it sends comes all the same. */
        GIVES(fi_trecv(server.ep, there, sizeof there, NULL, FI_ADDR_UNSPEC, 1, 0, NULL), 0);
        GIVES(fi_tsend(client.ep, here, sizeof here, NULL, client.other, 1, NULL), 0);
        CHECK(next(&server, &client).len == sizeof here);
        CHECK(next(&client, &server).flags & FI_SEND);
        accesses(FI_EACCES);
        insert();
        accesses(0);
        GIVES(fi_av_remove(server.av, &server.other, 1, 0), 0);
        accesses(0);
    }
    GIVES(fi_close(&mr->fid), 0);
    close_side(&client);
    close_side(&server);
    close_domain();
    printf("strangers: all is well\n");
    return 0;
}
