/* atoll_finish(): `finish wait`, `finish now`, `finish lost`, `finish thread`. */
#include "test.h"

#include <pthread.h>

static unsigned char data[500000];

static void *waiter(void *user)
{
    int64_t *gives = (int64_t *)user;

    *gives = atoll_recv(self, self, 1, data, 1, NULL);
    return NULL;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    struct timespec moment = {0, 50000000};
    pthread_t thread;
    uint64_t began;
    int64_t gave = 0;
    int error;

    start();
    GIVES(-EINVAL, atoll_finish(self, 2));
    GIVES(-EINVAL, atoll_finish(self, -1));
    meet();
    if (strcmp(how, "wait") == 0) {
        /* The long message is received late; it is waited for. */
        fill(data, sizeof data, 1);
        if (self == 0) {
            began = atoll_clock();
            GIVES(0, atoll_send(self, other, 1, data, sizeof data));
            GIVES(0, atoll_finish(self, ATOLL_WAIT));
            CHECK(atoll_clock() - began >= 50000000);
        } else {
            await(0, 1);
            nanosleep(&moment, NULL);
            memset(data, 0, sizeof data);
            GIVES(sizeof data, atoll_recv(self, 0, 1, data, sizeof data, NULL));
            CHECK(is_filled(data, sizeof data, 1));
            GIVES(0, atoll_finish(self, ATOLL_WAIT));
        }
    } else if (strcmp(how, "now") == 0) {
        /* Nobody receives it, and nobody waits for that. */
        if (self == 0)
            GIVES(0, atoll_send(self, other, 1, data, sizeof data));
        else
            /* It is there, or rank 0 has gone with it. */
            while (atoll_probe(self, 0, 1) == 0 && atoll_connect(self, 0) == 0)
                ;
        error = atoll_finish(self, ATOLL_NOW);
        CHECK(error == 0 || error == -ETIMEDOUT);
    } else if (strcmp(how, "lost") == 0) {
        /* Its receiver leaves without it. */
        if (self == 0) {
            GIVES(0, atoll_send(self, other, 1, data, sizeof data));
            GIVES(-EPIPE, atoll_finish(self, ATOLL_WAIT));
        } else {
            await(0, 1);
            GIVES(0, atoll_finish(self, ATOLL_NOW));
        }
    } else {
        /* Another thread is in a call. */
        CHECK(pthread_create(&thread, NULL, waiter, &gave) == 0);
        nanosleep(&moment, NULL);
        GIVES(0, atoll_finish(self, ATOLL_WAIT));
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(gave == -ESHUTDOWN || gave == -EBADF);
    }
    GIVES(-EBADF, atoll_finish(self, ATOLL_WAIT));
    return 0;
}
