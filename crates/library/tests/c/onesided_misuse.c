/* One-sided memory: wrong calls of two ranks. Nothing comes of them. */
#include "tagged.h"

static unsigned char memory[64];

static void wrong_arguments(void)
{
    portolan_endpoint *none = NULL;
    portolan_region_options options, bad;
    portolan_access_options access, wrong;
    portolan_remote_key key, all;
    struct iovec pieces[2];
    struct iovec *many = (struct iovec *)calloc(1025, sizeof *many);
    uint64_t region = 9, op = 9, kept;

    CHECK(many != NULL);
    portolan_region_options_init(&options);
    portolan_access_options_init(&access);
    CHECK(options.size == sizeof options && access.size == sizeof access);
    memset(&key, 0, sizeof key);

    /* Null. */
    GIVES(-EFAULT, portolan_register(none, memory, 1, &options, &region));
    CHECK(region == 0);
    GIVES(-EFAULT, portolan_registerv(none, NULL, 0, NULL, &region));
    GIVES(-EFAULT, portolan_region_key(none, 1, &key));
    GIVES(-EFAULT, portolan_region_read(none, 1, 0, memory, 1));
    GIVES(-EFAULT, portolan_deregister(none, 1));
    GIVES(-EFAULT, portolan_forget_memory(none, memory, 1));
    GIVES(-EFAULT, portolan_forbid_onesided(none));
    GIVES(-EFAULT, portolan_post_put(none, 0, &key, 0, memory, 1, NULL, &op));
    CHECK(op == 0);
    GIVES(-EFAULT, portolan_post_putv(none, 0, &key, 0, NULL, 0, NULL, &op));
    GIVES(-EFAULT, portolan_post_get(none, 0, &key, 0, memory, 1, NULL, &op));
    GIVES(-EFAULT, portolan_post_getv(none, 0, &key, 0, NULL, 0, NULL, &op));
    GIVES(-EFAULT, portolan_post_fetch_add(none, 0, &key, 0, 1, NULL, &op));
    GIVES(-EFAULT, portolan_post_compare_swap(none, 0, &key, 0, 1, 2, NULL, &op));
    GIVES(-EFAULT, portolan_post_flush(none, 0, NULL, &op));
    GIVES(-EFAULT, portolan_fence(none, 0));
    GIVES(-EFAULT, portolan_register(endpoint, memory, 1, &options, NULL));
    GIVES(-EFAULT, portolan_register(endpoint, NULL, 1, &options, &region));
    GIVES(-EFAULT, portolan_registerv(endpoint, NULL, 1, &options, &region));
    GIVES(-EFAULT, portolan_post_put(endpoint, other, NULL, 0, memory, 1, NULL, &op));
    GIVES(-EFAULT, portolan_post_put(endpoint, other, &key, 0, NULL, 1, NULL, &op));
    GIVES(-EFAULT, portolan_post_put(endpoint, other, &key, 0, memory, 1, NULL, NULL));
    GIVES(-EFAULT, portolan_post_get(endpoint, other, NULL, 0, memory, 1, NULL, &op));
    GIVES(-EFAULT, portolan_post_get(endpoint, other, &key, 0, NULL, 1, NULL, &op));
    GIVES(-EFAULT, portolan_post_get(endpoint, other, &key, 0, memory, 1, NULL, NULL));
    GIVES(-EFAULT, portolan_post_fetch_add(endpoint, other, NULL, 0, 1, NULL, &op));
    GIVES(-EFAULT, portolan_post_compare_swap(endpoint, other, NULL, 0, 1, 2, NULL, &op));
    GIVES(-EFAULT, portolan_post_flush(endpoint, other, NULL, NULL));
    portolan_remote_key_any(1, NULL);
    region = 9;
    GIVES(-EFAULT, portolan_register_again(none, 1, 0, 1, NULL, &region));
    CHECK(region == 0);
    GIVES(-EFAULT, portolan_register_again(endpoint, 1, 0, 1, NULL, NULL));

    /* Ranks. */
    GIVES(-ENXIO, portolan_post_put(endpoint, 2, &key, 0, memory, 1, NULL, &op));
    GIVES(-ENXIO, portolan_post_get(endpoint, PORTOLAN_ANY, &key, 0, memory, 1, NULL, &op));
    GIVES(-ENXIO, portolan_post_fetch_add(endpoint, 2, &key, 0, 1, NULL, &op));
    GIVES(-ENXIO, portolan_post_compare_swap(endpoint, 2, &key, 0, 1, 2, NULL, &op));
    GIVES(-ENXIO, portolan_post_flush(endpoint, 2, NULL, &op));
    GIVES(-ENXIO, portolan_fence(endpoint, 2));

    /* Memory. */
    GIVES(-EMSGSIZE, portolan_register(endpoint, memory, SIZE_MAX, &options, &region));
    GIVES(-EMSGSIZE, portolan_post_put(endpoint, other, &key, 0, memory, SIZE_MAX, NULL, &op));
    GIVES(-EMSGSIZE, portolan_post_get(endpoint, other, &key, 0, memory, ((size_t)1 << 38) + 1,
                                       NULL, &op));
    GIVES(-EINVAL, portolan_registerv(endpoint, many, 1025, &options, &region));
    GIVES(-EINVAL, portolan_post_putv(endpoint, other, &key, 0, many, 1025, NULL, &op));
    GIVES(-EINVAL, portolan_post_getv(endpoint, other, &key, 0, many, SIZE_MAX, NULL, &op));
    pieces[0].iov_base = memory;
    pieces[0].iov_len = 1;
    pieces[1].iov_base = NULL;
    pieces[1].iov_len = 1;
    GIVES(-EFAULT, portolan_registerv(endpoint, pieces, 2, &options, &region));
    GIVES(-EFAULT, portolan_post_putv(endpoint, other, &key, 0, pieces, 2, NULL, &op));
    GIVES(-EFAULT, portolan_post_getv(endpoint, other, &key, 0, pieces, 2, NULL, &op));

    /* Structures. */
    memset(&bad, 0, sizeof bad);
    GIVES(-EINVAL, portolan_register(endpoint, memory, 1, &bad, &region));
    bad = options;
    bad.flags = 4;
    GIVES(-EINVAL, portolan_register(endpoint, memory, 1, &bad, &region));
    bad.flags = 0;
    bad.key = 1;
    GIVES(-EINVAL, portolan_register(endpoint, memory, 1, &bad, &region));
    bad = options;
    bad.flags = PORTOLAN_CACHED;
    bad.key = 1;
    GIVES(-EINVAL, portolan_register(endpoint, memory, 1, &bad, &region));
    bad.flags |= PORTOLAN_KEY;
    GIVES(-EINVAL, portolan_register(endpoint, memory, 1, &bad, &region));
    bad = options;
    bad.flags = PORTOLAN_REGION_SALT | PORTOLAN_REGION_ANY;
    GIVES(-EINVAL, portolan_register(endpoint, memory, 1, &bad, &region));
    bad.flags = 32;
    GIVES(-EINVAL, portolan_register(endpoint, memory, 1, &bad, &region));
    bad.flags = PORTOLAN_CACHED;
    bad.key = 0;
    pieces[1].iov_base = memory + 1;
    GIVES(-EINVAL, portolan_registerv(endpoint, pieces, 2, &bad, &region));
    bad = options;
    bad.rights = 4;
    GIVES(-EINVAL, portolan_register(endpoint, memory, 1, &bad, &region));
    bad = options;
    bad.reserved = 1;
    GIVES(-EINVAL, portolan_register(endpoint, memory, 1, &bad, &region));
    memset(&wrong, 0, sizeof wrong);
    GIVES(-EINVAL, portolan_post_put(endpoint, other, &key, 0, memory, 1, &wrong, &op));
    wrong = access;
    wrong.flags = 4;
    GIVES(-EINVAL, portolan_post_put(endpoint, other, &key, 0, memory, 1, &wrong, &op));
    wrong = access;
    wrong.word = 1;
    GIVES(-EINVAL, portolan_post_put(endpoint, other, &key, 0, memory, 1, &wrong, &op));
    wrong = access;
    wrong.port = 1;
    GIVES(-EINVAL, portolan_post_put(endpoint, other, &key, 0, memory, 1, &wrong, &op));
    wrong = access;
    wrong.reserved = 1;
    GIVES(-EINVAL, portolan_post_put(endpoint, other, &key, 0, memory, 1, &wrong, &op));
    wrong = access;
    wrong.flags = PORTOLAN_SIGNAL;
    wrong.port = PORTOLAN_PORTS;
    GIVES(-EACCES, portolan_post_put(endpoint, other, &key, 0, memory, 1, &wrong, &op));
    wrong.port = 1u << 20;
    GIVES(-EACCES, portolan_post_put(endpoint, other, &key, 0, memory, 1, &wrong, &op));
    wrong.port = 1;
    GIVES(-EINVAL, portolan_post_get(endpoint, other, &key, 0, memory, 1, &wrong, &op));
    wrong = access;
    wrong.flags = PORTOLAN_LOCAL;
    GIVES(-EINVAL, portolan_post_fetch_add(endpoint, other, &key, 0, 1, &wrong, &op));
    GIVES(-EINVAL, portolan_post_compare_swap(endpoint, other, &key, 0, 1, 2, &wrong, &op));
    GIVES(-EINVAL, portolan_post_flush(endpoint, other, &wrong, &op));

    /* Numbers that nobody gave. */
    GIVES(-ENOENT, portolan_region_key(endpoint, 0, &key));
    GIVES(-ENOENT, portolan_region_key(endpoint, UINT64_MAX, &key));
    GIVES(-ENOENT, portolan_region_read(endpoint, 12345, 0, memory, 1));
    GIVES(-ENOENT, portolan_deregister(endpoint, 0));
    GIVES(-ENOENT, portolan_deregister(endpoint, 1ull << 32));
    GIVES(-ENOENT, portolan_register_again(endpoint, 0, 0, 0, &options, &region));
    GIVES(-ENOENT, portolan_register_again(endpoint, UINT64_MAX, 0, 1, &options, &region));
    wrong = access;
    wrong.queue = 1;
    GIVES(-ENOENT, portolan_post_put(endpoint, other, &key, 0, memory, 1, &wrong, &op));
    GIVES(-ENOENT, portolan_post_get(endpoint, other, &key, 0, memory, 1, &wrong, &op));
    wrong.queue = 0;
    wrong.counter = 1;
    GIVES(-ENOENT, portolan_post_fetch_add(endpoint, other, &key, 0, 1, &wrong, &op));
    GIVES(-ENOENT, portolan_post_compare_swap(endpoint, other, &key, 0, 1, 2, &wrong, &op));
    GIVES(-ENOENT, portolan_post_flush(endpoint, other, &wrong, &op));
    CHECK(region == 0 && op == 0);

    /* Wrong calls on a region that there is; by default others may do nothing. */
    GIVES(0, portolan_register(endpoint, memory, sizeof memory, NULL, &kept));
    GIVES(-EFAULT, portolan_region_key(endpoint, kept, NULL));
    GIVES(0, portolan_region_key(endpoint, kept, &key));
    GIVES(-EFAULT, portolan_region_read(endpoint, kept, 0, NULL, 1));
    GIVES(0, portolan_region_read(endpoint, kept, sizeof memory, NULL, 0));
    GIVES(-ERANGE, portolan_region_read(endpoint, kept, sizeof memory, memory, 1));
    GIVES(-ERANGE, portolan_region_read(endpoint, kept, UINT64_MAX, memory, 2));
    GIVES(0, portolan_post_put(endpoint, me, &key, 0, "x", 1, NULL, &op));
    CHECK(end_of(op).error == -EACCES && memory[0] == 0);
    region = 9;
    bad = options;
    bad.rights = 4;
    GIVES(-EINVAL, portolan_register_again(endpoint, kept, 0, 1, &bad, &region));
    bad = options;
    bad.key = 1;
    GIVES(-EINVAL, portolan_register_again(endpoint, kept, 0, 1, &bad, &region));
    bad = options;
    bad.flags = PORTOLAN_CACHED;
    GIVES(-EINVAL, portolan_register_again(endpoint, kept, 0, 1, &bad, &region));
    GIVES(-ERANGE, portolan_register_again(endpoint, kept, 0, sizeof memory + 1, NULL, &region));
    GIVES(-ERANGE, portolan_register_again(endpoint, kept, sizeof memory, 1, NULL, &region));
    GIVES(-ERANGE, portolan_register_again(endpoint, kept, UINT64_MAX, 1, NULL, &region));
    GIVES(-ERANGE, portolan_register_again(endpoint, kept, 1, SIZE_MAX, NULL, &region));
    CHECK(region == 0);
    /* Other keys are other bytes, and the same the same. */
    portolan_remote_key_any(1, &all);
    portolan_remote_key_any(2, &key);
    CHECK(memcmp(&all, &key, sizeof key) != 0);
    portolan_remote_key_any(1, &key);
    CHECK(memcmp(&all, &key, sizeof key) == 0);
    GIVES(0, portolan_deregister(endpoint, kept));
    quiet();
    free(many);
}

static void calls_all(portolan_context *context, const portolan_message *m, void *user)
{
    portolan_remote_key key;
    uint64_t number;
    char in[1];

    (void)context;
    (void)m;
    memset(&key, 0, sizeof key);
    GIVES(-EDEADLK, portolan_register(endpoint, memory, 1, NULL, &number));
    GIVES(-EDEADLK, portolan_deregister(endpoint, 1));
    GIVES(-EDEADLK, portolan_forget_memory(endpoint, memory, 1));
    GIVES(-EDEADLK, portolan_register_again(endpoint, 1, 0, 1, NULL, &number));
    GIVES(-EDEADLK, portolan_region_read(endpoint, 1, 0, in, 1));
    GIVES(-EDEADLK, portolan_post_put(endpoint, other, &key, 0, "x", 1, NULL, &number));
    GIVES(-EDEADLK, portolan_post_get(endpoint, other, &key, 0, in, 1, NULL, &number));
    GIVES(-EDEADLK, portolan_post_flush(endpoint, other, NULL, &number));
    GIVES(-EDEADLK, portolan_fence(endpoint, other));
    ((struct seen *)user)->messages++;
}

static int is_not_refused(void)
{
    uint64_t number;

    return portolan_register(endpoint, memory, 1, NULL, &number) != -ECHILD
        || portolan_register_again(endpoint, 1, 0, 1, NULL, &number) != -ECHILD
        || portolan_post_flush(endpoint, other, NULL, &number) != -ECHILD;
}

int main(void)
{
    join(PORTOLAN_THREADS_SINGLE);
    wrong_arguments();
    from_handler_and_child(calls_all, is_not_refused);
    GIVES(0, portolan_close(endpoint));
    printf("onesided_misuse, rank %u: all is well\n", me);
    return 0;
}
