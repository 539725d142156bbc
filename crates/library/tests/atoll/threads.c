/* Several threads at once: each has a tag and memory of its own. */
#include "test.h"

#include <pthread.h>

#define THREADS 4
#define EACH 50

static uint64_t words[THREADS], *theirs;

static void *player(void *user)
{
    uint32_t tag = *(uint32_t *)user;
    atoll_header header;
    uint64_t word, i;

    for (i = 1; i <= EACH; i++) {
        word = (uint64_t)tag << 32 | i;
        GIVES(0, atoll_send(self, other, tag, &word, sizeof word));
        if (i % 2 == 0) {
            while (atoll_find_header(self, other, tag, &header) == 0)
                ;
            GIVES(sizeof word, atoll_rcv_desc(self, header.descriptor, &word, sizeof word));
        } else {
            GIVES(sizeof word, atoll_recv(self, ATOLL_ANY, tag, &word, sizeof word, NULL));
        }
        CHECK(word == ((uint64_t)tag << 32 | i));
        GIVES(0, atoll_register_memory(&word, sizeof word));
        GIVES(0, atoll_put(self, other, &word, theirs + tag, sizeof word));
        GIVES(0, atoll_deregister_memory(&word, sizeof word));
    }
    return NULL;
}

int main(void)
{
    pthread_t thread[THREADS];
    uint32_t tag[THREADS], i;

    start();
    GIVES(0, atoll_register_memory(words, sizeof words));
    GIVES(0, atoll_allow_rdma(self, ATOLL_RDMA_PUT));
    theirs = (uint64_t *)(void *)swap_addresses(words);
    meet();
    for (i = 0; i < THREADS; i++) {
        tag[i] = i;
        CHECK(pthread_create(&thread[i], NULL, player, &tag[i]) == 0);
    }
    for (i = 0; i < THREADS; i++)
        CHECK(pthread_join(thread[i], NULL) == 0);
    meet();
    for (i = 0; i < THREADS; i++)
        CHECK(words[i] == ((uint64_t)i << 32 | EACH));
    return stop();
}
