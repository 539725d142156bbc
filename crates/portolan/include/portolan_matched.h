/*
 * Portolan: matched messages, for C99 and C++17. portolan.h includes this; its
 * rules hold here.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A matched message has a tag of 64 bits and any length. A receive names a
 * source (a rank or PORTOLAN_ANY), a tag, and the bits of the tag that do not
 * count (`ignore`: 0 means that all count, UINT64_MAX that any tag fits). Of
 * several receives that fit a message the one posted first takes it; of
 * several messages that fit a receive, the one that arrived first. Messages of
 * one sender are matched in the order in which it sent them. They keep no
 * order with messages to ports.
 *
 * Short messages are pushed whole while the receiver has room for them
 * (settings pushed_bytes, pushed_share); of longer ones the first bytes are
 * pushed, and the rest comes straight into the receive's memory once there is
 * a receive.
 *
 * Operations. A call that posts stores the operation's number, never 0, and
 * returns at once. The operation ends later, within calls that make progress,
 * or while the helper thread does. Its end is told once: by
 * portolan_operation_test() or portolan_operation_wait(), or by the queue that
 * the options name; then its number is void.
 * Memory given to a call that posts is lent until the operation's end was told
 * or the endpoint was closed: that of a send must not change, that of a
 * receive must be touched by nobody and pieces of it must not overlap. That a
 * queue is closed does not end what would have come to it. The array of
 * pieces itself is read only during the call.
 * In handlers none of these calls may be made (-EDEADLK).
 *
 * Errors of all calls with memory:
 * -EINVAL    more than 1,024 pieces (IOV_MAX)
 * -EFAULT    a piece is null and has a length
 * -EMSGSIZE  memory that no process has, or a message of more than 2^38 bytes
 * and of all calls that name a rank -ENXIO, of all calls that name an
 * operation, a queue, a counter or a claimed message -ENOENT: there is none, or
 * no longer. Where a call that posts gives an error, nothing was begun.
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
/* It ends when a receive has met the message, not before. */
#define PORTOLAN_SYNC 1u
/* `data` goes with the message. */
#define PORTOLAN_DATA 2u

/* How a message is sent, and how the end of an operation is told. */
typedef struct portolan_tagged_options {
    uint32_t size;
    /* PORTOLAN_SYNC and PORTOLAN_DATA, or 0; of receives 0. */
    uint32_t flags;
    /* A word for the receiver's completion; 0 without PORTOLAN_DATA. */
    uint64_t data;
    /* Comes back with the completion. Default: 0. */
    uint64_t context;
    /* The queue that the completion goes to. Default: 0, none: it waits for
     * portolan_operation_test() or portolan_operation_wait(). */
    uint32_t queue;
    /* The counter that counts the operation's end. Default: 0, none. */
    uint32_t counter;
} portolan_tagged_options;

static inline void portolan_tagged_options_init(portolan_tagged_options *options)
{
    memset(options, 0, sizeof *options);
    options->size = (uint32_t)sizeof *options;
}

/* What an operation was. */
#define PORTOLAN_SENT 1u
#define PORTOLAN_RECEIVED 2u
/* One-sided: see portolan_onesided.h. */
#define PORTOLAN_PUT 3u
#define PORTOLAN_GOT 4u
#define PORTOLAN_ADDED 5u
#define PORTOLAN_SWAPPED 6u
#define PORTOLAN_FLUSHED 7u

/* How an operation ended. */
typedef struct portolan_completion {
    /* Size in bytes as the caller knows it; set before the call. */
    uint32_t size;
    /* 0: well. Else
     * -EMSGSIZE  the message was longer than the memory, which is full of its
     *            beginning
     * -ECANCELED it was cancelled
     * -ESHUTDOWN the endpoint was closed
     * -EPIPE, -ECONNRESET, -EHOSTDOWN, -EHOSTUNREACH, -ESTALE, -EBADMSG
     *            the other side is dead, as of every send (portolan.h); the
     *            memory of a receive may have been written in part
     * others of one-sided operations: see portolan_onesided.h */
    int32_t error;
    /* Its number, which is void now. */
    uint64_t operation;
    /* PORTOLAN_SENT and so on; ignore what you do not know. */
    uint32_t action;
    /* The other side; PORTOLAN_ANY of a receive from any rank that met no
     * message. */
    uint32_t peer;
    /* Of the message; of a receive that met none, its own; of one-sided
     * operations 0. */
    uint64_t tag;
    /* Bytes that were sent, or written to the memory of receive, put or get. */
    uint64_t bytes;
    /* Bytes of the message, or of the access. */
    uint64_t total;
    /* If has_data is not 0: what the sender gave with PORTOLAN_DATA, or what an
     * atomic operation found. */
    uint64_t data;
    uint32_t has_data;
    uint32_t reserved;
    /* Of the options. */
    uint64_t context;
} portolan_completion;

static inline void portolan_completion_init(portolan_completion *completion)
{
    memset(completion, 0, sizeof *completion);
    completion->size = (uint32_t)sizeof *completion;
}

/* ---- Sending ---------------------------------------------------------- */

/* Sends a message. Returns when the bytes are yours again: of a short one as
 * soon as it has left, of a long one when its receiver has it. Makes progress
 * and runs handlers meanwhile. To this rank itself too. `data` may be null if
 * `bytes` is 0.
 * -EPIPE, -ECONNRESET, ...  the receiver is dead, see portolan.h */
int portolan_send_tagged(portolan_endpoint *endpoint, uint32_t rank, uint64_t tag,
                         const void *data, size_t bytes);

/* The same from several pieces of memory, one after the other, and with
 * options (null for defaults), of which context, queue and counter must be 0:
 * -EINVAL. With PORTOLAN_SYNC it returns when a receive has met the message. */
int portolan_send_taggedv(portolan_endpoint *endpoint, uint32_t rank, uint64_t tag,
                          const struct iovec *pieces, size_t count,
                          const portolan_tagged_options *options);

/* Begins to send a message; its operation ends when the bytes are yours again.
 * Where the receiver has no room it waits. `options` may be null. */
int portolan_post_send(portolan_endpoint *endpoint, uint32_t rank, uint64_t tag, const void *data,
                       size_t bytes, const portolan_tagged_options *options, uint64_t *operation);
int portolan_post_sendv(portolan_endpoint *endpoint, uint32_t rank, uint64_t tag,
                        const struct iovec *pieces, size_t count,
                        const portolan_tagged_options *options, uint64_t *operation);

/* ---- Receiving -------------------------------------------------------- */

/* Receives the first message that fits, and says how in `completion`, which may
 * be null. Makes progress and runs handlers meanwhile. Gives 0, or the
 * completion's error:
 * -EMSGSIZE  the message was longer; its beginning is there
 * -EPIPE, -ECONNRESET, ...  its sender is dead. From PORTOLAN_ANY this is given
 *   once for each rank whose process dies (and for the last other rank that
 *   closes its endpoint), and the completion is left alone: nothing was
 *   received; call again to wait for others */
int portolan_receive_tagged(portolan_endpoint *endpoint, uint32_t source, uint64_t tag,
                            uint64_t ignore, void *buffer, size_t bytes,
                            portolan_completion *completion);

/* The same in several pieces of memory, filled one after the other. */
int portolan_receive_taggedv(portolan_endpoint *endpoint, uint32_t source, uint64_t tag,
                             uint64_t ignore, const struct iovec *pieces, size_t count,
                             portolan_completion *completion);

/* Posts a receive. `options` may be null; its flags and data must be 0. A
 * receive from a rank that is dead ends at once, with what has arrived of it or
 * with the death. */
int portolan_post_receive(portolan_endpoint *endpoint, uint32_t source, uint64_t tag,
                          uint64_t ignore, void *buffer, size_t bytes,
                          const portolan_tagged_options *options, uint64_t *operation);
int portolan_post_receivev(portolan_endpoint *endpoint, uint32_t source, uint64_t tag,
                           uint64_t ignore, const struct iovec *pieces, size_t count,
                           const portolan_tagged_options *options, uint64_t *operation);

/* ---- Probing ---------------------------------------------------------- */

/* A message that no receive has met. */
typedef struct portolan_probed {
    /* Size in bytes as the caller knows it; set before the call. */
    uint32_t size;
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

/* Whether there is a message that a receive would take now: 1, and which at
 * `probed` (may be null), after one pass of progress if there was none; else
 * 0. It stays where it is. */
int portolan_probe(portolan_endpoint *endpoint, uint32_t source, uint64_t tag, uint64_t ignore,
                   portolan_probed *probed);

/* The same, and takes the message out: no receive or probe sees it any more.
 * `*message` names it, until portolan_receive_claimed() or portolan_discard();
 * 0 if there is none. */
int portolan_claim(portolan_endpoint *endpoint, uint32_t source, uint64_t tag, uint64_t ignore,
                   uint64_t *message, portolan_probed *probed);

/* Posts the receive of a claimed message. If it fails the message is still
 * claimed. */
int portolan_receive_claimed(portolan_endpoint *endpoint, uint64_t message, void *buffer,
                             size_t bytes, const portolan_tagged_options *options,
                             uint64_t *operation);
int portolan_receive_claimedv(portolan_endpoint *endpoint, uint64_t message,
                              const struct iovec *pieces, size_t count,
                              const portolan_tagged_options *options, uint64_t *operation);

/* Throws a claimed message away. For its sender it was received. */
int portolan_discard(portolan_endpoint *endpoint, uint64_t message);

/* ---- Operations ------------------------------------------------------- */

/* Whether an operation has ended, after one pass of progress if it had not: 1,
 * well or not, and how at `completion`; 0 if it goes on. */
int portolan_operation_test(portolan_endpoint *endpoint, uint64_t operation,
                            portolan_completion *completion);

/* Waits for that, but not longer than `timeout_ns`; makes progress and runs
 * handlers. Gives 1, well or not. After an error the operation goes on:
 * -ETIMEDOUT  the time was up
 * -EPIPE, -ECONNRESET, ...  of a receive from PORTOLAN_ANY, once for each rank
 *   whose process dies, as portolan_receive_tagged() says */
int portolan_operation_wait(portolan_endpoint *endpoint, uint64_t operation,
                            portolan_completion *completion, int64_t timeout_ns);

/* Cancels a receive that no message has met: 1, and it ends with -ECANCELED. 0
 * if it has met one, has ended, or is a send: it goes on as if not asked. */
int portolan_cancel(portolan_endpoint *endpoint, uint64_t operation);

/* ---- Completion queues ------------------------------------------------ */

/* Makes a completion queue, for the options of operations. Its number is not
 * 0. It never drops a completion: it holds at most what was begun. */
int portolan_queue_open(portolan_endpoint *endpoint, uint32_t *queue);

/* Closes it. What it holds, and what would still come to it, is forgotten;
 * operations go on, and their memory stays lent until the endpoint is closed. */
int portolan_queue_close(portolan_endpoint *endpoint, uint32_t queue);

/* Takes up to `count` completions, the oldest first, after one pass of progress
 * where there is none. Gives how many; 0 if there is none. The size of the
 * first of the array, which must be set, is that of all.
 * -EINVAL  `count` is 0 */
int64_t portolan_queue_read(portolan_endpoint *endpoint, uint32_t queue,
                            portolan_completion *completions, size_t count);

/* Waits until there is at least one, but not longer than `timeout_ns`; makes
 * progress and runs handlers.
 * -ETIMEDOUT  the time was up
 * -EPIPE, -ECONNRESET, ...  once for each rank whose process dies: what is
 *   waited for may depend on it; call again to wait on */
int64_t portolan_queue_wait(portolan_endpoint *endpoint, uint32_t queue,
                            portolan_completion *completions, size_t count, int64_t timeout_ns);

/* ---- Counters --------------------------------------------------------- */

/* Makes a counter of ended operations, at zero, for the options of operations.
 * Its number is not 0. */
int portolan_counter_open(portolan_endpoint *endpoint, uint32_t *counter);

/* Closes it: operations that would be counted there are counted no more. */
int portolan_counter_close(portolan_endpoint *endpoint, uint32_t counter);

/* How many operations ended well (`done`) and otherwise (`failed`), after one
 * pass of progress. Both may be null. */
int portolan_counter_value(portolan_endpoint *endpoint, uint32_t counter, uint64_t *done,
                           uint64_t *failed);

/* Waits until `ended` have ended in all, well or not; gives both counts, which
 * may be null. Errors as of portolan_queue_wait(). */
int portolan_counter_wait(portolan_endpoint *endpoint, uint32_t counter, uint64_t ended,
                          uint64_t *done, uint64_t *failed, int64_t timeout_ns);

/* ---- How messages are pushed ------------------------------------------ */

/* Flags. */
/* The receiver asks for the rest as soon as the first push has arrived, not
 * when all that was pushed has. */
#define PORTOLAN_PUSH_OVERLAP 1u
/* The receiver's memory is made ready once its request has left, not before. */
#define PORTOLAN_PUSH_MASKING 2u

/* How much of a message leaves before it is asked for, bytes. Here 0 means 0:
 * begin with what portolan_push_read() gives. Push-zero is all zeros, push-all
 * is `whole` at its largest. Defaults: settings push_shm_whole, push_net_whole
 * and so on; both flags. */
typedef struct portolan_push {
    uint32_t size;
    /* PORTOLAN_PUSH_*. */
    uint32_t flags;
    /* Longest message that is pushed whole, while the receiver has room. */
    uint64_t whole;
    /* Of a longer one: bytes that leave with its offer, BTP(1)... */
    uint64_t first;
    /* ...and right behind, while the receiver's request is on its way, BTP(2). */
    uint64_t second;
} portolan_push;

static inline void portolan_push_init(portolan_push *push)
{
    memset(push, 0, sizeof *push);
    push->size = (uint32_t)sizeof *push;
}

/* How messages are pushed by shared memory and to this rank itself, and by
 * the network. */
int portolan_push_read(portolan_endpoint *endpoint, portolan_push *shm, portolan_push *net);

/* How they are pushed to a rank: one of both. */
int portolan_push_to(portolan_endpoint *endpoint, uint32_t rank, portolan_push *push);

/* Changes both, for messages that are sent from now on. */
int portolan_set_push(portolan_endpoint *endpoint, const portolan_push *shm,
                      const portolan_push *net);

/* Changes the pushed buffer: bytes that each sender may push here before a
 * receive asks for them. 0: what one message pushes at most, by this
 * endpoint's own thresholds (`whole`, or `first` and `second`), and an eighth;
 * by the network all that sent the last long messages share that. At least
 * 4,096, and at most its part of the setting pushed_bytes. What was granted
 * before stays granted until it is used. Default: setting pushed_share. */
int portolan_set_pushed_share(portolan_endpoint *endpoint, uint64_t bytes);

/* What matched messages and one-sided memory hold at a moment. */
typedef struct portolan_statistics {
    /* Size in bytes as the caller knows it; set before the call. */
    uint32_t size;
    uint32_t reserved;
    /* Operations that have not ended. */
    uint64_t operations;
    /* Messages that no receive has met, or whose pushes are still coming. */
    uint64_t messages;
    /* Bytes of theirs that are charged to their senders. */
    uint64_t pushed_bytes;
    /* Payloads that have arrived in part. */
    uint64_t parts;
    /* Second pushes that have not begun to arrive. */
    uint64_t second_pushes;
    /* Bytes that were asked for and have not arrived, but for those that their
     * sender writes itself. */
    uint64_t pulled_bytes;
    /* Ranks for which something waits for room to be sent. */
    uint64_t backlogs;
    /* Ranks towards which one-sided operations have not ended, or were not
     * flushed. */
    uint64_t unflushed;
    /* Regions that are registered, or still in use. */
    uint64_t regions;
    /* Accesses to them that are under way. */
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

/* How this rank asks for the rest of messages and for the bytes of gets: up to
 * `*window` bytes of all senders together that have not come, and `*chunk` bytes
 * by one request (by shared memory for a message 1 MiB at least). */
int portolan_pull_read(portolan_endpoint *endpoint, uint64_t *window, uint64_t *chunk);

/* Changes both, for what is asked for from now on; a get that was begun keeps
 * its chunk. Any value is possible: a window below 2 is as 2, a chunk of 0 as 1.
 * Defaults: settings pull_window, pull_chunk. */
int portolan_set_pull(portolan_endpoint *endpoint, uint64_t window, uint64_t chunk);

/* From how many bytes on both sides copy a message between processes that can
 * reach into each other's memory, if it is sent by a call that waits. */
int portolan_share_min_read(portolan_endpoint *endpoint, uint64_t *bytes);

/* Changes it, for messages that are sent or met by a receive from now on: the
 * sender's says what is offered so, the receiver's what is copied so. With
 * UINT64_MAX one side copies all. Default: setting share_min. */
int portolan_set_share_min(portolan_endpoint *endpoint, uint64_t bytes);

#ifdef __cplusplus
}
#endif

#endif
