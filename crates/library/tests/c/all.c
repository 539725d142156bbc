/* The native interface, matched messages and ATOLL in one program, and a space of the
 * program's own: of one tag, on the same ports, at once. The first argument says who
 * opens the endpoint. */
#include "check.h"

#include "bytes.h"

#include <atoll.h>
#include <portolan_matched.h>

#define ROUNDS 120
#define LONG 70000
#define TAG 7

/* What sends, of which each is to see its own alone. */
enum way { PORT_1, PORT_2, TAGGED, SPACE_PORT, SPACE_TAGGED, ATOLL, WAYS };

static portolan_endpoint *endpoint, *space;
static uint32_t me, other;
static uint32_t heard[WAYS];

static size_t length_of(uint32_t round)
{
    static const size_t lengths[] = {8, 3000, 40, LONG};

    return lengths[round % 4];
}

static uint32_t seed_of(uint32_t rank, enum way way, uint32_t round)
{
    return (rank * WAYS + (uint32_t)way) * ROUNDS + round;
}

static void is_own(enum way way, const void *data, size_t bytes)
{
    const uint32_t round = heard[way]++;

    CHECK(bytes == length_of(round));
    CHECK(is_filled((const unsigned char *)data, bytes, seed_of(other, way, round)));
}

static void hears(portolan_context *context, const portolan_message *m, void *user)
{
    CHECK(context != NULL && m->from == other && m->flow == 0);
    is_own(*(const enum way *)user, m->payload, m->bytes);
}

static void bind_to(portolan_endpoint *at, uint16_t port, const enum way *way)
{
    portolan_binding binding;

    portolan_binding_init(&binding);
    binding.handler = hears;
    binding.user = (void *)(uintptr_t)way;
    GIVES(0, portolan_bind(at, port, &binding));
}

static int all_heard(void *user)
{
    const uint32_t rounds = *(const uint32_t *)user;

    return heard[PORT_1] >= rounds && heard[PORT_2] >= rounds && heard[SPACE_PORT] >= rounds;
}

static void begin_atoll(void)
{
    char why[512];
    const atoll_id self = atoll_init();

    if (self < 0) {
        atoll_why(why, sizeof why);
        fprintf(stderr, "%s\n", why);
        exit(1);
    }
    CHECK(me == (uint32_t)self || endpoint == NULL);
    GIVES(0, atoll_connect(self, 1 - self));
}

static void round_of_all(uint32_t round)
{
    static unsigned char out[WAYS][LONG], in[WAYS][LONG];
    static const enum way tagged[] = {TAGGED, SPACE_TAGGED};
    portolan_endpoint *const at[] = {endpoint, space};
    const size_t bytes = length_of(round);
    const uint32_t so_far = round + 1;
    uint64_t receives[2], sends[2];
    portolan_completion c;
    int way;
    size_t i;

    for (way = 0; way < WAYS; way++)
        fill(out[way], bytes, seed_of(me, (enum way)way, round));
    for (i = 0; i < 2; i++) {
        GIVES(0, portolan_post_receive(at[i], PORTOLAN_ANY, TAG, 0, in[tagged[i]], LONG, NULL, &receives[i]));
        GIVES(0, portolan_post_send(at[i], other, TAG, out[tagged[i]], bytes, NULL, &sends[i]));
    }
    GIVES(0, portolan_send(endpoint, other, 1, out[PORT_1], bytes));
    GIVES(0, portolan_send(space, other, 1, out[SPACE_PORT], bytes));
    GIVES(0, atoll_send((atoll_id)me, (atoll_id)other, TAG, out[ATOLL], bytes));
    GIVES(0, portolan_send(endpoint, other, 2, out[PORT_2], bytes));
    GIVES(bytes, atoll_recv((atoll_id)me, ATOLL_ANY, TAG, in[ATOLL], LONG, NULL));
    is_own(ATOLL, in[ATOLL], bytes);
    for (i = 0; i < 2; i++) {
        portolan_completion_init(&c);
        GIVES(1, portolan_operation_wait(at[i], receives[i], &c, -1));
        CHECK(c.error == 0 && c.peer == other && c.tag == TAG);
        is_own(tagged[i], in[tagged[i]], c.bytes);
        portolan_completion_init(&c);
        GIVES(1, portolan_operation_wait(at[i], sends[i], &c, -1));
        CHECK(c.error == 0);
    }
    GIVES(0, portolan_wait_until(endpoint, all_heard, (void *)(uintptr_t)&so_far, -1));
}

int main(int argc, char **argv)
{
    static const enum way ways[] = {PORT_1, PORT_2, SPACE_PORT};
    static unsigned char window[64], own[64];
    const int atoll_first = argc > 1 && strcmp(argv[1], "atoll") == 0;
    portolan_endpoint *none;
    uint64_t address, theirs;
    uint32_t round;

    if (atoll_first)
        begin_atoll();
    endpoint = open_plain(PORTOLAN_THREADS_MULTIPLE, PORTOLAN_HELPER_DEFAULT);
    me = (uint32_t)portolan_rank(endpoint);
    other = 1 - me;
    if (!atoll_first)
        begin_atoll();
    /* Each space once, of those that there are. */
    GIVES(-EALREADY, portolan_space(endpoint, PORTOLAN_SPACE_ATOLL, &none));
    GIVES(-EALREADY, portolan_space(endpoint, PORTOLAN_SPACE_PROGRAM, &none));
    GIVES(-ENOENT, portolan_space(endpoint, 9, &none));
    GIVES(-EFAULT, portolan_space(endpoint, PORTOLAN_SPACE_FREE_1, NULL));
    CHECK(none == NULL);
    GIVES(0, portolan_space(endpoint, PORTOLAN_SPACE_FREE_2, &space));
    GIVES(me, portolan_rank(space));
    bind_to(endpoint, 1, &ways[0]);
    bind_to(endpoint, 2, &ways[1]);
    bind_to(space, 1, &ways[2]);
    for (round = 0; round < ROUNDS; round++)
        round_of_all(round);

    /* ATOLL's memory, with its questions on ports of its own. */
    GIVES(0, atoll_register_memory(window, sizeof window));
    GIVES(0, atoll_register_memory(own, sizeof own));
    GIVES(0, atoll_allow_rdma((atoll_id)me, ATOLL_RDMA_PUT));
    address = (uint64_t)(uintptr_t)window;
    GIVES(0, atoll_send((atoll_id)me, (atoll_id)other, 1, &address, sizeof address));
    GIVES(sizeof theirs, atoll_recv((atoll_id)me, (atoll_id)other, 1, &theirs, sizeof theirs, NULL));
    memset(own, 5, sizeof own);
    GIVES(0, atoll_put((atoll_id)me, (atoll_id)other, own, (void *)(uintptr_t)theirs, sizeof own));
    GIVES(0, portolan_barrier(space, NULL));
    CHECK(window[0] == 5 && window[63] == 5);

    /* The last one closes the endpoint. */
    GIVES(0, portolan_close(space));
    if (atoll_first) {
        GIVES(0, portolan_close(endpoint));
        GIVES(0, atoll_send((atoll_id)me, (atoll_id)other, 2, NULL, 0));
        GIVES(0, atoll_recv((atoll_id)me, (atoll_id)other, 2, NULL, 0, NULL));
        GIVES(0, atoll_finish((atoll_id)me, ATOLL_WAIT));
    } else {
        /* Whoever waits for a host port that closes is told, though its process goes on. */
        if (me == 1)
            GIVES(-EPIPE, atoll_recv((atoll_id)me, (atoll_id)other, 3, NULL, 0, NULL));
        GIVES(0, atoll_finish((atoll_id)me, ATOLL_WAIT));
        GIVES(0, portolan_barrier(endpoint, NULL));
        GIVES(0, portolan_close(endpoint));
    }
    return 0;
}
