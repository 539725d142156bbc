/* A removal changes the table of the side that removes, and nothing else: a server inserts a
 * client for each answer, and removes it, in six orders. */
#include "common.h"

enum { LONG = 3 << 20, MANY = 300 };

static struct side client, server;
static unsigned char sent[LONG], received[LONG], there[64];

static const uint64_t QUESTION = 1, ANSWER = 2, KEY = 5;

static void insert(void)
{
    GIVES(fi_av_insert(server.av, client.address, 1, &server.other, 0, NULL), 1);
}

static void drop(void)
{
    GIVES(fi_av_remove(server.av, &server.other, 1, 0), 0);
    GIVES(fi_tsend(server.ep, sent, 1, NULL, server.other, ANSWER, NULL), -FI_EINVAL);
}

static void tell(struct side *of, fi_addr_t to, uint64_t tag, size_t bytes)
{
    ssize_t n;
    while ((n = fi_tsend(of->ep, sent, bytes, NULL, to, tag, NULL)) == -FI_EAGAIN) {
        GIVES(fi_cq_read(client.cq, NULL, 0), -FI_EAGAIN);
        GIVES(fi_cq_read(server.cq, NULL, 0), -FI_EAGAIN);
    }
    GIVES(n, 0);
}

static void ended(struct side *of, uint64_t flags, size_t bytes)
{
    struct fi_cq_tagged_entry e = next(of, of == &client ? &server : &client);
    CHECK((e.flags & (FI_SEND | FI_RECV | FI_WRITE)) == flags);
    CHECK(!(flags & FI_RECV) || e.len == bytes);
}

/* The client's question is received by a server that has no name for it. */
static void ask(void)
{
    fi_addr_t from = 0;
    GIVES(fi_trecv(server.ep, received, 8, NULL, FI_ADDR_UNSPEC, QUESTION, 0, NULL), 0);
    tell(&client, client.other, QUESTION, 8);
    struct fi_cq_tagged_entry e = next_from(&server, &client, &from);
    CHECK(e.flags & FI_RECV && from == FI_ADDR_NOTAVAIL);
    ended(&client, FI_SEND, 0);
}

static void listen_for(size_t bytes)
{
    memset(received, 0, sizeof received);
    GIVES(fi_trecv(client.ep, received, bytes, NULL, FI_ADDR_UNSPEC, ANSWER, 0, NULL), 0);
}

static void echo(void)
{
    ask();
    listen_for(8);
    insert();
    tell(&server, server.other, ANSWER, 8);
    ended(&server, FI_SEND, 0);
    drop();
    ended(&client, FI_RECV, 8);
}

/* The answer is given once more, as if it had not come. */
static void retry(void)
{
    ask();
    for (int times = 0; times < 3; times++) {
        listen_for(8);
        insert();
        tell(&server, server.other, ANSWER, 8);
        drop();
        ended(&server, FI_SEND, 0);
        ended(&client, FI_RECV, 8);
    }
}

/* It is removed, and inserted again, while an answer to it is under way. */
static void again_with_data_under_way(void)
{
    ask();
    for (int times = 0; times < 2; times++) {
        insert();
        tell(&server, server.other, ANSWER, LONG);
        drop();
    }
    insert();
    for (int times = 0; times < 2; times++) {
        listen_for(LONG);
        ended(&client, FI_RECV, LONG);
        CHECK(!memcmp(received, sent, LONG));
        ended(&server, FI_SEND, 0);
    }
    drop();
}

/* What the client sends comes while the server has no name for it. */
static void long_message(void)
{
    insert();
    drop();
    tell(&client, client.other, QUESTION, LONG);
    memset(received, 0, sizeof received);
    GIVES(fi_trecv(server.ep, received, LONG, NULL, FI_ADDR_UNSPEC, QUESTION, 0, NULL), 0);
    ended(&server, FI_RECV, LONG);
    CHECK(!memcmp(received, sent, LONG));
    ended(&client, FI_SEND, 0);
}

static void writes(void)
{
    insert();
    drop();
    memset(there, 0, sizeof there);
    GIVES(fi_write(client.ep, sent, sizeof there, NULL, client.other, 0, KEY, NULL), 0);
    ended(&client, FI_WRITE, 0);
    CHECK(!memcmp(there, sent, sizeof there));
}

/* A receive that names the client meets its message, though it stood under another name when
 * that was sent. */
static void directed(void)
{
    insert();
    drop();
    tell(&client, client.other, QUESTION, 8);
    insert();
    GIVES(fi_trecv(server.ep, received, 8, NULL, server.other, QUESTION, 0, NULL), 0);
    ended(&server, FI_RECV, 8);
    ended(&client, FI_SEND, 0);
    drop();
}

static void without_pause(void)
{
    for (int times = 0; times < MANY; times++)
        echo();
}

int main(void)
{
    struct fid_mr *mr;
    open_domain(FI_TAGGED | FI_RMA | FI_DIRECTED_RECV | FI_SOURCE);
    open_side(&client, FI_WAIT_NONE, 0);
    open_side(&server, FI_WAIT_NONE, 0);
    enable(&client);
    enable(&server);
    introduce(&client, &server);
    GIVES(fi_mr_reg(domain, there, sizeof there, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &mr, NULL), 0);
    fill(sent, sizeof sent, 1);
    /* Who refuses strangers has to insert it before it comes; to be inserted once is enough. */
    insert();
    drop();
    echo();
    retry();
    again_with_data_under_way();
    long_message();
    writes();
    directed();
    without_pause();
    GIVES(fi_close(&mr->fid), 0);
    close_side(&client);
    close_side(&server);
    close_domain();
    printf("removal: all is well\n");
    return 0;
}
