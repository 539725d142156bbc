/* Endpoints outside of a job: several in one process, one beside a job's. */
#include "check.h"

#include <sys/wait.h>
#include <unistd.h>

/* Endpoints that make progress in turn. */
static portolan_endpoint *all[8];
static size_t count_of_all;

static portolan_endpoint *open_with_both(const char *setting, const char *other)
{
    const char *settings[4] = {"interface=lo", NULL, NULL, NULL};
    portolan_endpoint *endpoint = NULL;
    portolan_options options;
    char why[512] = "";

    settings[1] = setting;
    settings[2] = other;
    portolan_options_init(&options);
    options.settings = settings;
    if (portolan_open_standalone(&endpoint, &options, why, sizeof why) != 0) {
        fprintf(stderr, "cannot open: %s\n", why);
        exit(1);
    }
    all[count_of_all++] = endpoint;
    return endpoint;
}

static portolan_endpoint *open_with(const char *setting)
{
    return open_with_both(setting, NULL);
}

/* Makes progress of all until a counter has a value; fails after a minute. */
static void until(const uint64_t *value, uint64_t wanted)
{
    long passes;
    size_t i;

    for (passes = 0; *value < wanted; passes++) {
        CHECK(passes < 600000);
        for (i = 0; i < count_of_all; i++)
            CHECK(portolan_progress(all[i]) >= 0);
        usleep(100);
    }
}

static void close_all(void)
{
    while (count_of_all > 0)
        GIVES(0, portolan_close(all[--count_of_all]));
}

static void listens(portolan_endpoint *endpoint, struct seen *seen)
{
    memset(seen, 0, sizeof *seen);
    seen->endpoint = endpoint;
    bind_seen(endpoint, 1, seen, NULL, 0);
}

static int64_t adds(portolan_endpoint *to, portolan_endpoint *peer)
{
    uint8_t address[PORTOLAN_ADDRESS_BYTES];

    GIVES(0, portolan_address(peer, address));
    return portolan_add_peer(to, address);
}

static void nothing_without_pointers(portolan_endpoint *endpoint)
{
    uint8_t address[PORTOLAN_ADDRESS_BYTES] = {0};

    GIVES(-EFAULT, portolan_open_standalone(NULL, NULL, NULL, 0));
    GIVES(-EFAULT, portolan_address(NULL, address));
    GIVES(-EFAULT, portolan_address(endpoint, NULL));
    GIVES(-EFAULT, portolan_add_peer(NULL, address));
    GIVES(-EFAULT, portolan_add_peer(endpoint, NULL));
    GIVES(-EFAULT, portolan_remove_peer(NULL, 1));
}

static void what_cannot_be_opened(void)
{
    static const struct {
        const char *setting;
        int error;
    } wrong[] = {
        {"no_such=1", -EINVAL},     {"link=tcp", -EINVAL},     {"peers_max=0", -EINVAL},
        {"unknown_peers=maybe", -EINVAL}, {"interface=none0", -EINVAL}, {"port", -EINVAL},
        {"job_secret_file=/none", -EINVAL}, {"address=192.0.2.1", -EINVAL},
    };
    portolan_endpoint *none = (portolan_endpoint *)&none;
    const char *settings[2] = {NULL, NULL};
    portolan_options options;
    char why[512], port[32];
    size_t i;

    memset(&options, 0, sizeof options);
    GIVES(-EINVAL, portolan_open_standalone(&none, &options, why, sizeof why));
    CHECK(none == NULL && strstr(why, "portolan_options_init") != NULL);
    portolan_options_init(&options);
    options.settings = settings;
    for (i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        why[0] = 0;
        settings[0] = wrong[i].setting;
        GIVES(wrong[i].error, portolan_open_standalone(&none, &options, why, sizeof why));
        CHECK(none == NULL && why[0] != 0);
    }
    /* Two cannot have one port; any may be asked for. */
    snprintf(port, sizeof port, "port=%d", 20000 + (int)(getpid() % 10000));
    open_with(port);
    settings[0] = port;
    GIVES(-EADDRINUSE, portolan_open_standalone(&none, &options, why, sizeof why));
    close_all();
}

static void what_cannot_be_added(portolan_endpoint *job)
{
    portolan_endpoint *a = open_with("peers_max=2");
    portolan_endpoint *b = open_with(NULL);
    portolan_endpoint *c = open_with(NULL);
    portolan_endpoint *d = open_with(NULL);
    uint8_t address[PORTOLAN_ADDRESS_BYTES] = {0};
    int64_t number;

    GIVES(-EINVAL, portolan_add_peer(a, address));
    GIVES(0, portolan_address(job, address));
    GIVES(-EINVAL, portolan_add_peer(a, address));
    GIVES(0, portolan_address(b, address));
    address[sizeof address - 1] ^= 1;
    GIVES(-EINVAL, portolan_add_peer(a, address));
    GIVES(-EINVAL, adds(a, a));
    GIVES(-EOPNOTSUPP, adds(job, a));
    GIVES(-EOPNOTSUPP, portolan_remove_peer(job, 0));

    GIVES(1, adds(a, b));
    GIVES(1, adds(a, b));
    GIVES(2, adds(a, c));
    GIVES(-ENOSPC, adds(a, d));
    /* Its place is free once that is settled. */
    GIVES(0, portolan_remove_peer(a, 1));
    while ((number = adds(a, d)) == -ENOSPC)
        CHECK(portolan_progress(a) >= 0);
    GIVES(1, number);
    GIVES(-ENXIO, portolan_remove_peer(a, 0));
    GIVES(-ENXIO, portolan_remove_peer(a, 3));
    GIVES(-ENXIO, portolan_send(a, 3, 1, NULL, 0));
    close_all();
}

/* Within a handler. */
static void calls_the_endpoint(portolan_context *context, const portolan_message *m, void *user)
{
    struct seen *seen = (struct seen *)user;

    GIVES(-EDEADLK, adds(seen->endpoint, all[0]));
    GIVES(-EDEADLK, portolan_remove_peer(seen->endpoint, m->from));
    GIVES(0, portolan_context_rank(context));
    GIVES(0, portolan_reply(context, 1, NULL, 0, m->payload, m->bytes));
    seen->from = m->from;
    seen->messages++;
}

static void what_needs_a_job(portolan_endpoint *a)
{
    portolan_group *group = NULL;
    uint32_t myself = 0;

    GIVES(0, portolan_rank(a));
    GIVES(1, portolan_size(a));
    GIVES(-EOPNOTSUPP, portolan_barrier(a, NULL));
    GIVES(-EOPNOTSUPP, portolan_broadcast(a, NULL, 1, "x", 1, NULL));
    GIVES(-EOPNOTSUPP, portolan_group_open(a, &myself, 1, &group));
    CHECK(group == NULL);
    CHECK(strstr(portolan_strerror(-EOPNOTSUPP), "launcher") != NULL);
}

static void strangers_are_let_in(void)
{
    portolan_endpoint *a = open_with(NULL);
    portolan_endpoint *b = open_with(NULL);
    struct seen at_a, at_b, told;
    portolan_binding binding;
    uint8_t one[PORTOLAN_ADDRESS_BYTES], two[PORTOLAN_ADDRESS_BYTES];
    uint32_t there, back;
    char lane[64];

    what_needs_a_job(a);
    GIVES(0, portolan_address(a, one));
    GIVES(0, portolan_address(b, two));
    CHECK(memcmp(one, two, sizeof one) != 0);
    listens(a, &at_a);
    memset(&at_b, 0, sizeof at_b);
    memset(&told, 0, sizeof told);
    at_b.endpoint = b;
    portolan_binding_init(&binding);
    binding.handler = calls_the_endpoint;
    binding.error_handler = note;
    binding.user = &at_b;
    GIVES(0, portolan_bind(b, 1, &binding));
    GIVES(0, portolan_on_error(b, note, &told));

    there = (uint32_t)adds(a, b);
    GIVES(0, portolan_send(a, there, 1, "ahoy", 4));
    until(&at_a.messages, 1);
    CHECK(at_a.from == there && at_a.bytes == 4 && memcmp(at_a.text, "ahoy", 4) == 0);
    back = at_b.from;
    CHECK(told.events == 1 && told.event.kind == PORTOLAN_PEER_COME && told.event.rank == back);
    CHECK(at_b.events == 1 && at_b.event.kind == PORTOLAN_PEER_COME && at_b.event.rank == back);
    /* The caller says by what: PORTOLAN_LINK is udp, or nothing is said. */
    CHECK(portolan_lane(a, there, lane, sizeof lane) > 0);
    CHECK(strncmp(lane, getenv("PORTOLAN_LINK") != NULL ? "udp" : "shm", 3) == 0);
    GIVES(back, adds(b, a));

    /* Removed: who sends on is told, and then is nobody. */
    GIVES(0, portolan_on_error(a, note, &at_a));
    GIVES(0, portolan_remove_peer(b, back));
    GIVES(-ENXIO, portolan_send(b, back, 1, NULL, 0));
    until(&at_a.events, 1);
    CHECK(at_a.event.kind == PORTOLAN_PEER_DEAD && at_a.event.rank == there);
    GIVES(-ENOTCONN, at_a.event.error);
    GIVES(-ENOTCONN, portolan_send(a, there, 1, NULL, 0));
    GIVES(-ENXIO, portolan_remove_peer(b, back));
    close_all();
}

static int ended_of(portolan_endpoint *endpoint, uint64_t op)
{
    portolan_completion completion;
    uint64_t is_over = 0;
    long passes;
    size_t i;

    portolan_completion_init(&completion);
    for (passes = 0; is_over == 0; passes++) {
        CHECK(passes < 600000);
        for (i = 0; i < count_of_all; i++)
            CHECK(portolan_progress(all[i]) >= 0);
        is_over = portolan_operation_test(endpoint, op, &completion) == 1;
    }
    return completion.error;
}

/* Matched messages and memory, long and short. */
static void all_that_a_job_has_but_collective_calls(void)
{
    static char out[300000], in[300000];
    static const size_t lengths[] = {8, 3000, sizeof out};
    portolan_endpoint *a = open_with(NULL);
    portolan_endpoint *b = open_with(NULL);
    struct seen at_b;
    portolan_region_options options;
    portolan_remote_key key;
    uint64_t sends = 0, receives = 0, region = 0;
    uint32_t there, back;
    size_t i;

    listens(b, &at_b);
    there = (uint32_t)adds(a, b);
    GIVES(0, portolan_send(a, there, 1, NULL, 0));
    until(&at_b.messages, 1);
    back = at_b.from;
    memset(out, 0x5a, sizeof out);
    for (i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        memset(in, 0, sizeof in);
        GIVES(0, portolan_post_receive(b, back, 7, 0, in, sizeof in, NULL, &receives));
        GIVES(0, portolan_post_send(a, there, 7, out, lengths[i], NULL, &sends));
        GIVES(0, ended_of(b, receives));
        GIVES(0, ended_of(a, sends));
        CHECK(memcmp(in, out, lengths[i]) == 0);
    }
    portolan_region_options_init(&options);
    options.rights = PORTOLAN_MAY_GET | PORTOLAN_MAY_PUT;
    GIVES(0, portolan_register(b, in, sizeof in, &options, &region));
    GIVES(0, portolan_region_key(b, region, &key));
    memset(in, 0, sizeof in);
    GIVES(0, portolan_post_put(a, there, &key, 0, out, sizeof out, NULL, &sends));
    GIVES(0, ended_of(a, sends));
    CHECK(memcmp(in, out, sizeof out) == 0);
    memset(out, 0, sizeof out);
    GIVES(0, portolan_post_get(a, there, &key, 0, out, sizeof out, NULL, &receives));
    GIVES(0, ended_of(a, receives));
    CHECK(memcmp(in, out, sizeof out) == 0);
    GIVES(0, portolan_deregister(b, region));
    GIVES(-ENXIO, portolan_post_receive(b, 9, 7, 0, in, sizeof in, NULL, &receives));
    GIVES(-ENXIO, portolan_probe(b, 9, 7, 0, NULL));
    GIVES(-ENXIO, portolan_fence(b, 9));
    GIVES(0, portolan_fence(b, back));
    close_all();
}

static void who_closes_or_falls_silent_is_dead(void)
{
    portolan_endpoint *a = open_with(NULL);
    portolan_endpoint *b = open_with(NULL);
    struct seen at_a, at_b;
    portolan_completion completion;
    uint8_t gone[PORTOLAN_ADDRESS_BYTES];
    uint64_t op = 0;
    char data[8] = {0};
    uint32_t there;

    listens(a, &at_a);
    listens(b, &at_b);
    there = (uint32_t)adds(a, b);
    GIVES(0, portolan_send(a, there, 1, "x", 1));
    until(&at_b.messages, 1);
    /* A receive from it ends with it. */
    GIVES(0, portolan_post_receive(a, there, 9, 0, data, sizeof data, NULL, &op));
    GIVES(0, portolan_address(b, gone));
    GIVES(0, portolan_close(b));
    count_of_all--;
    until(&at_a.events, 1);
    CHECK(at_a.event.kind == PORTOLAN_PEER_DEAD && at_a.event.rank == there);
    GIVES(-EPIPE, at_a.event.error);
    portolan_completion_init(&completion);
    GIVES(1, portolan_operation_test(a, op, &completion));
    GIVES(-EPIPE, completion.error);
    GIVES(-EPIPE, portolan_send(a, there, 1, "x", 1));
    GIVES(0, portolan_remove_peer(a, there));
    GIVES(-ENXIO, portolan_send(a, there, 1, "x", 1));
    close_all();
}

static void strangers_can_be_refused(void)
{
    portolan_endpoint *a = open_with_both("silence_ms=1000", "join_ms=60000");
    portolan_endpoint *b = open_with("unknown_peers=refuse");
    struct seen at_a, at_b;
    portolan_counters counters;

    listens(a, &at_a);
    listens(b, &at_b);
    GIVES(0, portolan_on_error(a, note, &at_a));
    GIVES(0, portolan_send(a, (uint32_t)adds(a, b), 1, "x", 1));
    /* It is tried on and on; that it is silent is told after a second. */
    until(&at_a.events, 1);
    CHECK(at_a.event.kind == PORTOLAN_PEER_SILENT && at_b.messages == 0);
    portolan_counters_init(&counters);
    GIVES(0, portolan_counters_read(b, &counters));
    CHECK(counters.packets_dropped > 0);
    /* Once it is added there, it is heard. */
    GIVES(1, adds(b, a));
    until(&at_b.messages, 1);
    GIVES(1, at_b.from);
    close_all();
}

static void a_child_has_none(void)
{
    portolan_endpoint *a = open_with(NULL);
    uint8_t address[PORTOLAN_ADDRESS_BYTES];
    pid_t child;
    int status = -1;

    open_with(NULL);
    GIVES(0, portolan_address(all[1], address));
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        GIVES(-ECHILD, portolan_add_peer(a, address));
        GIVES(-ECHILD, portolan_remove_peer(a, 1));
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    close_all();
}

int main(void)
{
    portolan_endpoint *job = open_plain(PORTOLAN_THREADS_SINGLE, PORTOLAN_HELPER_ON);

    nothing_without_pointers(job);
    what_cannot_be_opened();
    what_cannot_be_added(job);
    strangers_are_let_in();
    all_that_a_job_has_but_collective_calls();
    who_closes_or_falls_silent_is_dead();
    strangers_can_be_refused();
    a_child_has_none();
    GIVES(0, portolan_barrier(job, NULL));
    GIVES(0, portolan_close(job));
    printf("peers: all is well\n");
    return 0;
}
