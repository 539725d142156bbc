/*
 * Portolan: tag-matched send and receive, as in MPI, for C99 and C++17.
 * portolan.h includes this header; its rules hold here.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A matched message has a tag of 64 bits and any length up to 2^38 bytes. A
 * receive names a source (a rank or PORTOLAN_ANY), a tag, and in `ignore` the
 * bits of the tag that do not count: 0 if all count, UINT64_MAX if any tag fits.
 * Of several receives that fit a message, the one posted first takes it. Of
 * several messages that fit a receive, it takes the one that arrived first.
 * Messages of one sender are matched in the order in which it sent them. They
 * have no order with messages to ports.
 *
 * Short messages are pushed whole (eager) while the receiver has room for them
 * (settings pushed_bytes, pushed_share). Longer messages are offered
 * (rendezvous): the first bytes are pushed, and the rest goes straight into the
 * receive's memory once there is a receive.
 *
 * Operations. A call that posts stores the operation's number, never 0, and
 * returns at once. The operation ends later, within calls that make progress or
 * while the helper thread does. Its end is reported once: by
 * portolan_operation_test() or portolan_operation_wait(), or by the queue that
 * the options name. After that its number is invalid.
 *
 * Memory of an operation is lent until its end is reported or the endpoint is
 * closed. Until then the memory of a send must not change. Nobody may touch the
 * memory of a receive, and its pieces must not overlap. Closing a queue does not
 * end the operations that name it. An array of pieces is read only during the
 * call.
 *
 * Errors of every call here, beside those of portolan.h:
 * -EDEADLK   called from a handler: none of these calls may be made there
 * -EINVAL    more than 1,024 pieces of memory (IOV_MAX)
 * -EFAULT    a piece of memory is null and has a length
 * -EMSGSIZE  more memory than a process can have, or a message of more than 2^38
 *            bytes
 * -ENXIO     no such rank
 * -ENOENT    an operation, queue, counter or claimed message does not exist, or
 *            no longer
 * -ESHUTDOWN the endpoint is being closed
 * If a call that posts returns an error, nothing was begun.
 */
#ifndef PORTOLAN_MATCHED_H
#define PORTOLAN_MATCHED_H

#include "portolan.h"
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* As a source: any rank. */
#define PORTOLAN_ANY UINT32_MAX

/* Flags of a send. */
/* The send does not end before a receive has matched the message. */
#define PORTOLAN_SYNC 1u
/* `data` is sent with the message. */
#define PORTOLAN_DATA 2u

/* How a message is sent, and how the end of an operation is reported. */
typedef struct portolan_tagged_options {
    uint32_t size;
    /* PORTOLAN_SYNC and PORTOLAN_DATA, or 0; for receives 0. */
    uint32_t flags;
    /* A word for the receiver's completion; 0 without PORTOLAN_DATA. */
    uint64_t data;
    /* Returned in the completion. Default: 0. */
    uint64_t context;
    /* The queue that the completion goes to. Default: 0, none: the completion
     * waits for portolan_operation_test() or portolan_operation_wait(). */
    uint32_t queue;
    /* The counter that counts the operation's end. Default: 0, none. */
    uint32_t counter;
} portolan_tagged_options;

static inline void portolan_tagged_options_init(portolan_tagged_options *options)
{
    memset(options, 0, sizeof *options);
    options->size = (uint32_t)sizeof *options;
}

/* Kinds of operations. */
#define PORTOLAN_SENT 1u
#define PORTOLAN_RECEIVED 2u
/* One-sided: see portolan_onesided.h. */
#define PORTOLAN_PUT 3u
#define PORTOLAN_GOT 4u
#define PORTOLAN_ADDED 5u
#define PORTOLAN_SWAPPED 6u
#define PORTOLAN_FLUSHED 7u
/* To a port: portolan_post_message(). */
#define PORTOLAN_MESSAGE 8u
/* portolan_post_receive_many() has ended. */
#define PORTOLAN_RECEIVED_MANY 9u
/* portolan_post_atomic(). */
#define PORTOLAN_CHANGED 10u

/* How an operation ended. */
typedef struct portolan_completion {
    /* Size in bytes as the caller knows it; set before the call. */
    uint32_t size;
    /* 0 if the operation succeeded. Else
     * -EMSGSIZE  the message was longer than the memory, which holds its
     *            beginning
     * -ECANCELED the receive was cancelled
     * -ECONNREFUSED the receiver refused the message to its port
     * -ESHUTDOWN the endpoint or the space was closed
     * -EPIPE, -ECONNRESET, -EHOSTDOWN, -EHOSTUNREACH, -ESTALE, -EBADMSG
     *            the other side is dead, see "Errors of every send" in
     *            portolan.h; the memory of a receive may have been written in
     *            part
     * others     of one-sided operations: see portolan_onesided.h */
    int32_t error;
    /* The operation's number, which is invalid now. For a message of
     * portolan_post_receive_many() that receive, which goes on. */
    uint64_t operation;
    /* PORTOLAN_SENT and so on; ignore kinds that you do not know. */
    uint32_t action;
    /* The other side. PORTOLAN_ANY for a receive from any rank that met no
     * message. */
    uint32_t peer;
    /* The message's tag. For a receive that met no message its own tag; for
     * one-sided operations 0. */
    uint64_t tag;
    /* Bytes sent, or bytes written to the memory of a receive, put or get. */
    uint64_t bytes;
    /* Length of the message or of the access, bytes. */
    uint64_t total;
    /* If has_data is not 0: the word that was sent with PORTOLAN_DATA, the old value
     * that an atomic operation on one element of at most 8 bytes found, or the number of a message to a port. */
    uint64_t data;
    uint32_t has_data;
    uint32_t reserved;
    /* The context of the options. */
    uint64_t context;
    /* For a message of portolan_post_receive_many(): where in the buffer it begins.
     * Else 0. */
    uint64_t offset;
} portolan_completion;

static inline void portolan_completion_init(portolan_completion *completion)
{
    memset(completion, 0, sizeof *completion);
    completion->size = (uint32_t)sizeof *completion;
}

/* ---- Sending ---------------------------------------------------------- */

/* Sends a message, also to this rank itself. Returns when the program may use the
 * bytes again: for a short message as soon as it has left, for a long one when
 * its receiver has it. Makes progress and runs handlers meanwhile. `data` may be
 * null if `bytes` is 0.
 * -EPIPE, -ECONNRESET, ...  the receiver is dead, see portolan.h */
int portolan_send_tagged(portolan_endpoint *endpoint, uint32_t rank, uint64_t tag,
                         const void *data, size_t bytes);

/* Does the same from several pieces of memory, one after the other, and with
 * options; null for the defaults. With PORTOLAN_SYNC it does not return before a
 * receive has matched the message.
 * -EINVAL  context, queue or counter of the options is not 0 */
int portolan_send_taggedv(portolan_endpoint *endpoint, uint32_t rank, uint64_t tag,
                          const struct iovec *pieces, size_t count,
                          const portolan_tagged_options *options);

/* Begins to send a message. Its operation ends when the program may use the bytes
 * again. If the receiver has no room, the operation waits. `options` may be
 * null.
 * -EPIPE, -ECONNRESET, ...  the receiver is dead, see portolan.h */
int portolan_post_send(portolan_endpoint *endpoint, uint32_t rank, uint64_t tag, const void *data,
                       size_t bytes, const portolan_tagged_options *options, uint64_t *operation);
int portolan_post_sendv(portolan_endpoint *endpoint, uint32_t rank, uint64_t tag,
                        const struct iovec *pieces, size_t count,
                        const portolan_tagged_options *options, uint64_t *operation);

/* ---- Receiving -------------------------------------------------------- */

/* Waits for the first message that fits and receives it in `buffer`.
 * `completion`, which may be null, describes it. Makes progress and runs handlers
 * meanwhile. Returns 0, or the completion's error:
 * -EMSGSIZE  the message was longer than `bytes`; its beginning is there
 * -EPIPE, -ECONNRESET, ...  the sender is dead. With PORTOLAN_ANY: returned once
 *   for each rank whose process dies, and for the last other rank that closes its
 *   endpoint. Then nothing was received, and the completion is not written. Call
 *   again to wait for others */
int portolan_receive_tagged(portolan_endpoint *endpoint, uint32_t source, uint64_t tag,
                            uint64_t ignore, void *buffer, size_t bytes,
                            portolan_completion *completion);

/* Does the same with several pieces of memory, filled one after the other. */
int portolan_receive_taggedv(portolan_endpoint *endpoint, uint32_t source, uint64_t tag,
                             uint64_t ignore, const struct iovec *pieces, size_t count,
                             portolan_completion *completion);

/* Posts a receive. `options` may be null; its flags and data must be 0. If the
 * source is dead, the receive ends at once: with what had arrived from it, or
 * with the death. */
int portolan_post_receive(portolan_endpoint *endpoint, uint32_t source, uint64_t tag,
                          uint64_t ignore, void *buffer, size_t bytes,
                          const portolan_tagged_options *options, uint64_t *operation);
int portolan_post_receivev(portolan_endpoint *endpoint, uint32_t source, uint64_t tag,
                           uint64_t ignore, const struct iovec *pieces, size_t count,
                           const portolan_tagged_options *options, uint64_t *operation);

/* Posts a receive that takes many messages, one behind the other without gaps, until
 * less than `room_min` bytes of the buffer are left (at least 1). A message that is
 * longer than the room left is cut (-EMSGSIZE in its completion).
 *
 * `options` must name a queue. Each message has a completion there as of a receive,
 * in the order in which the messages are complete. Its `operation` is this receive,
 * and its `offset` says where in the buffer the message begins. Last comes one
 * completion of the kind PORTOLAN_RECEIVED_MANY: the buffer is the program's again,
 * and `bytes` of it were used. Its error is 0, or
 * -ECANCELED  portolan_cancel(): messages that had begun to arrive came before it
 * -EPIPE, -ECONNRESET, ...  the source is dead
 *
 * A counter that the options name counts each message and the end.
 * -ENOENT  the options name no queue, or one that does not exist */
int portolan_post_receive_many(portolan_endpoint *endpoint, uint32_t source, uint64_t tag,
                               uint64_t ignore, void *buffer, size_t bytes, uint64_t room_min,
                               const portolan_tagged_options *options, uint64_t *operation);

/* ---- Probing ---------------------------------------------------------- */

/* A message that no receive has matched. */
typedef struct portolan_probed {
    /* Size in bytes as the caller knows it; set before the call. */
    uint32_t size;
    /* Its sender. */
    uint32_t from;
    uint64_t tag;
    /* Its length, bytes. */
    uint64_t total;
    /* As in a completion. */
    uint64_t data;
    uint32_t has_data;
    uint32_t reserved;
} portolan_probed;

static inline void portolan_probed_init(portolan_probed *probed)
{
    memset(probed, 0, sizeof *probed);
    probed->size = (uint32_t)sizeof *probed;
}

/* Returns 1 if there is a message that a receive would take now, else 0. Makes
 * one pass of progress if there is none at first. `probed`, which may be null,
 * describes the message, which stays where it is. */
int portolan_probe(portolan_endpoint *endpoint, uint32_t source, uint64_t tag, uint64_t ignore,
                   portolan_probed *probed);

/* Does the same and takes the message out (matched probe): no receive or probe
 * sees it any more. `*message` names it for portolan_receive_claimed() or
 * portolan_discard(); it is 0 if there is none. */
int portolan_claim(portolan_endpoint *endpoint, uint32_t source, uint64_t tag, uint64_t ignore,
                   uint64_t *message, portolan_probed *probed);

/* Posts the receive of a claimed message. If the call fails, the message is still
 * claimed.
 * -ENOENT  the message was not claimed, or was received or discarded */
int portolan_receive_claimed(portolan_endpoint *endpoint, uint64_t message, void *buffer,
                             size_t bytes, const portolan_tagged_options *options,
                             uint64_t *operation);
int portolan_receive_claimedv(portolan_endpoint *endpoint, uint64_t message,
                              const struct iovec *pieces, size_t count,
                              const portolan_tagged_options *options, uint64_t *operation);

/* Discards a claimed message. Its sender sees it as received.
 * -ENOENT  the message was not claimed, or was received or discarded */
int portolan_discard(portolan_endpoint *endpoint, uint64_t message);

/* ---- Operations ------------------------------------------------------- */

/* Returns 1 if an operation has ended, well or not, and fills `completion`.
 * Returns 0 if it goes on. Makes one pass of progress if it had not ended.
 * -ENOENT  no such operation, or its end was reported before */
int portolan_operation_test(portolan_endpoint *endpoint, uint64_t operation,
                            portolan_completion *completion);

/* Waits until an operation has ended, at most `timeout_ns`. Makes progress and
 * runs handlers. Returns 1 when it has ended, well or not, and fills
 * `completion`. After these errors the operation goes on:
 * -ETIMEDOUT  the time is up
 * -EPIPE, -ECONNRESET, ...  for a receive from PORTOLAN_ANY: returned once for
 *   each rank whose process dies, as by portolan_receive_tagged()
 * and without an operation:
 * -ENOENT  no such operation, or its end was reported before */
int portolan_operation_wait(portolan_endpoint *endpoint, uint64_t operation,
                            portolan_completion *completion, int64_t timeout_ns);

/* Frees the number of an operation that nobody will ask about. If it has not
 * ended, it goes on and keeps its number, and its memory stays lent until it ends
 * or the endpoint is closed. An invalid number has no effect. */
int portolan_operation_forget(portolan_endpoint *endpoint, uint64_t operation);

/* Cancels a receive that no message has met: returns 1, and the receive ends with
 * -ECANCELED. Returns 0 if it has met a message, has ended, or is a send. Then
 * the call has no effect.
 * -ENOENT  no such operation, or its end was reported before */
int portolan_cancel(portolan_endpoint *endpoint, uint64_t operation);

/* ---- Completion queues ------------------------------------------------ */

/* Makes a completion queue, to be named in the options of operations. Its number
 * is never 0. It never drops a completion; it holds at most one for each
 * operation that was begun. */
int portolan_queue_open(portolan_endpoint *endpoint, uint32_t *queue);

/* Closes a queue. Completions in it, and those that would still come to it, are
 * lost. Operations go on, and their memory stays lent until the endpoint is
 * closed. */
int portolan_queue_close(portolan_endpoint *endpoint, uint32_t queue);

/* Takes up to `count` completions, the oldest first. Makes one pass of progress
 * if there is none. Returns their number, 0 if there is none. The size of the
 * first element of the array must be set; it holds for all of them.
 * -EINVAL  `count` is 0 */
int64_t portolan_queue_read(portolan_endpoint *endpoint, uint32_t queue,
                            portolan_completion *completions, size_t count);

/* Waits until there is at least one completion, at most `timeout_ns`. Makes
 * progress and runs handlers. The rest is as in portolan_queue_read().
 * -EINVAL     `count` is 0
 * -ETIMEDOUT  the time is up
 * -EPIPE, -ECONNRESET, ...  returned once for each rank whose process dies,
 *   because any operation may depend on it; call again to go on waiting */
int64_t portolan_queue_wait(portolan_endpoint *endpoint, uint32_t queue,
                            portolan_completion *completions, size_t count, int64_t timeout_ns);

/* ---- Counters --------------------------------------------------------- */

/* Makes a counter of ended operations, at zero, to be named in the options of
 * operations. Its number is never 0. */
int portolan_counter_open(portolan_endpoint *endpoint, uint32_t *counter);

/* Closes a counter. Operations that name it are no longer counted. */
int portolan_counter_close(portolan_endpoint *endpoint, uint32_t counter);

/* Returns how many operations have succeeded (`done`) and how many have failed
 * (`failed`), after one pass of progress. Both may be null. */
int portolan_counter_value(portolan_endpoint *endpoint, uint32_t counter, uint64_t *done,
                           uint64_t *failed);

/* Waits until `ended` operations have ended in all, well or not, at most
 * `timeout_ns`. Returns both counts, which may be null.
 * -ETIMEDOUT  the time is up
 * -EPIPE, -ECONNRESET, ...  as in portolan_queue_wait() */
int portolan_counter_wait(portolan_endpoint *endpoint, uint32_t counter, uint64_t ended,
                          uint64_t *done, uint64_t *failed, int64_t timeout_ns);

/* ---- How messages are pushed ------------------------------------------ */

/* Flags. */
/* The receiver requests the rest as soon as the first push has arrived. Without
 * it, when everything that was pushed has arrived. */
#define PORTOLAN_PUSH_OVERLAP 1u
/* The receiver's memory is prepared (missing pages are faulted in) after its
 * request has left. Without it, before. */
#define PORTOLAN_PUSH_MASKING 2u

/* How much of a message is sent before the receiver requests it, bytes. Here 0
 * means 0, so begin with what portolan_push_read() returns. Push-zero is all
 * zeros, push-all is `whole` at its largest. Defaults: settings push_shm_whole,
 * push_net_whole and so on; both flags. */
typedef struct portolan_push {
    uint32_t size;
    /* PORTOLAN_PUSH_*. */
    uint32_t flags;
    /* Longest message that is pushed whole, while the receiver has room. */
    uint64_t whole;
    /* Of a longer message: bytes that leave with its offer, BTP(1). */
    uint64_t first;
    /* Bytes that follow right behind, while the receiver's request is on its
     * way, BTP(2). */
    uint64_t second;
} portolan_push;

static inline void portolan_push_init(portolan_push *push)
{
    memset(push, 0, sizeof *push);
    push->size = (uint32_t)sizeof *push;
}

/* Returns how messages are pushed by shared memory and to this rank itself
 * (`shm`), and by the network (`net`). */
int portolan_push_read(portolan_endpoint *endpoint, portolan_push *shm, portolan_push *net);

/* Returns how messages to a rank are pushed: one of the two.
 * -ENXIO  no such rank */
int portolan_push_to(portolan_endpoint *endpoint, uint32_t rank, portolan_push *push);

/* Changes both, for messages that are sent from now on. */
int portolan_set_push(portolan_endpoint *endpoint, const portolan_push *shm,
                      const portolan_push *net);

/* Changes the pushed buffer: the bytes that each sender may push to this rank
 * before a receive asks for them. With 0 this is what one message pushes at most,
 * by this endpoint's own thresholds (`whole`, or `first` and `second`), and an
 * eighth. Senders of the last long messages by the network share that. It is at
 * least 4,096 and at most the sender's part of the setting pushed_bytes. What was
 * granted before stays granted until it is used. Default: setting
 * pushed_share. */
int portolan_set_pushed_share(portolan_endpoint *endpoint, uint64_t bytes);

/* Statistics: what matched messages and one-sided memory hold at a moment. */
typedef struct portolan_statistics {
    /* Size in bytes as the caller knows it; set before the call. */
    uint32_t size;
    uint32_t reserved;
    /* Operations that have not ended. */
    uint64_t operations;
    /* Messages that no receive has matched, or whose pushes are still arriving. */
    uint64_t messages;
    /* Bytes of these messages that are charged to their senders. */
    uint64_t pushed_bytes;
    /* Payloads that have arrived in part. */
    uint64_t parts;
    /* Second pushes that have not begun to arrive. */
    uint64_t second_pushes;
    /* Bytes that were requested and have not arrived, without those that their
     * sender writes itself. */
    uint64_t pulled_bytes;
    /* Ranks for which something waits for room to be sent. */
    uint64_t backlogs;
    /* Ranks on which one-sided operations have not ended, or were not flushed. */
    uint64_t unflushed;
    /* Regions that are registered or still in use. */
    uint64_t regions;
    /* Accesses to these regions that are under way. */
    uint64_t accesses;
} portolan_statistics;

static inline void portolan_statistics_init(portolan_statistics *statistics)
{
    memset(statistics, 0, sizeof *statistics);
    statistics->size = (uint32_t)sizeof *statistics;
}

/* Fills `statistics`. */
int portolan_matched_statistics(portolan_endpoint *endpoint, portolan_statistics *statistics);

/* ---- How messages are pulled, and who copies -------------------------- */

/* Returns how this rank requests the rest of messages and the bytes of gets.
 * At most `*window` bytes of all senders together are outstanding. One request
 * asks for `*chunk` bytes; for a message by shared memory at least 1 MiB. */
int portolan_pull_read(portolan_endpoint *endpoint, uint64_t *window, uint64_t *chunk);

/* Changes both, for requests from now on. A get that was begun keeps its chunk.
 * Any value is possible: a window below 2 counts as 2, a chunk of 0 as 1.
 * Defaults: settings pull_window, pull_chunk. */
int portolan_set_pull(portolan_endpoint *endpoint, uint64_t window, uint64_t chunk);

/* Returns the length in bytes from which both sides copy a message. This concerns
 * processes that can access each other's memory, and messages that are sent by a
 * call that waits. */
int portolan_share_min_read(portolan_endpoint *endpoint, uint64_t *bytes);

/* Changes it, for messages that are sent or matched from now on. The sender's
 * value decides which messages are offered so, the receiver's which are copied
 * so. With UINT64_MAX one side copies everything. Default: setting share_min. */
int portolan_set_share_min(portolan_endpoint *endpoint, uint64_t bytes);

#ifdef __cplusplus
}
#endif

#endif
