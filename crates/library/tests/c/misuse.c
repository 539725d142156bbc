/* Matched messages: wrong calls of two ranks. Nothing comes of them. */
#include "tagged.h"

static void wrong_arguments(void)
{
    portolan_endpoint *none = NULL;
    portolan_tagged_options options, bad;
    portolan_completion c = fresh(), unset;
    portolan_probed probed, unset_probed;
    portolan_push shm, net;
    struct iovec pieces[2];
    struct iovec *many = (struct iovec *)calloc(1025, sizeof *many);
    uint64_t op = 9, message = 9, value;
    uint32_t number = 9;
    char data[8];

    CHECK(many != NULL);
    memset(&unset, 0, sizeof unset);
    memset(&unset_probed, 0, sizeof unset_probed);
    portolan_probed_init(&probed);
    portolan_tagged_options_init(&options);

    /* Null. */
    GIVES(-EFAULT, portolan_send_tagged(none, 0, 1, data, 1));
    GIVES(-EFAULT, portolan_send_taggedv(none, 0, 1, NULL, 0, NULL));
    GIVES(-EFAULT, portolan_receive_tagged(none, 0, 1, 0, data, 1, NULL));
    GIVES(-EFAULT, portolan_receive_taggedv(none, 0, 1, 0, NULL, 0, NULL));
    GIVES(-EFAULT, portolan_post_send(none, 0, 1, data, 1, NULL, &op));
    CHECK(op == 0);
    GIVES(-EFAULT, portolan_post_sendv(none, 0, 1, NULL, 0, NULL, &op));
    GIVES(-EFAULT, portolan_post_receive(none, 0, 1, 0, data, 1, NULL, &op));
    GIVES(-EFAULT, portolan_post_receivev(none, 0, 1, 0, NULL, 0, NULL, &op));
    GIVES(-EFAULT, portolan_probe(none, 0, 1, 0, NULL));
    GIVES(-EFAULT, portolan_claim(none, 0, 1, 0, &message, NULL));
    GIVES(-EFAULT, portolan_receive_claimed(none, 1, data, 1, NULL, &op));
    GIVES(-EFAULT, portolan_receive_claimedv(none, 1, NULL, 0, NULL, &op));
    GIVES(-EFAULT, portolan_discard(none, 1));
    GIVES(-EFAULT, portolan_cancel(none, 1));
    GIVES(-EFAULT, portolan_operation_test(none, 1, &c));
    GIVES(-EFAULT, portolan_operation_wait(none, 1, &c, 0));
    GIVES(-EFAULT, portolan_queue_open(none, &number));
    GIVES(-EFAULT, portolan_queue_close(none, 1));
    GIVES(-EFAULT, portolan_queue_read(none, 1, &c, 1));
    GIVES(-EFAULT, portolan_queue_wait(none, 1, &c, 1, 0));
    GIVES(-EFAULT, portolan_counter_open(none, &number));
    GIVES(-EFAULT, portolan_counter_close(none, 1));
    GIVES(-EFAULT, portolan_counter_value(none, 1, &value, &value));
    GIVES(-EFAULT, portolan_counter_wait(none, 1, 0, &value, &value, 0));
    GIVES(-EFAULT, portolan_push_read(none, NULL, NULL));
    GIVES(-EFAULT, portolan_push_to(none, 0, NULL));
    GIVES(-EFAULT, portolan_set_push(none, NULL, NULL));
    GIVES(-EFAULT, portolan_set_pushed_share(none, 1));
    GIVES(-EFAULT, portolan_matched_statistics(none, NULL));
    GIVES(-EFAULT, portolan_send_tagged(endpoint, other, 1, NULL, 1));
    GIVES(-EFAULT, portolan_receive_tagged(endpoint, other, 1, 0, NULL, 1, &c));
    GIVES(-EFAULT, portolan_post_send(endpoint, other, 1, data, 1, NULL, NULL));
    GIVES(-EFAULT, portolan_post_receive(endpoint, other, 1, 0, data, 1, NULL, NULL));
    GIVES(-EFAULT, portolan_post_sendv(endpoint, other, 1, NULL, 1, NULL, &op));
    GIVES(-EFAULT, portolan_claim(endpoint, other, 1, 0, NULL, &probed));
    GIVES(-EFAULT, portolan_operation_test(endpoint, 1, NULL));
    GIVES(-EFAULT, portolan_operation_wait(endpoint, 1, NULL, 0));
    GIVES(-EFAULT, portolan_queue_open(endpoint, NULL));
    GIVES(-EFAULT, portolan_counter_open(endpoint, NULL));
    GIVES(-EFAULT, portolan_matched_statistics(endpoint, NULL));
    GIVES(-EFAULT, portolan_pull_read(none, &value, &value));
    GIVES(-EFAULT, portolan_set_pull(none, 1, 1));
    GIVES(-EFAULT, portolan_share_min_read(none, &value));
    GIVES(-EFAULT, portolan_set_share_min(none, 1));
    value = 77;
    GIVES(-EFAULT, portolan_pull_read(endpoint, NULL, &value));
    GIVES(-EFAULT, portolan_pull_read(endpoint, &value, NULL));
    CHECK(value == 77);
    GIVES(-EFAULT, portolan_share_min_read(endpoint, NULL));

    /* Ranks. */
    GIVES(-ENXIO, portolan_send_tagged(endpoint, 2, 1, data, 1));
    GIVES(-ENXIO, portolan_send_tagged(endpoint, PORTOLAN_ANY, 1, data, 1));
    GIVES(-ENXIO, portolan_post_send(endpoint, 2, 1, data, 1, NULL, &op));
    GIVES(-ENXIO, portolan_receive_tagged(endpoint, 2, 1, 0, data, 1, &c));
    GIVES(-ENXIO, portolan_post_receive(endpoint, 2, 1, 0, data, 1, NULL, &op));
    GIVES(-ENXIO, portolan_probe(endpoint, 2, 1, 0, NULL));
    GIVES(-ENXIO, portolan_claim(endpoint, 2, 1, 0, &message, NULL));
    GIVES(-ENXIO, portolan_push_to(endpoint, 2, NULL));
    CHECK(op == 0 && message == 0);

    /* Memory. */
    GIVES(-EMSGSIZE, portolan_send_tagged(endpoint, other, 1, data, SIZE_MAX));
    GIVES(-EMSGSIZE, portolan_post_send(endpoint, other, 1, data, SIZE_MAX, NULL, &op));
    GIVES(-EMSGSIZE, portolan_post_send(endpoint, other, 1, data, ((size_t)1 << 38) + 1, NULL, &op));
    GIVES(-EMSGSIZE, portolan_receive_tagged(endpoint, other, 1, 0, data, SIZE_MAX, &c));
    pieces[0].iov_base = pieces[1].iov_base = data;
    pieces[0].iov_len = pieces[1].iov_len = SIZE_MAX / 2;
    GIVES(-EMSGSIZE, portolan_post_sendv(endpoint, other, 1, pieces, 2, NULL, &op));
    GIVES(-EMSGSIZE, portolan_post_receivev(endpoint, other, 1, 0, pieces, 2, NULL, &op));
    pieces[0].iov_len = 1;
    pieces[1].iov_base = NULL;
    pieces[1].iov_len = 1;
    GIVES(-EFAULT, portolan_post_sendv(endpoint, other, 1, pieces, 2, NULL, &op));
    GIVES(-EFAULT, portolan_send_taggedv(endpoint, other, 1, pieces, 2, NULL));
    GIVES(-EFAULT, portolan_receive_taggedv(endpoint, other, 1, 0, pieces, 2, &c));
    GIVES(-EINVAL, portolan_post_sendv(endpoint, other, 1, many, 1025, NULL, &op));
    GIVES(-EINVAL, portolan_send_taggedv(endpoint, other, 1, many, SIZE_MAX, NULL));
    GIVES(-EINVAL, portolan_receive_taggedv(endpoint, other, 1, 0, many, 1025, &c));
    GIVES(-EINVAL, portolan_post_receivev(endpoint, other, 1, 0, many, 1025, NULL, &op));

    /* Structures. */
    memset(&bad, 0, sizeof bad);
    GIVES(-EINVAL, portolan_post_send(endpoint, other, 1, data, 1, &bad, &op));
    bad = options;
    bad.flags = 4;
    GIVES(-EINVAL, portolan_post_send(endpoint, other, 1, data, 1, &bad, &op));
    bad.flags = 0;
    bad.data = 1;
    GIVES(-EINVAL, portolan_post_send(endpoint, other, 1, data, 1, &bad, &op));
    bad = options;
    bad.flags = PORTOLAN_SYNC;
    GIVES(-EINVAL, portolan_post_receive(endpoint, other, 1, 0, data, 1, &bad, &op));
    bad.flags = PORTOLAN_DATA;
    GIVES(-EINVAL, portolan_post_receive(endpoint, other, 1, 0, data, 1, &bad, &op));
    bad = options;
    bad.context = 1;
    GIVES(-EINVAL, portolan_send_taggedv(endpoint, other, 1, NULL, 0, &bad));
    GIVES(-EINVAL, portolan_receive_tagged(endpoint, other, 1, 0, data, 1, &unset));
    GIVES(-EINVAL, portolan_probe(endpoint, other, 1, 0, &unset_probed));
    GIVES(-EINVAL, portolan_claim(endpoint, other, 1, 0, &message, &unset_probed));
    GIVES(-EINVAL, portolan_operation_test(endpoint, 1, &unset));
    GIVES(-EINVAL, portolan_operation_wait(endpoint, 1, &unset, 0));
    GIVES(-EINVAL, portolan_queue_read(endpoint, 1, &c, 0));
    GIVES(-EINVAL, portolan_queue_wait(endpoint, 1, &c, 0, -1));
    portolan_push_init(&shm);
    memset(&net, 0, sizeof net);
    GIVES(-EINVAL, portolan_push_read(endpoint, &shm, &net));
    CHECK(shm.whole == 0);
    GIVES(-EINVAL, portolan_set_push(endpoint, &shm, &net));
    portolan_push_init(&net);
    net.flags = 4;
    GIVES(-EINVAL, portolan_set_push(endpoint, &shm, &net));

    /* Numbers that nobody gave. */
    bad = options;
    bad.queue = 1;
    GIVES(-ENOENT, portolan_post_send(endpoint, other, 1, data, 1, &bad, &op));
    bad.queue = UINT32_MAX;
    GIVES(-ENOENT, portolan_post_receive(endpoint, other, 1, 0, data, 1, &bad, &op));
    bad.queue = 0;
    bad.counter = 77;
    GIVES(-ENOENT, portolan_post_receive(endpoint, other, 1, 0, data, 1, &bad, &op));
    GIVES(-ENOENT, portolan_operation_test(endpoint, 0, &c));
    GIVES(-ENOENT, portolan_operation_wait(endpoint, UINT64_MAX, &c, -1));
    GIVES(-ENOENT, portolan_cancel(endpoint, 12345));
    GIVES(-ENOENT, portolan_receive_claimed(endpoint, 1, data, 1, NULL, &op));
    GIVES(-ENOENT, portolan_receive_claimedv(endpoint, UINT64_MAX, NULL, 0, NULL, &op));
    GIVES(-ENOENT, portolan_discard(endpoint, 0));
    for (number = 0; number < 3; number++) {
        GIVES(-ENOENT, portolan_queue_close(endpoint, number));
        GIVES(-ENOENT, portolan_queue_read(endpoint, number, &c, 1));
        GIVES(-ENOENT, portolan_queue_wait(endpoint, number, &c, 1, -1));
        GIVES(-ENOENT, portolan_counter_close(endpoint, number));
        GIVES(-ENOENT, portolan_counter_value(endpoint, number, NULL, NULL));
        GIVES(-ENOENT, portolan_counter_wait(endpoint, number, 0, NULL, NULL, -1));
    }
    CHECK(op == 0 && message == 0);
    quiet();
    free(many);
}

static void calls_all(portolan_context *context, const portolan_message *m, void *user)
{
    portolan_completion c = fresh();
    uint64_t op;
    char in[1];

    (void)context;
    (void)m;
    GIVES(-EDEADLK, portolan_send_tagged(endpoint, other, 1, "x", 1));
    GIVES(-EDEADLK, portolan_post_send(endpoint, other, 1, "x", 1, NULL, &op));
    GIVES(-EDEADLK, portolan_receive_tagged(endpoint, other, 1, 0, in, 1, &c));
    GIVES(-EDEADLK, portolan_post_receive(endpoint, other, 1, 0, in, 1, NULL, &op));
    GIVES(-EDEADLK, portolan_probe(endpoint, other, 1, 0, NULL));
    GIVES(-EDEADLK, portolan_cancel(endpoint, 1));
    GIVES(-EDEADLK, portolan_queue_read(endpoint, 1, &c, 1));
    GIVES(-EDEADLK, portolan_pull_read(endpoint, &op, &op));
    GIVES(-EDEADLK, portolan_set_pull(endpoint, 1, 1));
    GIVES(-EDEADLK, portolan_share_min_read(endpoint, &op));
    GIVES(-EDEADLK, portolan_set_share_min(endpoint, 1));
    ((struct seen *)user)->messages++;
}

static int is_not_refused(void)
{
    return portolan_probe(endpoint, me, 1, 0, NULL) != -ECHILD
        || portolan_send_tagged(endpoint, me, 1, "x", 1) != -ECHILD;
}

int main(void)
{
    join(PORTOLAN_THREADS_SINGLE);
    wrong_arguments();
    from_handler_and_child(calls_all, is_not_refused);
    GIVES(0, portolan_close(endpoint));
    printf("misuse, rank %u: all is well\n", me);
    return 0;
}
