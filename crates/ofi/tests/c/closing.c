/* What was injected arrives though its sender closes right behind it, and though the receiver,
 * a process of its own, makes no call until the sender is gone. */
#include "common.h"
#include <sys/socket.h>
#include <sys/wait.h>

enum { MESSAGES = 2000, BYTES = 64, LONG = 4096 };

static struct side me;
static int line[2];

static struct fi_cq_tagged_entry wait_for_one(void)
{
    struct fi_cq_tagged_entry entry;
    ssize_t n;
    while ((n = fi_cq_read(me.cq, &entry, 1)) == -FI_EAGAIN)
        ;
    GIVES(n, 1);
    return entry;
}

static void open_me(void)
{
    open_domain(FI_TAGGED | FI_DIRECTED_RECV);
    open_side(&me, FI_WAIT_NONE, 0);
    enable(&me);
}

static size_t bytes_of(int number)
{
    return number % 100 == 99 ? LONG : BYTES;
}

static int sender(void)
{
    unsigned char data[LONG];
    open_me();
    CHECK(write(line[1], me.address, sizeof me.address) == sizeof me.address);
    CHECK(read(line[1], me.address, sizeof me.address) == sizeof me.address);
    GIVES(fi_av_insert(me.av, me.address, 1, &me.other, 0, NULL), 1);
    for (int number = 0; number < MESSAGES; number++) {
        ssize_t sent;
        fill(data, bytes_of(number), (unsigned)number);
        while ((sent = fi_tinject(me.ep, data, bytes_of(number), me.other, (uint64_t)number)) == -FI_EAGAIN)
            fi_cq_read(me.cq, NULL, 0);
        GIVES(sent, 0);
    }
    close_side(&me);
    close_domain();
    return 0;
}

int main(void)
{
    unsigned char data[LONG], other[64];
    int status;
    /* Both ways; forked before there is a thread. */
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, line) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        line[1] = line[0];
        return sender();
    }
    open_me();
    CHECK(read(line[1], other, sizeof other) == sizeof other);
    GIVES(fi_av_insert(me.av, other, 1, &me.other, 0, NULL), 1);
    CHECK(write(line[1], me.address, sizeof me.address) == sizeof me.address);
    /* No call until the sender is gone: the helper thread takes what it has. */
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    for (int number = 0; number < MESSAGES; number++) {
        GIVES(fi_trecv(me.ep, data, sizeof data, NULL, me.other, 0, ~0ull, NULL), 0);
        struct fi_cq_tagged_entry entry = wait_for_one();
        CHECK(entry.tag == (uint64_t)number && entry.len == bytes_of(number));
        CHECK(is_filled(data, entry.len, (unsigned)number));
    }
    /* Then nothing more comes of it. */
    GIVES(fi_trecv(me.ep, data, sizeof data, NULL, me.other, 0, ~0ull, NULL), 0);
    struct fi_cq_err_entry error;
    struct fi_cq_tagged_entry entry;
    ssize_t n;
    while ((n = fi_cq_read(me.cq, &entry, 1)) == -FI_EAGAIN)
        ;
    GIVES(n, -FI_EAVAIL);
    memset(&error, 0, sizeof error);
    GIVES(fi_cq_readerr(me.cq, &error, 0), 1);
    CHECK(error.err == EPIPE);
    close_side(&me);
    close_domain();
    printf("closing: all is well\n");
    return 0;
}
