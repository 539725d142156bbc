/*
 * A token goes round all ranks; each adds its number to it.
 *
 *   portolan run -n 4 -- target/release/examples/c-ring [ROUNDS]
 */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <portolan.h>

#define TOKEN 1

/* What the handler leaves for the main program. */
struct token {
    uint64_t value;
    uint64_t seen;
    uint64_t wanted;
};

static void take_token(portolan_context *context, const portolan_message *message, void *user)
{
    struct token *token = user;

    (void)context;
    token->value = portolan_arg(message, 0);
    token->seen++;
}

static int has_come(void *user)
{
    const struct token *token = user;

    return token->seen >= token->wanted;
}

static int await_token(portolan_endpoint *endpoint, struct token *token)
{
    token->wanted++;
    return portolan_wait_until(endpoint, has_come, token, -1);
}

static int pass(portolan_endpoint *endpoint, uint32_t next, uint64_t value)
{
    portolan_send_options options;

    portolan_send_options_init(&options);
    options.args = &value;
    options.arg_count = 1;
    return portolan_sendx(endpoint, next, TOKEN, NULL, 0, &options);
}

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int rounds_of(const char *text, uint64_t *rounds)
{
    char *end;

    errno = 0;
    *rounds = strtoull(text, &end, 10);
    return errno == 0 && end != text && *end == '\0' && *text != '-' && *rounds > 0;
}

static int run(portolan_endpoint *endpoint, uint64_t rounds)
{
    struct token token = {0, 0, 0};
    portolan_binding binding;
    uint64_t rank = (uint64_t)portolan_rank(endpoint);
    uint64_t size = (uint64_t)portolan_size(endpoint);
    uint32_t next = (uint32_t)((rank + 1) % size);
    uint64_t round, expected;
    double start, took;
    int error;

    portolan_binding_init(&binding);
    binding.handler = take_token;
    binding.user = &token;
    if ((error = portolan_bind(endpoint, TOKEN, &binding)) < 0)
        return error;
    if ((error = portolan_barrier(endpoint, NULL)) < 0)
        return error;

    start = now_us();
    for (round = 0; round < rounds; round++) {
        if (rank == 0 && (error = pass(endpoint, next, token.value)) < 0)
            return error;
        if ((error = await_token(endpoint, &token)) < 0)
            return error;
        if (rank != 0 && (error = pass(endpoint, next, token.value + rank)) < 0)
            return error;
    }
    took = now_us() - start;

    if (rank == 0) {
        expected = rounds * (size * (size - 1) / 2);
        if (token.value != expected) {
            fprintf(stderr, "ring: the token says %" PRIu64 ", not %" PRIu64 "\n", token.value,
                    expected);
            return -EPROTO;
        }
        printf("%" PRIu64 " rounds over %" PRIu64 " ranks: %.2f us a hop, the sum is right: %" PRIu64
               "\n", rounds, size, took / (double)(rounds * size), token.value);
    }
    return portolan_barrier(endpoint, NULL);
}

int main(int argc, char **argv)
{
    portolan_endpoint *endpoint;
    uint64_t rounds = 1000;
    char why[512];
    int error, closed;

    if (argc > 2 || (argc == 2 && !rounds_of(argv[1], &rounds))) {
        fprintf(stderr, "usage: %s [ROUNDS]\n", argv[0]);
        return 2;
    }
    if (portolan_open(&endpoint, NULL, why, sizeof why) < 0) {
        fprintf(stderr, "ring: %s\n", why);
        return 1;
    }
    error = run(endpoint, rounds);
    closed = portolan_close(endpoint);
    if (error == 0)
        error = closed;
    if (error < 0) {
        fprintf(stderr, "ring: %s\n", portolan_strerror(error));
        return 1;
    }
    return 0;
}
