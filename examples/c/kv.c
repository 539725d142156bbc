/*
 * A key-value server whose clients come and go, without a launcher:
 *
 *   kv serve FILE             writes its address to FILE, and serves until SIGTERM
 *   kv put FILE KEY VALUE     stores a value
 *   kv get FILE KEY           prints it
 *
 * A key has 1 to 64 bytes, a value at most 4,000.
 *
 * Whoever knows the address is a client, so the server trusts nothing that comes: what a
 * request may hold, and how much all of them store, is bounded. On a host with several
 * networks, or for one host only, say which: PORTOLAN_INTERFACE=lo kv serve FILE
 */
#define _POSIX_C_SOURCE 200809L

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <portolan.h>

/* The port of requests and answers. */
#define PORT 1
/* What a request is to do: its first argument word. The second is the key's length; key and
 * value are its payload. An answer's word is 0 or an errno value. */
#define GET 1
#define PUT 2
#define KEY_MAX 64u
#define VALUE_MAX 4000u
#define ENTRIES_MAX 1024u
/* A client waits so long for the server to be there, and then for its answer. */
#define PATIENCE_NS INT64_C(5000000000)
static const char *const patient[] = {"join_ms=5000", NULL};
/* The server looks so often whether it is to end. */
#define LOOK_NS INT64_C(200000000)

struct entry {
    size_t key_bytes, value_bytes;
    char key[KEY_MAX], value[VALUE_MAX];
};

struct store {
    struct entry *entries[ENTRIES_MAX];
    size_t count;
};

static volatile sig_atomic_t ends;

static void end(int signal)
{
    (void)signal;
    ends = 1;
}

static struct entry *find(struct store *store, const char *key, size_t bytes)
{
    size_t i;

    for (i = 0; i < store->count; i++)
        if (store->entries[i]->key_bytes == bytes && memcmp(store->entries[i]->key, key, bytes) == 0)
            return store->entries[i];
    return NULL;
}

static int put(struct store *store, const char *key, size_t key_bytes, const char *value, size_t bytes)
{
    struct entry *entry = find(store, key, key_bytes);

    if (bytes > VALUE_MAX)
        return EMSGSIZE;
    if (entry == NULL) {
        if (store->count == ENTRIES_MAX || (entry = malloc(sizeof *entry)) == NULL)
            return ENOSPC;
        memcpy(entry->key, key, key_bytes);
        entry->key_bytes = key_bytes;
        store->entries[store->count++] = entry;
    }
    memcpy(entry->value, value, bytes);
    entry->value_bytes = bytes;
    return 0;
}

/* At the server: a request. */
static void serve_one(portolan_context *context, const portolan_message *m, void *user)
{
    struct store *store = user;
    const struct entry *found = NULL;
    const char *key = m->payload;
    uint64_t key_bytes = portolan_arg(m, 1);
    uint64_t status;

    if (m->arg_count != 2 || key_bytes == 0 || key_bytes > KEY_MAX || key_bytes > m->bytes)
        status = EINVAL;
    else if (portolan_arg(m, 0) == PUT)
        status = (uint64_t)put(store, key, key_bytes, key + key_bytes, m->bytes - key_bytes);
    else if (portolan_arg(m, 0) == GET)
        status = (found = find(store, key, key_bytes)) == NULL ? ENOENT : 0;
    else
        status = EINVAL;
    /* If it cannot be sent the client hears nothing, and gives up. */
    portolan_reply(context, PORT, &status, 1, found ? found->value : NULL,
                   found ? found->value_bytes : 0);
}

static void notice(portolan_context *context, const portolan_event *event, void *user)
{
    (void)context;
    (void)user;
    /* Numbers of clients that are dead are used again: nothing has to be done. */
    if (event->kind == PORTOLAN_PEER_COME)
        fprintf(stderr, "kv: client %" PRIu32 " is here\n", event->rank);
    else if (event->kind == PORTOLAN_PEER_DEAD)
        fprintf(stderr, "kv: client %" PRIu32 " is gone: %s\n", event->rank,
                portolan_strerror(event->error));
}

static int never(void *user)
{
    (void)user;
    return 0;
}

static int serve(portolan_endpoint *endpoint, const char *path)
{
    static struct store store;
    static char buffer[KEY_MAX + VALUE_MAX];
    uint8_t address[PORTOLAN_ADDRESS_BYTES];
    portolan_binding binding;
    struct sigaction ending;
    FILE *file;
    size_t i;
    int error;

    /* What is longer than the buffer is refused. */
    portolan_binding_init(&binding);
    binding.handler = serve_one;
    binding.buffer = buffer;
    binding.buffer_bytes = sizeof buffer;
    binding.user = &store;
    if ((error = portolan_bind(endpoint, PORT, &binding)) < 0 ||
        (error = portolan_on_error(endpoint, notice, NULL)) < 0 ||
        (error = portolan_address(endpoint, address)) < 0)
        return error;
    memset(&ending, 0, sizeof ending);
    ending.sa_handler = end;
    sigaction(SIGTERM, &ending, NULL);
    sigaction(SIGINT, &ending, NULL);
    if ((file = fopen(path, "w")) == NULL)
        return -errno;
    for (i = 0; i < sizeof address; i++)
        fprintf(file, "%02x", address[i]);
    fprintf(file, "\n");
    if (fclose(file) != 0)
        return -errno;
    while (!ends)
        if ((error = portolan_wait_until(endpoint, never, NULL, LOOK_NS)) != -ETIMEDOUT && error < 0)
            return error;
    return 0;
}

/* What a client waits for. */
struct answer {
    uint32_t server;
    int came;
    int error;
    size_t bytes;
    char value[VALUE_MAX];
};

static void take(portolan_context *context, const portolan_message *m, void *user)
{
    struct answer *answer = user;

    (void)context;
    /* Others may know this address too. */
    if (m->from != answer->server || m->arg_count != 1 || m->bytes > VALUE_MAX)
        return;
    memcpy(answer->value, m->payload, m->bytes);
    answer->bytes = m->bytes;
    answer->error = portolan_arg(m, 0) > 4095 ? -EPROTO : -(int)portolan_arg(m, 0);
    answer->came = 1;
}

static void give_up(portolan_context *context, const portolan_event *event, void *user)
{
    struct answer *answer = user;

    (void)context;
    if (event->rank == answer->server &&
        (event->kind == PORTOLAN_PEER_DEAD || event->kind == PORTOLAN_REFUSED)) {
        answer->error = event->kind == PORTOLAN_REFUSED ? -ECONNREFUSED : event->error;
        answer->came = 1;
    }
}

static int has_come(void *user)
{
    return ((const struct answer *)user)->came;
}

static int read_address(const char *path, uint8_t address[PORTOLAN_ADDRESS_BYTES])
{
    FILE *file = fopen(path, "r");
    unsigned byte;
    size_t i;

    if (file == NULL)
        return -errno;
    for (i = 0; i < PORTOLAN_ADDRESS_BYTES && fscanf(file, "%2x", &byte) == 1; i++)
        address[i] = (uint8_t)byte;
    fclose(file);
    return i == PORTOLAN_ADDRESS_BYTES ? 0 : -EINVAL;
}

static int ask(portolan_endpoint *endpoint, uint64_t what, const uint8_t *address,
               const char *key, const char *value, struct answer *answer)
{
    static char request[KEY_MAX + VALUE_MAX];
    uint64_t words[2];
    portolan_send_options options;
    portolan_binding binding;
    int64_t server;
    int error;

    words[0] = what;
    words[1] = strlen(key);
    if (words[1] == 0 || words[1] > KEY_MAX || strlen(value) > VALUE_MAX)
        return -EMSGSIZE;
    memcpy(request, key, words[1]);
    memcpy(request + words[1], value, strlen(value));
    portolan_binding_init(&binding);
    binding.handler = take;
    binding.user = answer;
    if ((error = portolan_bind(endpoint, PORT, &binding)) < 0 ||
        (error = portolan_on_error(endpoint, give_up, answer)) < 0)
        return error;
    if ((server = portolan_add_peer(endpoint, address)) < 0)
        return (int)server;
    answer->server = (uint32_t)server;
    portolan_send_options_init(&options);
    options.args = words;
    options.arg_count = 2;
    if ((error = portolan_sendx(endpoint, answer->server, PORT, request, words[1] + strlen(value),
                                &options)) < 0)
        return error;
    if ((error = portolan_wait_until(endpoint, has_come, answer, PATIENCE_NS)) < 0)
        return error;
    return answer->error;
}

int main(int argc, char **argv)
{
    static struct answer answer;
    uint8_t address[PORTOLAN_ADDRESS_BYTES];
    portolan_endpoint *endpoint;
    portolan_options options;
    char why[512];
    size_t i;
    int error;

    if (!(argc == 3 && strcmp(argv[1], "serve") == 0) &&
        !(argc == 5 && strcmp(argv[1], "put") == 0) && !(argc == 4 && strcmp(argv[1], "get") == 0)) {
        fprintf(stderr, "usage: %s serve FILE | put FILE KEY VALUE | get FILE KEY\n"
                        "A key has 1 to %u bytes, a value at most %u.\n", argv[0], KEY_MAX, VALUE_MAX);
        return 2;
    }
    if (argc > 3 && (error = read_address(argv[2], address)) < 0) {
        fprintf(stderr, "kv: %s: %s; `kv serve %s` writes it\n", argv[2],
                error == -EINVAL ? "it holds no address" : strerror(-error), argv[2]);
        return 1;
    }
    portolan_options_init(&options);
    if (argc > 3)
        options.settings = patient;
    if (portolan_open_standalone(&endpoint, &options, why, sizeof why) < 0) {
        fprintf(stderr, "kv: %s\n", why);
        return 1;
    }
    if (argc == 3)
        error = serve(endpoint, argv[2]);
    else
        error = ask(endpoint, argc == 5 ? PUT : GET, address, argv[3], argc == 5 ? argv[4] : "",
                    &answer);
    if (error == 0 && argc == 4) {
        /* Others stored it: a terminal is to obey nothing of it. */
        for (i = 0; i < answer.bytes; i++)
            putchar(iscntrl((unsigned char)answer.value[i]) ? '?' : answer.value[i]);
        putchar('\n');
    }
    /* A server that is gone is told nothing. */
    portolan_close(endpoint);
    if (error < 0) {
        fprintf(stderr, "kv: %s\n", error == -ENOENT ? "there is no such key" : portolan_strerror(error));
        return 1;
    }
    return 0;
}
