/* Two ranks: `pair plain` and `pair threads`. */
#include "check.h"

#include "bytes.h"

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#define BIG (5u << 20)

static portolan_endpoint *endpoint;
static uint32_t me, other;

static void barrier(void)
{
    GIVES(0, portolan_barrier(endpoint, NULL));
}

/* Answers at port 2 with its first word plus one, and the payload turned. */
static void answer(portolan_context *context, const portolan_message *m, void *user)
{
    uint64_t word = portolan_arg(m, 0) + 1;
    char turned[2];

    (void)user;
    turned[0] = ((const char *)m->payload)[1];
    turned[1] = ((const char *)m->payload)[0];
    GIVES(0, portolan_reply(context, 2, &word, 1, turned, 2));
}

static void questions(void)
{
    struct seen answers;
    portolan_binding binding;
    portolan_send_options options;
    uint64_t word;

    memset(&answers, 0, sizeof answers);
    bind_seen(endpoint, 2, &answers, NULL, 0);
    portolan_binding_init(&binding);
    binding.handler = answer;
    GIVES(0, portolan_bind(endpoint, 1, &binding));
    portolan_send_options_init(&options);
    options.args = &word;
    options.arg_count = 1;
    options.flow = 5;
    for (word = 0; word < 500; word++) {
        GIVES(0, portolan_sendx(endpoint, other, 1, "ab", 2, &options));
        await_messages(endpoint, &answers, word + 1);
        CHECK(answers.from == other && answers.args[0] == word + 1);
        CHECK(answers.flow == 5 && answers.priority == PORTOLAN_REPLY);
        CHECK(memcmp(answers.text, "ba", 2) == 0);
    }
    barrier();
    GIVES(0, portolan_unbind(endpoint, 1));
    GIVES(0, portolan_unbind(endpoint, 2));
    barrier();
}

struct order {
    uint64_t next;
    uint64_t wrong;
};

static void in_order(portolan_context *context, const portolan_message *m, void *user)
{
    struct order *order = (struct order *)user;
    uint64_t number;

    (void)context;
    memcpy(&number, m->payload, sizeof number);
    order->wrong += number != order->next;
    order->next++;
}

static int all_came(void *user)
{
    return ((const struct order *)user)->next == 20000;
}

static void a_flood_in_order(void)
{
    struct order order = {0, 0};
    portolan_binding binding;
    uint64_t i;
    int sent;

    portolan_binding_init(&binding);
    binding.handler = in_order;
    binding.user = &order;
    GIVES(0, portolan_bind(endpoint, 3, &binding));
    for (i = 0; i < 20000; i++)
        while ((sent = portolan_try_send(endpoint, other, 3, &i, sizeof i)) != 0) {
            GIVES(-EAGAIN, sent);
            CHECK(portolan_progress(endpoint) >= 0);
        }
    GIVES(0, portolan_wait_until(endpoint, all_came, &order, -1));
    CHECK(order.wrong == 0);
    GIVES(20000, portolan_arrived(endpoint, 3));
    barrier();
    GIVES(0, portolan_unbind(endpoint, 3));
}

/* Both send at once, copying and lending. */
static void long_messages(unsigned char *out, unsigned char *in)
{
    struct seen seen;
    uint64_t op = 0;
    portolan_counters counters;

    memset(&seen, 0, sizeof seen);
    fill(out, BIG, me);
    memset(in, 0, BIG);
    bind_seen(endpoint, 4, &seen, in, BIG);
    barrier();
    GIVES(0, portolan_send(endpoint, other, 4, out, BIG));
    await_messages(endpoint, &seen, 1);
    CHECK(seen.payload == in && seen.bytes == BIG && is_filled(in, BIG, other));
    memset(in, 0, BIG);
    barrier();
    GIVES(0, portolan_post_message(endpoint, other, 4, out, BIG, NULL, &op));
    GIVES(0, ENDED(endpoint, op));
    await_messages(endpoint, &seen, 2);
    CHECK(is_filled(in, BIG, other));
    portolan_counters_init(&counters);
    GIVES(0, portolan_counters_read(endpoint, &counters));
    CHECK(counters.bytes_sent >= 2 * (uint64_t)BIG && counters.bytes_received >= 2 * (uint64_t)BIG);
    barrier();
    GIVES(0, portolan_unbind(endpoint, 4));
}

/* Rank 0 lends to ports of rank 1 that are closed, or not bound yet. */
static void operations_that_do_not_end_well(unsigned char *out, unsigned char *in)
{
    struct seen seen;
    uint64_t op = 0;
    portolan_completion completion;
    portolan_send_options options;

    memset(&seen, 0, sizeof seen);
    if (me == 1)
        GIVES(0, portolan_unbind(endpoint, 5));
    barrier();
    if (me == 0) {
        GIVES(0, portolan_on_error(endpoint, note, &seen));
        GIVES(0, portolan_post_message(endpoint, 1, 5, out, BIG, NULL, &op));
        GIVES(-ECONNREFUSED, ENDED(endpoint, op));
        CHECK(seen.events == 0);
        /* It is longer than what may wait for a port, so all that is behind it
         * waits as well: barriers must not be. */
        portolan_send_options_init(&options);
        options.priority = PORTOLAN_REPLY;
        GIVES(0, portolan_post_message(endpoint, 1, 6, out, BIG, &options, &op));
        portolan_completion_init(&completion);
        GIVES(-ETIMEDOUT, portolan_operation_wait(endpoint, op, &completion, 3000000));
        GIVES(0, portolan_operation_test(endpoint, op, &completion));
        barrier();
        GIVES(0, ENDED(endpoint, op));
        GIVES(0, portolan_on_error(endpoint, NULL, NULL));
    } else {
        barrier();
        bind_seen(endpoint, 6, &seen, in, BIG);
        await_messages(endpoint, &seen, 1);
        CHECK(is_filled(in, BIG, 0));
    }
    barrier();
    GIVES(0, portolan_unbind(endpoint, 6));
}

/* Rank 1 takes the buffer away while a message is in it, if it can see that. */
static void a_buffer_in_use(unsigned char *out, unsigned char *in)
{
    portolan_binding binding;
    uint64_t op = 0;
    unsigned char *spare = (unsigned char *)malloc(BIG);
    unsigned char *bound = in;
    unsigned char *next = spare;
    void *old = in;
    size_t bytes = 0;

    CHECK(spare != NULL);
    portolan_binding_init(&binding);
    binding.buffer = in;
    binding.buffer_bytes = BIG;
    memset(in, 0, BIG);
    memset(spare, 0, BIG);
    GIVES(0, portolan_bind(endpoint, 7, &binding));
    barrier();
    if (me == 0) {
        GIVES(0, portolan_post_message(endpoint, 1, 7, out, BIG, NULL, &op));
        GIVES(0, ENDED(endpoint, op));
    } else {
        /* The message begins in either buffer: the helper thread may take it
         * between any two calls. */
        while (portolan_arrived(endpoint, 7) == 0) {
            GIVES(0, portolan_set_buffer(endpoint, 7, next, BIG, &old));
            if (old == NULL)
                break;
            CHECK(old == bound);
            bound = next;
            next = (unsigned char *)old;
            CHECK(portolan_progress(endpoint) >= 0);
        }
        if (old == NULL) {
            while (portolan_take_buffer(endpoint, 7, &old, &bytes) == 0)
                CHECK(portolan_progress(endpoint) >= 0);
            CHECK(old == bound && bytes == BIG);
            CHECK(is_filled(bound, BIG, 0));
        } else {
            CHECK(is_filled(in, BIG, 0) || is_filled(spare, BIG, 0));
        }
        GIVES(1, portolan_arrived(endpoint, 7));
    }
    barrier();
    GIVES(0, portolan_unbind(endpoint, 7));
    free(spare);
}

static void to_both(void)
{
    struct seen seen;
    portolan_group *group = NULL;
    uint32_t ranks[2] = {1, 0};

    memset(&seen, 0, sizeof seen);
    GIVES(0, portolan_group_open(endpoint, ranks, 2, &group));
    bind_seen(endpoint, 8, &seen, NULL, 0);
    GIVES(0, portolan_barrier(endpoint, group));
    GIVES(0, portolan_broadcast(endpoint, group, 8, &me, sizeof me, NULL));
    GIVES(0, portolan_broadcast(endpoint, NULL, 8, &me, sizeof me, NULL));
    await_messages(endpoint, &seen, 4);
    GIVES(0, portolan_barrier(endpoint, group));
    portolan_group_free(group);
    GIVES(0, portolan_group_open(endpoint, &other, 1, &group));
    GIVES(-ENXIO, portolan_barrier(endpoint, group));
    portolan_group_free(group);
    barrier();
    GIVES(0, portolan_unbind(endpoint, 8));
}

static void in_any_thread(portolan_context *context, const portolan_message *m, void *user)
{
    (void)m;
    GIVES(0, portolan_reply(context, 10, NULL, 0, NULL, 0));
    __atomic_store_n((int *)user, 1, __ATOMIC_RELEASE);
}

/* Rank 1 makes no call while its helper runs the handler. */
static void helped(void)
{
    struct seen seen;
    portolan_binding binding;
    int flag = 0;

    memset(&seen, 0, sizeof seen);
    portolan_binding_init(&binding);
    binding.flags = PORTOLAN_ANY_THREAD;
    binding.handler = in_any_thread;
    binding.user = &flag;
    GIVES(0, portolan_bind(endpoint, 9, &binding));
    bind_seen(endpoint, 10, &seen, NULL, 0);
    barrier();
    if (me == 0) {
        GIVES(0, portolan_send(endpoint, 1, 9, NULL, 0));
        await_messages(endpoint, &seen, 1);
    } else {
        while (__atomic_load_n(&flag, __ATOMIC_ACQUIRE) == 0)
            usleep(1000);
    }
    barrier();
    GIVES(0, portolan_unbind(endpoint, 9));
    GIVES(0, portolan_unbind(endpoint, 10));
}

/* Rank 1 sleeps at the descriptor. */
static void descriptor(void)
{
    struct seen seen;
    struct pollfd wait;

    memset(&seen, 0, sizeof seen);
    bind_seen(endpoint, 11, &seen, NULL, 0);
    barrier();
    if (me == 0) {
        GIVES(0, portolan_send(endpoint, 1, 11, "wake", 4));
    } else {
        wait.fd = portolan_fd(endpoint);
        wait.events = POLLIN;
        while (seen.messages == 0) {
            if (portolan_arm(endpoint) == 1)
                CHECK(poll(&wait, 1, 20000) == 1);
            CHECK(portolan_progress(endpoint) >= 0);
        }
    }
    barrier();
    GIVES(0, portolan_unbind(endpoint, 11));
}

/* Rank 1 leaves first. */
static void the_end(unsigned char *out)
{
    struct seen of_endpoint, of_port;
    uint64_t op = 0;
    char text[128];

    memset(&of_endpoint, 0, sizeof of_endpoint);
    memset(&of_port, 0, sizeof of_port);
    if (me == 1) {
        GIVES(0, portolan_close(endpoint));
        return;
    }
    GIVES(0, portolan_on_error(endpoint, note, &of_endpoint));
    bind_seen(endpoint, 12, &of_port, NULL, 0);
    /* The death ends the wait, for nobody else is left. */
    GIVES(-EPIPE, portolan_wait_until(endpoint, never, NULL, -1));
    CHECK(of_endpoint.events == 1 && of_endpoint.event.kind == PORTOLAN_PEER_DEAD);
    CHECK(of_endpoint.event.rank == 1 && of_endpoint.event.error == -EPIPE);
    CHECK(of_port.events == 1 && of_port.event.kind == PORTOLAN_PEER_DEAD);
    GIVES(-ETIMEDOUT, portolan_wait_until(endpoint, never, NULL, 1000000));
    GIVES(-EPIPE, portolan_send(endpoint, 1, 1, "x", 1));
    GIVES(-EPIPE, portolan_post_message(endpoint, 1, 1, out, BIG, NULL, &op));
    GIVES(-EPIPE, portolan_barrier(endpoint, NULL));
    CHECK(portolan_lane(endpoint, 1, text, sizeof text) > 0 && strncmp(text, "dead", 4) == 0);
    GIVES(0, portolan_close(endpoint));
}

static void plain(void)
{
    unsigned char *out = (unsigned char *)malloc(BIG), *in = (unsigned char *)malloc(BIG);

    CHECK(out != NULL && in != NULL);
    questions();
    a_flood_in_order();
    long_messages(out, in);
    operations_that_do_not_end_well(out, in);
    a_buffer_in_use(out, in);
    to_both();
    helped();
    descriptor();
    the_end(out);
    free(out);
    free(in);
}

#define THREADS 4
#define EACH 500

static void *sender(void *user)
{
    struct seen *seen = (struct seen *)user;
    uint64_t i;

    for (i = 0; i < EACH; i++) {
        GIVES(0, portolan_send(endpoint, other, 1, &i, sizeof i));
        if (i % 16 == 0)
            CHECK(portolan_progress(endpoint) >= 0);
    }
    GIVES(0, portolan_wait_until(endpoint, enough_messages, seen, -1));
    return NULL;
}

/* All threads of both ranks send, and wait for all that comes. */
static void threads(void)
{
    struct seen seen;
    pthread_t thread[THREADS];
    int i;

    memset(&seen, 0, sizeof seen);
    bind_seen(endpoint, 1, &seen, NULL, 0);
    seen.wanted = (uint64_t)THREADS * EACH;
    barrier();
    for (i = 0; i < THREADS; i++)
        CHECK(pthread_create(&thread[i], NULL, sender, &seen) == 0);
    for (i = 0; i < THREADS; i++)
        CHECK(pthread_join(thread[i], NULL) == 0);
    CHECK(seen.messages == (uint64_t)THREADS * EACH);
    barrier();
    GIVES(0, portolan_close(endpoint));
}

int main(int argc, char **argv)
{
    int many = argc > 1 && strcmp(argv[1], "threads") == 0;

    endpoint = open_plain(many ? PORTOLAN_THREADS_MULTIPLE : PORTOLAN_THREADS_SINGLE,
                          PORTOLAN_HELPER_ON);
    me = (uint32_t)portolan_rank(endpoint);
    GIVES(2, portolan_size(endpoint));
    other = 1 - me;
    if (many)
        threads();
    else
        plain();
    printf("pair, rank %u: all is well\n", me);
    return 0;
}
