/* Atomic operations of two ranks: what there is, what it does, and what is refused. */
#include "tagged.h"

#include <portolan_onesided.h>

#define ROUNDS 50

static const uint32_t types[] = {
    PORTOLAN_INT8, PORTOLAN_UINT8, PORTOLAN_INT16, PORTOLAN_UINT16, PORTOLAN_INT32, PORTOLAN_UINT32,
    PORTOLAN_INT64, PORTOLAN_UINT64, PORTOLAN_FLOAT, PORTOLAN_DOUBLE, PORTOLAN_FLOAT_COMPLEX,
    PORTOLAN_DOUBLE_COMPLEX,
};
static const uint32_t operations[] = {
    PORTOLAN_ATOMIC_MIN, PORTOLAN_ATOMIC_MAX, PORTOLAN_ATOMIC_SUM, PORTOLAN_ATOMIC_PRODUCT,
    PORTOLAN_ATOMIC_LOR, PORTOLAN_ATOMIC_LAND, PORTOLAN_ATOMIC_BOR, PORTOLAN_ATOMIC_BAND,
    PORTOLAN_ATOMIC_LXOR, PORTOLAN_ATOMIC_BXOR, PORTOLAN_ATOMIC_READ, PORTOLAN_ATOMIC_WRITE,
    PORTOLAN_ATOMIC_SWAP_EQ, PORTOLAN_ATOMIC_SWAP_NE, PORTOLAN_ATOMIC_SWAP_LE, PORTOLAN_ATOMIC_SWAP_LT,
    PORTOLAN_ATOMIC_SWAP_GE, PORTOLAN_ATOMIC_SWAP_GT, PORTOLAN_ATOMIC_MSWAP,
};
static const int bytes_of[] = {1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 8, 16};

static double memory[128];
static portolan_remote_key theirs;
static uint64_t own;

static portolan_atomic of(uint32_t operation, uint32_t type, size_t count, const void *operands,
                          const void *compare)
{
    portolan_atomic atomic;

    portolan_atomic_init(&atomic);
    atomic.operation = operation;
    atomic.type = type;
    atomic.count = count;
    atomic.operands = operands;
    atomic.compare = compare;
    return atomic;
}

static void what_there_is(void)
{
    uint32_t o, t;

    for (o = 0; o < 19; o++)
        for (t = 0; t < 12; t++) {
            const int bits = o == 6 || o == 7 || o == 9 || o == 18, order = o <= 1 || (o >= 14 && o <= 17);
            const int is = !(bits && t >= 8) && !(order && t >= 10);

            CHECK(operations[o] == o && types[t] == t);
            GIVES(is ? 1024 / bytes_of[t] / (o >= 12 ? 2 : 1) : -EINVAL, portolan_atomic_elements_max(o, t, 1));
            GIVES(is && o != 10 && o < 12 ? 1024 / bytes_of[t] : -EINVAL, portolan_atomic_elements_max(o, t, 0));
        }
    GIVES(-EINVAL, portolan_atomic_elements_max(19, 0, 1));
    GIVES(-EINVAL, portolan_atomic_elements_max(0, 12, 1));
    GIVES(-EINVAL, portolan_atomic_elements_max(256, 256, 1));
}

static void exchange_keys(void)
{
    portolan_region_options options;
    portolan_remote_key key;

    portolan_region_options_init(&options);
    options.rights = PORTOLAN_MAY_GET | PORTOLAN_MAY_PUT;
    GIVES(0, portolan_register(endpoint, memory, sizeof memory, &options, &own));
    GIVES(0, portolan_region_key(endpoint, own, &key));
    GIVES(0, portolan_send_tagged(endpoint, other, 1, &key, sizeof key));
    GIVES(0, portolan_receive_tagged(endpoint, other, 1, 0, &theirs, sizeof theirs, NULL));
}

/* Each rank adds to the memory of both. */
static void all_add(void)
{
    portolan_access_options options;
    portolan_atomic sum;
    portolan_completion c;
    double ones[128], found[128];
    uint64_t op;
    int i;

    portolan_access_options_init(&options);
    options.context = 31;
    for (i = 0; i < 128; i++)
        ones[i] = 1;
    sum = of(PORTOLAN_ATOMIC_SUM, PORTOLAN_DOUBLE, 128, ones, NULL);
    for (i = 0; i < ROUNDS; i++) {
        GIVES(0, portolan_post_atomic(endpoint, other, &theirs, 0, &sum, NULL, NULL, &op));
        c = end_of(op);
        CHECK(c.error == 0 && c.action == PORTOLAN_CHANGED && c.bytes == 1024 && c.has_data == 0);
        GIVES(0, portolan_post_atomic(endpoint, other, &theirs, 0, &sum, found, &options, &op));
        c = end_of(op);
        CHECK(c.error == 0 && c.context == 31 && c.total == 1024 && c.peer == other);
        CHECK(found[0] == 2 * i + 1 && found[127] == 2 * i + 1);
    }
    barrier();
    GIVES(0, portolan_region_read(endpoint, own, 0, found, sizeof found));
    CHECK(found[0] == 2 * ROUNDS && found[127] == 2 * ROUNDS);
    barrier();
}

static void swaps_and_reads(void)
{
    const uint16_t with[2] = {0x00ff, 0x1234}, mask[2] = {0x0f0f, 0xffff};
    uint16_t found[2] = {1, 1};
    portolan_atomic atomic = of(PORTOLAN_ATOMIC_WRITE, PORTOLAN_UINT16, 2, mask, NULL);
    portolan_completion c;
    uint64_t op;

    GIVES(0, portolan_post_atomic(endpoint, other, &theirs, 4, &atomic, NULL, NULL, &op));
    CHECK(end_of(op).error == 0);
    atomic = of(PORTOLAN_ATOMIC_MSWAP, PORTOLAN_UINT16, 2, with, mask);
    GIVES(0, portolan_post_atomic(endpoint, other, &theirs, 4, &atomic, found, NULL, &op));
    CHECK(end_of(op).error == 0 && found[0] == 0x0f0f && found[1] == 0xffff);
    atomic = of(PORTOLAN_ATOMIC_READ, PORTOLAN_UINT16, 1, NULL, NULL);
    GIVES(0, portolan_post_atomic(endpoint, other, &theirs, 4, &atomic, found, NULL, &op));
    c = end_of(op);
    CHECK(c.error == 0 && found[0] == 0x000f && c.has_data == 1 && c.data == 0x000f && c.bytes == 2);
    GIVES(0, portolan_post_atomic(endpoint, other, &theirs, 5, &atomic, found, NULL, &op));
    CHECK(end_of(op).error == -EINVAL);
    GIVES(0, portolan_post_atomic(endpoint, other, &theirs, sizeof memory, &atomic, found, NULL, &op));
    CHECK(end_of(op).error == -ERANGE);
    barrier();
}

static void wrong(void)
{
    const uint64_t value = 1;
    uint64_t found, op;
    portolan_access_options options;
    portolan_atomic atomic = of(PORTOLAN_ATOMIC_SUM, PORTOLAN_UINT64, 1, &value, NULL);

#define REFUSED(why, into) GIVES(why, portolan_post_atomic(endpoint, other, &theirs, 0, &atomic, into, NULL, &op))
    GIVES(-EFAULT, portolan_post_atomic(NULL, other, &theirs, 0, &atomic, NULL, NULL, &op));
    GIVES(-EFAULT, portolan_post_atomic(endpoint, other, NULL, 0, &atomic, NULL, NULL, &op));
    GIVES(-EFAULT, portolan_post_atomic(endpoint, other, &theirs, 0, NULL, NULL, NULL, &op));
    GIVES(-EFAULT, portolan_post_atomic(endpoint, other, &theirs, 0, &atomic, NULL, NULL, NULL));
    GIVES(-ENXIO, portolan_post_atomic(endpoint, 2, &theirs, 0, &atomic, NULL, NULL, &op));
    portolan_access_options_init(&options);
    options.flags = PORTOLAN_LOCAL;
    GIVES(-EINVAL, portolan_post_atomic(endpoint, other, &theirs, 0, &atomic, NULL, &options, &op));
    options.flags = 0;
    options.queue = 9;
    GIVES(-ENOENT, portolan_post_atomic(endpoint, other, &theirs, 0, &atomic, NULL, &options, &op));
    atomic.count = 0;
    REFUSED(-EINVAL, NULL);
    atomic.count = 129;
    REFUSED(-EINVAL, NULL);
    atomic = of(PORTOLAN_ATOMIC_SUM, PORTOLAN_UINT64, 1, NULL, NULL);
    REFUSED(-EFAULT, NULL);
    atomic = of(PORTOLAN_ATOMIC_SUM, PORTOLAN_UINT64, 1, &value, &value);
    REFUSED(-EINVAL, NULL);
    atomic = of(PORTOLAN_ATOMIC_READ, PORTOLAN_UINT64, 1, &value, NULL);
    REFUSED(-EINVAL, &found);
    atomic = of(PORTOLAN_ATOMIC_READ, PORTOLAN_UINT64, 1, NULL, NULL);
    REFUSED(-EINVAL, NULL);
    atomic = of(PORTOLAN_ATOMIC_SWAP_EQ, PORTOLAN_UINT64, 1, &value, NULL);
    REFUSED(-EFAULT, &found);
    atomic = of(PORTOLAN_ATOMIC_BOR, PORTOLAN_DOUBLE, 1, &value, NULL);
    REFUSED(-EINVAL, NULL);
    atomic = of(19, PORTOLAN_UINT64, 1, &value, NULL);
    REFUSED(-EINVAL, NULL);
    atomic = of(PORTOLAN_ATOMIC_SUM, PORTOLAN_UINT64, 1, &value, NULL);
    atomic.reserved = 1;
    REFUSED(-EINVAL, NULL);
    atomic.size = 0;
    REFUSED(-EINVAL, NULL);
}

/* Bytes of the other rank by their address; and some that are not there. */
static void address_space(void)
{
    static unsigned char bytes[100000], back[100000];
    const uint32_t one = 1;
    portolan_atomic sum = of(PORTOLAN_ATOMIC_SUM, PORTOLAN_UINT32, 1, &one, NULL);
    portolan_region_options options;
    portolan_remote_key key;
    uint64_t region, op, at = (uint64_t)(uintptr_t)bytes, there;

    portolan_region_options_init(&options);
    options.rights = PORTOLAN_MAY_GET | PORTOLAN_MAY_PUT;
    options.flags = PORTOLAN_ADDRESS_SPACE | PORTOLAN_KEY;
    options.key = 99;
    GIVES(-EINVAL, portolan_register(endpoint, bytes, 1, &options, &region));
    GIVES(-EINVAL, portolan_register(endpoint, bytes, 0, &options, &region));
    GIVES(-EINVAL, portolan_registerv(endpoint, NULL, 0, &options, &region));
    options.flags |= PORTOLAN_CACHED;
    GIVES(-EINVAL, portolan_register(endpoint, NULL, 0, &options, &region));
    options.flags = PORTOLAN_ADDRESS_SPACE;
    GIVES(-EINVAL, portolan_register(endpoint, NULL, 0, &options, &region));
    options.flags |= PORTOLAN_KEY;
    GIVES(0, portolan_register(endpoint, NULL, 0, &options, &region));
    GIVES(0, portolan_send_tagged(endpoint, other, 1, &at, sizeof at));
    GIVES(0, portolan_receive_tagged(endpoint, other, 1, 0, &there, sizeof there, NULL));
    portolan_remote_key_any(99, &key);
    fill(back, sizeof back, me);
    GIVES(0, portolan_post_put(endpoint, other, &key, there, back, sizeof back, NULL, &op));
    CHECK(end_of(op).error == 0);
    memset(back, 0, sizeof back);
    GIVES(0, portolan_post_get(endpoint, other, &key, there, back, sizeof back, NULL, &op));
    CHECK(end_of(op).error == 0 && is_filled(back, sizeof back, me));
    GIVES(0, portolan_post_atomic(endpoint, other, &key, there & ~UINT64_C(3), &sum, NULL, NULL, &op));
    CHECK(end_of(op).error == 0);
    GIVES(0, portolan_post_get(endpoint, other, &key, 8, back, sizeof back, NULL, &op));
    CHECK(end_of(op).error == -ERANGE);
    GIVES(0, portolan_post_put(endpoint, other, &key, 8, back, 8, NULL, &op));
    CHECK(end_of(op).error == -ERANGE);
    GIVES(0, portolan_post_atomic(endpoint, other, &key, 8, &sum, NULL, NULL, &op));
    CHECK(end_of(op).error == -ERANGE);
    GIVES(-ERANGE, portolan_region_read(endpoint, region, 8, back, 8));
    barrier();
    GIVES(0, portolan_deregister(endpoint, region));
}

int main(void)
{
    join(PORTOLAN_THREADS_SINGLE);
    what_there_is();
    exchange_keys();
    all_add();
    swaps_and_reads();
    wrong();
    address_space();
    barrier();
    GIVES(0, portolan_deregister(endpoint, own));
    quiet();
    GIVES(0, portolan_close(endpoint));
    printf("atomics, rank %u: all is well\n", me);
    return 0;
}
