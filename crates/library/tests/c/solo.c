/* Every call of portolan.h and its edges, in a job of one. */
#include "check.h"

#include <poll.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static portolan_endpoint *endpoint;

static void versions_and_texts(void)
{
    char text[32];

    /* Programs of today must work with later libraries: these only grow. */
    if (sizeof(void *) == 8) {
        CHECK(sizeof(portolan_options) == 40 && sizeof(portolan_binding) == 56);
        CHECK(sizeof(portolan_send_options) == 56 && sizeof(portolan_counters) == 136);
        CHECK(sizeof(portolan_message) == 56 && sizeof(portolan_event) == 56);
    }
    CHECK(portolan_version_number() == PORTOLAN_VERSION_NUMBER);
    snprintf(text, sizeof text, "%d.%d.%d", PORTOLAN_VERSION_MAJOR, PORTOLAN_VERSION_MINOR,
             PORTOLAN_VERSION_PATCH);
    CHECK(strcmp(text, portolan_version()) == 0);
    CHECK(strstr(portolan_strerror(-EAGAIN), "credit") != NULL);
    CHECK(portolan_strerror(EAGAIN) == portolan_strerror(-EAGAIN));
    CHECK(portolan_strerror(-EILSEQ) != NULL && portolan_strerror(0) != NULL);
}

static void nothing_without_a_handle(void)
{
    portolan_binding binding;
    portolan_counters counters;
    portolan_group *group = NULL;
    uint64_t op = 0;
    uint32_t rank = 0;

    portolan_binding_init(&binding);
    portolan_counters_init(&counters);
    GIVES(-EFAULT, portolan_open(NULL, NULL, NULL, 0));
    GIVES(0, portolan_close(NULL));
    GIVES(-EFAULT, portolan_rank(NULL));
    GIVES(-EFAULT, portolan_size(NULL));
    GIVES(-EFAULT, portolan_lane(NULL, 0, NULL, 0));
    GIVES(-EFAULT, portolan_bind(NULL, 1, &binding));
    GIVES(-EFAULT, portolan_unbind(NULL, 1));
    GIVES(-EFAULT, portolan_set_buffer(NULL, 1, NULL, 0, NULL));
    GIVES(-EFAULT, portolan_take_buffer(NULL, 1, NULL, NULL));
    GIVES(-EFAULT, portolan_arrived(NULL, 1));
    GIVES(-EFAULT, portolan_on_error(NULL, NULL, NULL));
    GIVES(-EFAULT, portolan_send(NULL, 0, 1, NULL, 0));
    GIVES(-EFAULT, portolan_try_send(NULL, 0, 1, NULL, 0));
    GIVES(-EFAULT, portolan_sendx(NULL, 0, 1, NULL, 0, NULL));
    GIVES(-EFAULT, portolan_post_message(NULL, 0, 1, NULL, 0, NULL, &op));
    GIVES(-EFAULT, portolan_operation_forget(NULL, op));
    GIVES(-EFAULT, portolan_context_post_message(NULL, 0, 1, NULL, 0, NULL, &op));
    GIVES(-EFAULT, portolan_progress(NULL));
    GIVES(-EFAULT, portolan_wait_until(NULL, never, NULL, 0));
    GIVES(-EFAULT, portolan_fd(NULL));
    GIVES(-EFAULT, portolan_arm(NULL));
    GIVES(-EFAULT, portolan_group_open(NULL, &rank, 1, &group));
    portolan_group_free(NULL);
    GIVES(-EFAULT, portolan_barrier(NULL, NULL));
    GIVES(-EFAULT, portolan_broadcast(NULL, NULL, 1, NULL, 0, NULL));
    GIVES(-EFAULT, portolan_context_rank(NULL));
    GIVES(-EFAULT, portolan_context_size(NULL));
    GIVES(-EFAULT, portolan_reply(NULL, 1, NULL, 0, NULL, 0));
    GIVES(-EFAULT, portolan_context_send(NULL, 0, 1, NULL, 0, NULL));
    GIVES(-EFAULT, portolan_context_bind(NULL, 1, &binding));
    GIVES(-EFAULT, portolan_context_unbind(NULL, 1));
    GIVES(-EFAULT, portolan_context_set_buffer(NULL, 1, NULL, 0, NULL));
    GIVES(-EFAULT, portolan_counters_read(NULL, &counters));
    GIVES(-EFAULT, portolan_ending(NULL, NULL, 0));
    GIVES(-EFAULT, portolan_peer_died(NULL, 0));
    GIVES(-EFAULT, portolan_restarts(NULL, 0));
    GIVES(-EFAULT, portolan_context_restarts(NULL, 0));
    CHECK(portolan_arg(NULL, 0) == 0);
}

/* A structure of a later library. */
struct longer {
    portolan_options known;
    uint64_t unknown;
};

static void options_that_cannot_be(void)
{
    portolan_endpoint *none = (portolan_endpoint *)&none;
    portolan_options options;
    struct longer later;
    const char *settings[] = {"takeover_us=70", "close_ms", NULL};
    char why[512];

    memset(&options, 0, sizeof options);
    GIVES(-EINVAL, portolan_open(&none, &options, why, sizeof why));
    CHECK(none == NULL && strstr(why, "portolan_options_init") != NULL);
    memset(&options, 0xff, sizeof options);
    GIVES(-EINVAL, portolan_open(&none, &options, NULL, 0));

    portolan_options_init(&options);
    options.threads = 4;
    GIVES(-EINVAL, portolan_open(&none, &options, why, sizeof why));
    CHECK(strstr(why, "threads") != NULL);
    /* The reason is cut, with its final 0. */
    memset(why, 'x', sizeof why);
    GIVES(-EINVAL, portolan_open(&none, &options, why, 8));
    CHECK(strlen(why) == 7 && why[8] == 'x');
    portolan_options_init(&options);
    options.helper = 3;
    GIVES(-EINVAL, portolan_open(&none, &options, why, sizeof why));
    CHECK(strstr(why, "helper") != NULL);
    portolan_options_init(&options);
    options.reserved = 1;
    GIVES(-EINVAL, portolan_open(&none, &options, NULL, 0));
    portolan_options_init(&options);
    options.settings = settings;
    GIVES(-EINVAL, portolan_open(&none, &options, why, sizeof why));
    CHECK(strstr(why, "close_ms") != NULL && strstr(why, "NAME=VALUE") != NULL);
    settings[1] = "no_such=1";
    GIVES(-EINVAL, portolan_open(&none, &options, why, sizeof why));
    CHECK(strstr(why, "no_such") != NULL);
    settings[1] = "close_ms=soon";
    GIVES(-EINVAL, portolan_open(&none, &options, why, sizeof why));
    CHECK(strstr(why, "soon") != NULL);

    memset(&later, 0, sizeof later);
    later.known.size = sizeof later;
    later.unknown = 1;
    GIVES(-E2BIG, portolan_open(&none, &later.known, why, sizeof why));
    later.unknown = 0;
    GIVES(0, portolan_open(&none, &later.known, why, sizeof why));
    GIVES(0, portolan_close(none));
    /* One of an earlier library: what follows `size` bytes is not looked at. */
    memset(&options, 0xff, sizeof options);
    options.size = offsetof(portolan_options, helper);
    options.threads = PORTOLAN_THREADS_SINGLE;
    GIVES(0, portolan_open(&none, &options, NULL, 0));
    GIVES(0, portolan_close(none));
    portolan_options_init(&options);
    settings[1] = "spin_passes=10";
    options.helper = PORTOLAN_HELPER_OFF;
    options.takeover_us = 100;
    options.close_ms = 1000;
    options.settings = settings;
    GIVES(0, portolan_open(&none, &options, NULL, 0));
    GIVES(0, portolan_close(none));
}

static void who_we_are(void)
{
    char text[256];
    int whole;

    GIVES(0, portolan_rank(endpoint));
    GIVES(1, portolan_size(endpoint));
    whole = portolan_lane(endpoint, 0, text, sizeof text);
    CHECK(whole > 5 && (size_t)whole == strlen(text) && strncmp(text, "self: ", 6) == 0);
    GIVES(whole, portolan_lane(endpoint, 0, text, 5));
    CHECK(strcmp(text, "self") == 0);
    GIVES(whole, portolan_lane(endpoint, 0, NULL, 0));
    GIVES(-ENXIO, portolan_lane(endpoint, 1, text, sizeof text));
    GIVES(0, portolan_ending(endpoint, text, sizeof text));
    GIVES(0, portolan_restarts(endpoint, 0));
    GIVES(-ENXIO, portolan_restarts(endpoint, 1));
    GIVES(-ENXIO, portolan_peer_died(endpoint, 0));
    GIVES(-ENXIO, portolan_peer_died(endpoint, 7));
}

static void messages_to_ourselves(void)
{
    struct seen seen;
    portolan_send_options options;
    uint64_t args[PORTOLAN_ARGS_MAX + 1];
    uint32_t i, first, second;

    memset(&seen, 0, sizeof seen);
    for (i = 0; i <= PORTOLAN_ARGS_MAX; i++)
        args[i] = 0x0123456789abcdefu * (i + 1);

    /* It waits for the port, then for progress. */
    GIVES(0, portolan_send(endpoint, 0, 7, "early", 5));
    GIVES(0, portolan_arrived(endpoint, 7));
    bind_seen(endpoint, 7, &seen, NULL, 0);
    await_messages(endpoint, &seen, 1);
    CHECK(seen.bytes == 5 && memcmp(seen.text, "early", 5) == 0 && seen.arg_count == 0);
    CHECK(seen.from == 0 && seen.port == 7 && seen.flow == 0 && seen.priority == PORTOLAN_REQUEST);
    GIVES(1, portolan_arrived(endpoint, 7));

    GIVES(0, portolan_try_send(endpoint, 0, 7, NULL, 0));
    await_messages(endpoint, &seen, 2);
    CHECK(seen.bytes == 5);

    portolan_send_options_init(&options);
    options.flags = PORTOLAN_NOWAIT;
    options.priority = PORTOLAN_REPLY;
    options.flow = PORTOLAN_FLOWS - 1;
    options.args = args;
    options.arg_count = PORTOLAN_ARGS_MAX;
    options.number = &first;
    GIVES(0, portolan_sendx(endpoint, 0, 7, "x", 1, &options));
    await_messages(endpoint, &seen, 3);
    CHECK(seen.priority == PORTOLAN_REPLY && seen.flow == PORTOLAN_FLOWS - 1);
    CHECK(seen.number == first && seen.arg_count == PORTOLAN_ARGS_MAX);
    CHECK(memcmp(seen.args, args, sizeof seen.args) == 0);
    options.flags = 0;
    options.number = &second;
    GIVES(0, portolan_sendx(endpoint, 0, 7, "x", 1, &options));
    CHECK(second != first);
    GIVES(0, portolan_sendx(endpoint, 0, 7, "x", 1, NULL));
    await_messages(endpoint, &seen, 5);

    GIVES(-ENXIO, portolan_send(endpoint, 1, 7, NULL, 0));
    GIVES(-EFAULT, portolan_send(endpoint, 0, 7, NULL, 1));
    GIVES(-EMSGSIZE, portolan_send(endpoint, 0, 7, "x", SIZE_MAX));
    GIVES(-EACCES, portolan_send(endpoint, 0, PORTOLAN_PORTS, "x", 1));
    options.flow = PORTOLAN_FLOWS;
    GIVES(-ERANGE, portolan_sendx(endpoint, 0, 7, NULL, 0, &options));
    options.flow = 1u << 16;
    GIVES(-ERANGE, portolan_sendx(endpoint, 0, 7, NULL, 0, &options));
    options.flow = 0;
    options.arg_count = PORTOLAN_ARGS_MAX + 1;
    GIVES(-E2BIG, portolan_sendx(endpoint, 0, 7, NULL, 0, &options));
    options.arg_count = 1;
    options.args = NULL;
    GIVES(-EFAULT, portolan_sendx(endpoint, 0, 7, NULL, 0, &options));
    options.args = args;
    options.priority = 2;
    GIVES(-EINVAL, portolan_sendx(endpoint, 0, 7, NULL, 0, &options));
    options.priority = 0;
    options.flags = 2;
    GIVES(-EINVAL, portolan_sendx(endpoint, 0, 7, NULL, 0, &options));
    options.flags = 0;
    options.size = 0;
    GIVES(-EINVAL, portolan_sendx(endpoint, 0, 7, NULL, 0, &options));
    GIVES(0, portolan_progress(endpoint));
    CHECK(seen.messages == 5);
    GIVES(0, portolan_unbind(endpoint, 7));
}

static void ports_that_cannot_be(void)
{
    portolan_binding binding;

    portolan_binding_init(&binding);
    GIVES(-EFAULT, portolan_bind(endpoint, 1, NULL));
    GIVES(-EACCES, portolan_bind(endpoint, PORTOLAN_PORTS, &binding));
    GIVES(-EACCES, portolan_unbind(endpoint, 0xffff));
    binding.flags = 2;
    GIVES(-EINVAL, portolan_bind(endpoint, 1, &binding));
    binding.flags = 0;
    binding.buffer_bytes = 1;
    GIVES(-EFAULT, portolan_bind(endpoint, 1, &binding));
    binding.buffer = &binding;
    binding.buffer_bytes = SIZE_MAX;
    GIVES(-EMSGSIZE, portolan_bind(endpoint, 1, &binding));
    binding.size = 3;
    GIVES(-EINVAL, portolan_bind(endpoint, 1, &binding));
    GIVES(-EFAULT, portolan_set_buffer(endpoint, 1, NULL, 1, NULL));
}

static void refusals(void)
{
    struct seen errors, seen;
    portolan_send_options options;
    unsigned char buffer[8];
    uint32_t number = 99;

    memset(&errors, 0, sizeof errors);
    memset(&seen, 0, sizeof seen);
    GIVES(0, portolan_on_error(endpoint, note, &errors));
    GIVES(0, portolan_unbind(endpoint, 8));
    portolan_send_options_init(&options);
    options.flow = 3;
    options.priority = PORTOLAN_REPLY;
    options.number = &number;
    GIVES(0, portolan_sendx(endpoint, 0, 8, "x", 1, &options));
    await_events(endpoint, &errors, 1);
    CHECK(errors.event.kind == PORTOLAN_REFUSED && errors.event.rank == 0);
    CHECK(errors.event.flow == 3 && errors.event.priority == PORTOLAN_REPLY);
    CHECK(errors.event.number == number && errors.event.error == 0);

    /* Longer than the buffer: the port is told, and the sender. */
    bind_seen(endpoint, 8, &seen, buffer, sizeof buffer);
    GIVES(0, portolan_send(endpoint, 0, 8, "nine char", 9));
    await_events(endpoint, &errors, 2);
    CHECK(errors.event.kind == PORTOLAN_REFUSED);
    CHECK(seen.events == 1 && seen.event.kind == PORTOLAN_TOO_LONG && seen.event.port == 8);
    CHECK(seen.event.bytes == 9 && seen.event.room == 8 && seen.messages == 0);
    GIVES(0, portolan_send(endpoint, 0, 8, "8 chars!", 8));
    await_messages(endpoint, &seen, 1);
    CHECK(seen.payload == buffer && memcmp(buffer, "8 chars!", 8) == 0);

    GIVES(0, portolan_unbind(endpoint, 8));
    GIVES(0, portolan_on_error(endpoint, NULL, NULL));
    GIVES(0, portolan_send(endpoint, 0, 8, "x", 1));
    while (portolan_progress(endpoint) > 0) {
    }
    CHECK(errors.events == 2);
}

static void buffers(void)
{
    portolan_binding binding;
    char one[16], two[16];
    void *old = endpoint;
    size_t bytes = 77;

    /* Without a handler: written and counted. */
    portolan_binding_init(&binding);
    binding.buffer = one;
    binding.buffer_bytes = sizeof one;
    GIVES(0, portolan_bind(endpoint, 9, &binding));
    GIVES(0, portolan_send(endpoint, 0, 9, "first", 6));
    GIVES(0, portolan_send(endpoint, 0, 9, "second", 7));
    while (portolan_arrived(endpoint, 9) < 2)
        CHECK(portolan_progress(endpoint) >= 0);
    CHECK(strcmp(one, "second") == 0);

    GIVES(0, portolan_set_buffer(endpoint, 9, two, sizeof two, &old));
    CHECK(old == one);
    GIVES(0, portolan_send(endpoint, 0, 9, "third", 6));
    while (portolan_arrived(endpoint, 9) < 3)
        CHECK(portolan_progress(endpoint) >= 0);
    CHECK(strcmp(one, "second") == 0 && strcmp(two, "third") == 0);
    GIVES(0, portolan_take_buffer(endpoint, 9, &old, &bytes));
    GIVES(0, portolan_set_buffer(endpoint, 9, NULL, 0, &old));
    CHECK(old == two);
    GIVES(0, portolan_set_buffer(endpoint, 9, NULL, 0, &old));
    CHECK(old == NULL);
    GIVES(0, portolan_set_buffer(endpoint, 9, one, 0, NULL));
    GIVES(0, portolan_set_buffer(endpoint, 9, NULL, 0, &old));
    CHECK(old == one);
    GIVES(0, portolan_unbind(endpoint, 9));
}

/* Where the messages of port 12 go: by their argument word. */
struct place {
    struct seen seen;
    char memory[4];
    char room[16];
    int asked;
};

static int where(const portolan_message *m, void **buffer, size_t *bytes, void *user)
{
    struct place *place = (struct place *)user;

    CHECK(m->size >= sizeof *m && m->port == 12 && m->total == 7 && m->bytes <= 7);
    CHECK(*buffer == NULL && *bytes == 0);
    GIVES(-EDEADLK, portolan_resume_port(endpoint, 12));
    place->asked++;
    switch (portolan_arg(m, 0)) {
    case 0:
        *buffer = place->memory;
        *bytes = sizeof place->memory;
        return PORTOLAN_PLACE_INTO;
    case 1:
        return place->asked % 2 == 0 ? PORTOLAN_PLACE_LATER : PORTOLAN_PLACE_HERE;
    case 2:
        /* Null: nothing of it is wanted. */
        return PORTOLAN_PLACE_INTO;
    case 4:
        /* No more is written than the message has. */
        *buffer = place->room;
        *bytes = SIZE_MAX;
        return PORTOLAN_PLACE_INTO;
    default:
        return 99;
    }
}

static void count_placed(portolan_context *context, const portolan_message *m, void *user)
{
    struct place *place = (struct place *)user;

    GIVES(0, portolan_context_resume_port(context, 12));
    CHECK(m->total == 7);
    count(context, m, &place->seen);
}

static void placing(void)
{
    portolan_binding binding;
    portolan_send_options options;
    struct place place;
    void *old = NULL;
    uint64_t word;

    memset(&place, 0, sizeof place);
    portolan_send_options_init(&options);
    options.args = &word;
    options.arg_count = 1;
    portolan_binding_init(&binding);
    binding.handler = count_placed;
    binding.placing = where;
    binding.user = &place;
    GIVES(0, portolan_bind(endpoint, 12, &binding));

    word = 0;
    GIVES(0, portolan_sendx(endpoint, 0, 12, "placed", 7, &options));
    await_messages(endpoint, &place.seen, 1);
    CHECK(place.asked == 1 && place.seen.payload == place.memory && place.seen.bytes == 4);
    CHECK(memcmp(place.memory, "plac", 4) == 0);
    /* A handler has seen it. */
    GIVES(0, portolan_take_buffer(endpoint, 12, &old, NULL));

    word = 1;
    GIVES(0, portolan_sendx(endpoint, 0, 12, "placed", 7, &options));
    while (place.asked < 2)
        CHECK(portolan_progress(endpoint) >= 0);
    CHECK(place.seen.messages == 1);
    GIVES(0, portolan_resume_port(endpoint, 12));
    await_messages(endpoint, &place.seen, 2);
    CHECK(place.asked == 3 && memcmp(place.seen.text, "placed", 7) == 0);

    word = 2;
    GIVES(0, portolan_sendx(endpoint, 0, 12, "placed", 7, &options));
    await_messages(endpoint, &place.seen, 3);
    CHECK(place.seen.bytes == 11);
    word = 3;
    GIVES(0, portolan_sendx(endpoint, 0, 12, "placed", 7, &options));
    await_messages(endpoint, &place.seen, 4);
    CHECK(place.seen.bytes == 18);
    word = 4;
    GIVES(0, portolan_sendx(endpoint, 0, 12, "placed", 7, &options));
    await_messages(endpoint, &place.seen, 5);
    CHECK(place.seen.payload == place.room && memcmp(place.room, "placed", 7) == 0);
    GIVES(0, portolan_unbind(endpoint, 12));
    GIVES(0, portolan_resume_port(endpoint, 12));
    GIVES(-EFAULT, portolan_resume_port(NULL, 12));
    GIVES(-EFAULT, portolan_context_resume_port(NULL, 12));
}

/* Port 10: what a handler may do, and what not. */
static void busy_handler(portolan_context *context, const portolan_message *m, void *user)
{
    struct seen *seen = (struct seen *)user;
    portolan_binding binding;
    portolan_send_options options;
    portolan_counters counters;
    uint64_t op = 0;
    uint64_t args[2] = {portolan_arg(m, 0) + 1, 2};
    static char spare[32];
    void *old = context;

    seen->messages++;
    seen->payload = m->payload;
    GIVES(0, portolan_context_rank(context));
    GIVES(1, portolan_context_size(context));
    GIVES(0, portolan_context_restarts(context, 0));
    GIVES(-ENXIO, portolan_context_restarts(context, 1));
    CHECK(portolan_arg(m, 1) == 0 && portolan_arg(m, 1000) == 0);

    portolan_counters_init(&counters);
    portolan_binding_init(&binding);
    GIVES(-EDEADLK, portolan_send(endpoint, 0, 11, NULL, 0));
    GIVES(-EDEADLK, portolan_try_send(endpoint, 0, 11, NULL, 0));
    GIVES(-EDEADLK, portolan_post_message(endpoint, 0, 11, NULL, 0, NULL, &op));
    GIVES(-EDEADLK, portolan_operation_forget(endpoint, 1));
    GIVES(-EDEADLK, portolan_progress(endpoint));
    GIVES(-EDEADLK, portolan_wait_until(endpoint, never, NULL, 0));
    GIVES(-EDEADLK, portolan_barrier(endpoint, NULL));
    GIVES(-EDEADLK, portolan_bind(endpoint, 11, &binding));
    GIVES(-EDEADLK, portolan_counters_read(endpoint, &counters));
    GIVES(-EDEADLK, portolan_close(endpoint));

    GIVES(-EACCES, portolan_context_bind(context, PORTOLAN_PORTS, &binding));
    GIVES(-EACCES, portolan_context_unbind(context, PORTOLAN_PORTS));
    GIVES(-ENXIO, portolan_context_send(context, 5, 11, NULL, 0, NULL));
    GIVES(-E2BIG, portolan_reply(context, 11, args, PORTOLAN_ARGS_MAX + 1, NULL, 0));
    GIVES(-EFAULT, portolan_reply(context, 11, NULL, 1, NULL, 0));
    GIVES(-EFAULT, portolan_reply(context, 11, NULL, 0, NULL, 1));

    /* Answer twice, with an option and without. */
    GIVES(0, portolan_reply(context, 11, args, 2, "answer", 6));
    portolan_send_options_init(&options);
    options.args = args;
    options.arg_count = 1;
    options.flow = 2;
    GIVES(0, portolan_context_send(context, m->from, 11, "more", 4, &options));

    /* Another port, and this port's buffer. */
    binding.handler = count;
    binding.user = seen;
    GIVES(0, portolan_context_bind(context, 12, &binding));
    GIVES(0, portolan_context_unbind(context, 13));
    GIVES(0, portolan_context_set_buffer(context, 10, spare, sizeof spare, &old));
    CHECK(old == NULL);
    /* A second change gives the first one's buffer back: nothing was in it. */
    GIVES(0, portolan_context_set_buffer(context, 10, spare + 1, sizeof spare - 1, &old));
    CHECK(old == spare);
}

static void handlers(void)
{
    struct seen seen, answers, refused;
    portolan_binding binding;
    portolan_send_options options;
    char buffer[32];
    uint64_t arg = 41;
    void *old = NULL;

    memset(&seen, 0, sizeof seen);
    memset(&answers, 0, sizeof answers);
    memset(&refused, 0, sizeof refused);
    bind_seen(endpoint, 11, &answers, NULL, 0);
    GIVES(0, portolan_on_error(endpoint, note, &refused));
    portolan_binding_init(&binding);
    binding.buffer = buffer;
    binding.buffer_bytes = sizeof buffer;
    binding.handler = busy_handler;
    binding.user = &seen;
    GIVES(0, portolan_bind(endpoint, 10, &binding));
    portolan_send_options_init(&options);
    options.args = &arg;
    options.arg_count = 1;
    GIVES(0, portolan_sendx(endpoint, 0, 10, "question", 8, &options));
    await_messages(endpoint, &answers, 2);
    CHECK(seen.payload == buffer && memcmp(buffer, "question", 8) == 0);
    CHECK(answers.bytes == 10 && answers.args[0] == 42);

    /* The handler knows where its message was, so nobody else is told. */
    GIVES(0, portolan_take_buffer(endpoint, 10, &old, NULL));
    GIVES(0, portolan_send(endpoint, 0, 12, "twelve", 6));
    await_messages(endpoint, &seen, 2);
    GIVES(0, portolan_send(endpoint, 0, 13, "thirteen", 8));
    await_events(endpoint, &refused, 1);
    GIVES(0, portolan_on_error(endpoint, NULL, NULL));
    GIVES(0, portolan_unbind(endpoint, 10));
    GIVES(0, portolan_unbind(endpoint, 11));
    GIVES(0, portolan_unbind(endpoint, 12));
}

/* Sends on what it gets, without a copy. */
static void sends_on(portolan_context *context, const portolan_message *m, void *user)
{
    uint64_t *op = (uint64_t *)user;
    static const char more[] = "more";

    if (m->bytes == 1)
        GIVES(0, portolan_context_post_message(context, 0, 14, more, sizeof more, NULL, op));
}

static void operations(void)
{
    struct seen seen;
    portolan_binding binding;
    portolan_completion completion;
    portolan_send_options options;
    uint64_t op = 77, other = 0;
    uint32_t number = 0, queue = 0, counter = 0;
    uint64_t done = 0, failed = 0;
    char *data;
    size_t bytes = 3u << 20;

    memset(&seen, 0, sizeof seen);
    portolan_completion_init(&completion);
    data = (char *)malloc(bytes);
    CHECK(data != NULL);
    memset(data, 5, bytes);
    GIVES(-EFAULT, portolan_post_message(endpoint, 0, 14, data, bytes, NULL, NULL));
    GIVES(-ENXIO, portolan_post_message(endpoint, 3, 14, data, bytes, NULL, &op));
    GIVES(-EMSGSIZE,
          portolan_post_message(endpoint, 0, 14, data, ((size_t)1 << 38) + 1, NULL, &op));
    CHECK(op == 0);
    GIVES(-ENOENT, portolan_operation_wait(endpoint, op, &completion, 0));
    GIVES(-ENOENT, portolan_operation_test(endpoint, op, &completion));
    GIVES(0, portolan_operation_forget(endpoint, op));

    /* Its end waits to be asked for. */
    bind_seen(endpoint, 14, &seen, NULL, 0);
    portolan_send_options_init(&options);
    options.number = &number;
    GIVES(0, portolan_post_message(endpoint, 0, 14, data, bytes, &options, &op));
    CHECK(op != 0);
    GIVES(1, portolan_operation_wait(endpoint, op, &completion, -1));
    CHECK(completion.action == PORTOLAN_MESSAGE && completion.error == 0);
    CHECK(completion.operation == op && completion.peer == 0 && completion.has_data);
    CHECK(completion.bytes == bytes && completion.total == bytes);
    GIVES(-ENOENT, portolan_operation_test(endpoint, op, &completion));
    await_messages(endpoint, &seen, 1);
    CHECK(seen.bytes == bytes && seen.text[63] == 5 && seen.number == completion.data);

    /* Or comes to a queue, and is counted. */
    GIVES(0, portolan_queue_open(endpoint, &queue));
    GIVES(0, portolan_counter_open(endpoint, &counter));
    options.queue = queue + 1;
    GIVES(-ENOENT, portolan_post_message(endpoint, 0, 14, data, bytes, &options, &op));
    options.queue = queue;
    options.counter = counter;
    options.context = 99;
    GIVES(0, portolan_post_message(endpoint, 0, 14, data, bytes, &options, &op));
    GIVES(1, portolan_queue_wait(endpoint, queue, &completion, 1, -1));
    CHECK(completion.operation == op && completion.context == 99 && completion.error == 0);
    GIVES(0, portolan_counter_value(endpoint, counter, &done, &failed));
    CHECK(done == 1 && failed == 0);
    await_messages(endpoint, &seen, 2);
    GIVES(0, portolan_queue_close(endpoint, queue));
    GIVES(0, portolan_counter_close(endpoint, counter));

    /* Or is never asked for. */
    GIVES(0, portolan_post_message(endpoint, 0, 14, data, 1, NULL, &op));
    GIVES(0, portolan_operation_forget(endpoint, op));
    GIVES(-ENOENT, portolan_operation_test(endpoint, op, &completion));
    await_messages(endpoint, &seen, 3);

    /* A handler begins one, too. */
    portolan_binding_init(&binding);
    binding.handler = sends_on;
    binding.user = &other;
    GIVES(0, portolan_bind(endpoint, 13, &binding));
    GIVES(0, portolan_send(endpoint, 0, 13, "x", 1));
    await_messages(endpoint, &seen, 4);
    CHECK(other != 0 && other != op);
    GIVES(0, ENDED(endpoint, other));
    GIVES(0, portolan_unbind(endpoint, 13));
    GIVES(0, portolan_unbind(endpoint, 14));
    free(data);
}

static int call_in_condition(void *user)
{
    GIVES(-EDEADLK, portolan_progress(endpoint));
    ++*(int *)user;
    return *(int *)user > 1;
}

static void waiting(void)
{
    struct pollfd wait;
    struct seen seen;
    int asked = 0;

    memset(&seen, 0, sizeof seen);
    GIVES(-EFAULT, portolan_wait_until(endpoint, NULL, NULL, 0));
    GIVES(-ETIMEDOUT, portolan_wait_until(endpoint, never, NULL, 0));
    GIVES(-ETIMEDOUT, portolan_wait_until(endpoint, never, NULL, 2000000));
    GIVES(0, portolan_wait_until(endpoint, call_in_condition, &asked, -1));
    CHECK(asked >= 2);

    wait.fd = portolan_fd(endpoint);
    wait.events = POLLIN;
    wait.revents = 0;
    CHECK(wait.fd >= 0);
    while (portolan_progress(endpoint) > 0) {
    }
    GIVES(1, portolan_arm(endpoint));
    CHECK(poll(&wait, 1, 0) == 0);
    bind_seen(endpoint, 15, &seen, NULL, 0);
    GIVES(0, portolan_send(endpoint, 0, 15, "x", 1));
    while (seen.messages == 0) {
        if (portolan_arm(endpoint) == 1)
            CHECK(poll(&wait, 1, 10000) == 1);
        CHECK(portolan_progress(endpoint) >= 0);
    }
    GIVES(0, portolan_unbind(endpoint, 15));
}

static void groups(void)
{
    struct seen seen;
    portolan_group *group = NULL;
    portolan_send_options options;
    uint32_t ranks[2] = {0, 0};

    memset(&seen, 0, sizeof seen);
    GIVES(-EFAULT, portolan_group_open(endpoint, ranks, 1, NULL));
    GIVES(-EFAULT, portolan_group_open(endpoint, NULL, 1, &group));
    GIVES(-EINVAL, portolan_group_open(endpoint, ranks, 0, &group));
    GIVES(-EINVAL, portolan_group_open(endpoint, ranks, 2, &group));
    ranks[1] = 1;
    GIVES(-ENXIO, portolan_group_open(endpoint, ranks, 2, &group));
    CHECK(group == NULL);
    GIVES(0, portolan_group_open(endpoint, ranks, 1, &group));
    GIVES(0, portolan_barrier(endpoint, group));
    GIVES(0, portolan_barrier(endpoint, NULL));

    bind_seen(endpoint, 16, &seen, NULL, 0);
    portolan_send_options_init(&options);
    options.flow = 1;
    GIVES(0, portolan_broadcast(endpoint, group, 16, "all", 3, &options));
    GIVES(0, portolan_broadcast(endpoint, NULL, 16, "all", 3, NULL));
    await_messages(endpoint, &seen, 2);
    options.flags = PORTOLAN_NOWAIT;
    GIVES(-EINVAL, portolan_broadcast(endpoint, group, 16, "all", 3, &options));
    GIVES(-EACCES, portolan_broadcast(endpoint, group, PORTOLAN_PORTS, "all", 3, NULL));
    GIVES(-EFAULT, portolan_broadcast(endpoint, group, 16, NULL, 3, NULL));
    portolan_group_free(group);
    GIVES(0, portolan_unbind(endpoint, 16));
}

static void counting(void)
{
    portolan_counters counters;
    struct {
        portolan_counters known;
        uint64_t unknown;
    } later;

    GIVES(-EFAULT, portolan_counters_read(endpoint, NULL));
    memset(&counters, 0, sizeof counters);
    GIVES(-EINVAL, portolan_counters_read(endpoint, &counters));
    portolan_counters_init(&counters);
    GIVES(0, portolan_counters_read(endpoint, &counters));
    CHECK(counters.size == sizeof counters && counters.reserved == 0);
    CHECK(counters.sent > 10 && counters.received > 10 && counters.bytes_received > 3u << 20);
    CHECK(counters.refused >= 2 && counters.deaths == 0);
    /* What this library does not know is 0; what the caller does not, stays. */
    memset(&later, 0xff, sizeof later);
    later.known.size = sizeof later;
    GIVES(0, portolan_counters_read(endpoint, &later.known));
    CHECK(later.known.sent == counters.sent && later.unknown == 0);
    memset(&later, 0xff, sizeof later);
    later.known.size = offsetof(portolan_counters, bytes_sent);
    GIVES(0, portolan_counters_read(endpoint, &later.known));
    CHECK(later.known.sent == counters.sent && later.known.bytes_sent == UINT64_MAX);
}

static void *another_thread(void *user)
{
    GIVES(-EPERM, portolan_progress(endpoint));
    GIVES(-EPERM, portolan_close(endpoint));
    /* Rank and size never change, and anybody may ask. */
    GIVES(0, portolan_rank(endpoint));
    return user;
}

static void other_threads_and_processes(void)
{
    pthread_t thread;
    pid_t child;
    int status;

    CHECK(pthread_create(&thread, NULL, another_thread, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);

    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        GIVES(-ECHILD, portolan_progress(endpoint));
        GIVES(-ECHILD, portolan_send(endpoint, 0, 1, NULL, 0));
        GIVES(-ECHILD, portolan_close(endpoint));
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    GIVES(0, portolan_barrier(endpoint, NULL));
}

int main(void)
{
    versions_and_texts();
    nothing_without_a_handle();
    options_that_cannot_be();
    endpoint = open_plain(PORTOLAN_THREADS_DEFAULT, PORTOLAN_HELPER_DEFAULT);
    who_we_are();
    messages_to_ourselves();
    ports_that_cannot_be();
    refusals();
    buffers();
    placing();
    handlers();
    operations();
    waiting();
    groups();
    counting();
    other_threads_and_processes();
    GIVES(0, portolan_close(endpoint));
    puts("solo: all is well");
    return 0;
}
