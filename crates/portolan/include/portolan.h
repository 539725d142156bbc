/*
 * Portolan: reliable messages between processes on ordinary Ethernet.
 * The native interface for C99 and C++; link with -lportolan. Matched messages
 * are in portolan_matched.h, memory that other ranks access in
 * portolan_onesided.h; this includes both.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Rules that hold for every call:
 *
 * Handles.  Every call takes the handle that it is about; the library has no
 *   globals. Handles are pointers to types that only the library knows.
 * Results.  An int or int64_t is a count, a truth value or 0 when not negative,
 *   else a negative errno value; portolan_strerror() says what it means here.
 *   -EFAULT is a null pointer where there must be none, -EINVAL a value that is
 *   not possible (a flag that this version does not know, a structure whose
 *   size was not set), -EIO a bug of the library, which it has caught.
 *   A call that fails has done nothing, unless it says otherwise.
 * Structures begin with their size. Use the portolan_*_init() functions, which
 *   set it and zero the rest; zero means "default" everywhere. So a program
 *   keeps working with later libraries, whose structures are longer. A program
 *   that sets a field which an older library does not know gets -E2BIG.
 * Threads.  By default only the first thread that calls may use an endpoint
 *   (-EPERM for others); see portolan_options.threads.
 * Fork.  A child of fork() has no part in its parent's endpoints: every call
 *   gives -ECHILD, but portolan_close(), which frees the child's copy.
 * Progress.  Handlers run within portolan_progress() and within calls that wait
 *   (send, wait, barrier, broadcast, close), in the calling thread, one at a
 *   time; handlers of ports bound with PORTOLAN_ANY_THREAD also in the helper
 *   thread. Between calls the helper thread keeps data moving.
 * Handlers get a context and call portolan_context_*() and portolan_reply*()
 *   with it. Other calls with the same endpoint give -EDEADLK there, and so do
 *   they in the condition of portolan_wait_until(). A handler must not throw or
 *   longjmp out: a C++ exception that leaves it ends the process.
 * Memory that is lent to the library (buffers of ports, payloads of
 *   portolan_send_lent()) may come from anywhere but must stay valid as long as
 *   the call says. All other pointers are read or written only during the call.
 * Times are in nanoseconds, and negative for "without end", unless the name of
 *   a field says another unit.
 * Order.  Messages from one rank to another with the same priority and flow
 *   arrive in the order in which they were sent, each exactly once.
 */
#ifndef PORTOLAN_H
#define PORTOLAN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Version ---------------------------------------------------------- */

#define PORTOLAN_VERSION_MAJOR 0
#define PORTOLAN_VERSION_MINOR 1
#define PORTOLAN_VERSION_PATCH 0
/* As portolan_version_number() gives it. */
#define PORTOLAN_VERSION_NUMBER \
    ((PORTOLAN_VERSION_MAJOR << 16) | (PORTOLAN_VERSION_MINOR << 8) | PORTOLAN_VERSION_PATCH)

/* Version of the library that is linked, as text ("0.1.0"). Never null. */
const char *portolan_version(void);

/* The same as a number: major << 16 | minor << 8 | patch. */
uint32_t portolan_version_number(void);

/* What an error means that a call of this library gave, in a few words. Takes
 * it with or without its sign. Never null; the text is constant. */
const char *portolan_strerror(int error);

/* ---- Limits ----------------------------------------------------------- */

/* Ports from here on are the library's own: -EACCES. */
#define PORTOLAN_PORTS 0xff00u
/* Argument words of a message, at most. */
#define PORTOLAN_ARGS_MAX 20u
/* Flows are numbered from 0 to one less than this. */
#define PORTOLAN_FLOWS 6u

/* ---- Types ------------------------------------------------------------ */

/* A process's attachment to its job. */
typedef struct portolan_endpoint portolan_endpoint;
/* The endpoint as its handlers see it; valid during the handler's call. */
typedef struct portolan_context portolan_context;
/* A message that was lent to the library and is on its way. */
typedef struct portolan_op portolan_op;
/* Some ranks of the job. */
typedef struct portolan_group portolan_group;

/* Priorities. A reply is never held up by requests. */
#define PORTOLAN_REQUEST 0u
#define PORTOLAN_REPLY 1u

/* A message that has arrived; valid during the handler's call, read only. */
typedef struct portolan_message {
    uint32_t size;
    /* Rank of the sender; of a broadcast, of its root. */
    uint32_t from;
    /* The port that it came to. */
    uint16_t port;
    uint16_t flow;
    /* PORTOLAN_REQUEST or PORTOLAN_REPLY. */
    uint8_t priority;
    uint8_t reserved[3];
    /* Its number within sender, priority and flow; wraps. */
    uint32_t number;
    /* Argument words at `args`. */
    uint32_t arg_count;
    const uint64_t *args;
    /* The payload: in the port's buffer if it has one, else where it arrived
     * (then without any alignment). Not null even if empty. */
    const void *payload;
    /* Bytes at `payload`. */
    size_t bytes;
} portolan_message;

/* Argument word `index` of a message, 0 where there is none (or no message). */
uint64_t portolan_arg(const portolan_message *message, uint32_t index);

/* Kinds of events. */
/* Of a port: a message from rank `rank` came to `port` with `bytes` bytes,
 * but there is `room` for fewer. Nothing of it was stored; its sender gets
 * PORTOLAN_REFUSED. */
#define PORTOLAN_TOO_LONG 1u
/* Of the endpoint: rank `rank` refused message `number` of ours (of that
 * `priority` and `flow`): it closed the port or the endpoint, or the message
 * was too long. Not told of messages sent by portolan_send_lent(), whose
 * operation ends with -ECONNREFUSED instead. */
#define PORTOLAN_REFUSED 2u
/* Of the endpoint and of every port with an error handler: rank `rank` is
 * dead, `error` says how (see portolan_wait_until()). Of a process that has
 * ended, `status` is its exit code, or minus the signal that ended it; 0 also
 * where that is not known. Where the kernel refuses packets here, which gives
 * -EHOSTUNREACH too, `status` is the errno of that. What it had not acknowledged
 * was delivered at most once. */
#define PORTOLAN_PEER_DEAD 3u
/* Of the endpoint: rank `rank` has been silent for long; it is still tried.
 * `status` is the errno with which the kernel refuses packets here, 0 where it
 * does not. */
#define PORTOLAN_PEER_SILENT 4u
/* Of the endpoint and of every port with an error handler: rank `rank`, which
 * was dead, has been started again (portolan run --respawn), is in the job and
 * can be sent to. Nothing of its life before comes any more. */
#define PORTOLAN_PEER_BACK 5u

/* What an error handler is told; fields that the kind does not name are 0. */
typedef struct portolan_event {
    uint32_t size;
    /* PORTOLAN_TOO_LONG and so on; ignore kinds that you do not know. */
    uint32_t kind;
    uint32_t rank;
    /* Negative errno value. */
    int32_t error;
    uint16_t port;
    uint16_t flow;
    uint8_t priority;
    uint8_t reserved[3];
    uint32_t number;
    int32_t status;
    uint64_t bytes;
    uint64_t room;
} portolan_event;

/* Called with each message of a port, and with the `user` pointer of its
 * binding. */
typedef void (*portolan_handler)(portolan_context *context, const portolan_message *message,
                                 void *user);
/* Called when something went wrong. */
typedef void (*portolan_error_handler)(portolan_context *context, const portolan_event *event,
                                       void *user);

/* ---- Opening and closing ---------------------------------------------- */

/* Which threads may call. */
#define PORTOLAN_THREADS_DEFAULT 0u
/* Only the first that calls (the default). Others get -EPERM. */
#define PORTOLAN_THREADS_SINGLE 1u
/* Any; the program sees to it that no two call at the same time: the second
 * would get -EBUSY. */
#define PORTOLAN_THREADS_SERIALIZED 2u
/* Any at any time; calls wait for each other. */
#define PORTOLAN_THREADS_MULTIPLE 3u

#define PORTOLAN_HELPER_DEFAULT 0u
#define PORTOLAN_HELPER_ON 1u
#define PORTOLAN_HELPER_OFF 2u

/* Settings of an endpoint. What is given here goes before `portolan run --set`,
 * that before the environment (PORTOLAN_NAME), that before the file that
 * PORTOLAN_CONFIG names, that before what `portolan tune` has found. Which links
 * a job uses, and whether it encrypts, all ranks must agree on: `portolan run`
 * says it, or under another launcher the settings, the same for all. */
typedef struct portolan_options {
    uint32_t size;
    /* PORTOLAN_THREADS_*. Default: single. */
    uint32_t threads;
    /* PORTOLAN_HELPER_*: a thread that keeps data moving while the program
     * makes no calls. Default: on. */
    uint32_t helper;
    uint32_t reserved;
    /* The helper takes over when the program has made no call for this long,
     * microseconds. Default: 50. */
    uint64_t takeover_us;
    /* Closing waits that long for what is under way, milliseconds. Default: 3000. */
    uint64_t close_ms;
    /* Any settings, an array of strings "NAME=VALUE" that ends with a null
     * pointer; docs/operations.md lists them. Default: none. */
    const char *const *settings;
} portolan_options;

static inline void portolan_options_init(portolan_options *options)
{
    memset(options, 0, sizeof *options);
    options->size = (uint32_t)sizeof *options;
}

/* Opens this process's endpoint in the job that `portolan run` started, or
 * another launcher that offers PMI (mpiexec.hydra, srun --mpi=pmi2), once in a
 * process, and waits until all ranks have opened theirs; where nothing
 * started it, a job of one. `options` may be null, for all defaults. On success
 * `*endpoint` is the handle, to be freed by portolan_close(); else null, and at
 * `why` stands the reason as a sentence with its remedy, cut to `why_bytes`
 * with a final 0 (`why` may be null).
 *
 * -EALREADY   the process has opened its endpoint before
 * -EINVAL     a setting, here or in the environment, has no possible value
 * -EHOSTUNREACH  a rank cannot be reached by the link that the job asks for
 * -ECANCELED  the job is being ended: a rank did not come
 * -EKEYREJECTED  the launcher refused this process: another version or secret
 * -ECONNABORTED  the launcher is gone
 * -ETIMEDOUT  under another launcher: a rank did not come
 * -EBADF      PORTOLAN_JOB or PMI_FD names a descriptor that is no launcher's socket
 * -EPROTO     the launcher or a rank is of another version
 * -EADDRINUSE, -EADDRNOTAVAIL, -EACCES  the UDP port cannot be had
 * -ENOMEM     too little memory, or too little may be locked or shared
 * others      of the system call that `why` names */
int portolan_open(portolan_endpoint **endpoint, const portolan_options *options, char *why,
                  size_t why_bytes);

/* Closes the endpoint and frees the handle: waits until all that was sent has
 * been acknowledged, but not longer than options.close_ms (unless a process of
 * this host is stopped that is writing to a receive's memory); refuses messages
 * that no handler has taken; tells the other ranks. Handlers still run
 * meanwhile, but cannot send. Afterwards nothing lent is used any more, but
 * with -ETIMEDOUT.
 *
 * Null is allowed and does nothing.
 * -ETIMEDOUT  something may not have arrived, or a process of this host was
 *             still writing to a registered region: memory that was registered
 *             with PORTOLAN_MAY_PUT must not be freed or used for anything else
 *             while that process may live. All else that was lent is yours. The
 *             handle is freed
 * -ECHILD     in a forked child: the child's copy is freed, nothing else done
 * -EPERM      not this thread's (THREADS_SINGLE); the handle is not freed
 * -EBUSY      another thread is in a call (THREADS_SERIALIZED); not freed
 * -EDEADLK    from a handler; the handle is not freed */
int portolan_close(portolan_endpoint *endpoint);

/* This process's number in the job, from 0; -EFAULT. */
int64_t portolan_rank(const portolan_endpoint *endpoint);

/* Number of processes in the job; -EFAULT. */
int64_t portolan_size(const portolan_endpoint *endpoint);

/* How often a rank was started again (portolan run --respawn), as far as this
 * one has heard; of this rank itself, how often it was before.
 * -ENXIO  no such rank */
int64_t portolan_restarts(portolan_endpoint *endpoint, uint32_t rank);

/* Which way messages to a rank go, as a text: "self", "shm", "udp", "xdp" or
 * "dead", then ": " and why. Cut to `text_bytes` with a final 0. Gives the length of the
 * whole text without that 0.
 * -ENXIO  no such rank */
int portolan_lane(portolan_endpoint *endpoint, uint32_t rank, char *text, size_t text_bytes);

/* ---- Ports ------------------------------------------------------------ */

/* Flags of a binding. */
/* The helper thread may run this port's handlers too, when the program makes
 * no calls: then they must be fit to run in another thread. */
#define PORTOLAN_ANY_THREAD 1u

/* What a port is bound to; everything may be left out. */
typedef struct portolan_binding {
    uint32_t size;
    /* PORTOLAN_ANY_THREAD or 0. */
    uint32_t flags;
    /* Where messages are written, one at a time, each from the start; null
     * for none. Without a buffer the handler sees a message where it arrived,
     * and a long one is put together in memory of the endpoint
     * (setting queue_bytes). */
    void *buffer;
    size_t buffer_bytes;
    /* Called once for each message. Without one messages are only written to
     * the buffer and counted (portolan_arrived()), the next over the last. */
    portolan_handler handler;
    /* Called with PORTOLAN_TOO_LONG of this port and PORTOLAN_PEER_DEAD. */
    portolan_error_handler error_handler;
    /* Given to both. */
    void *user;
} portolan_binding;

static inline void portolan_binding_init(portolan_binding *binding)
{
    memset(binding, 0, sizeof *binding);
    binding->size = (uint32_t)sizeof *binding;
}

/* Binds a port, or binds it anew. Messages that wait for it are handed over in
 * the next call that makes progress. The buffer is lent: nobody else writes it,
 * and outside of the handler nobody reads it, until
 *  - portolan_set_buffer() gave it back by `old`, or
 *  - portolan_take_buffer() gave it back, or
 *  - the port was closed or bound anew while no message was in it (a message
 *    is in it from its first byte's arrival until its handler has returned;
 *    if unsure use one of the others, or keep the memory), or
 *  - the endpoint was closed.
 * -EACCES  port PORTOLAN_PORTS or above */
int portolan_bind(portolan_endpoint *endpoint, uint16_t port, const portolan_binding *binding);

/* Closes a port: messages that wait there, and further ones, are refused and
 * their senders told. It can be bound again.
 * -EACCES  port PORTOLAN_PORTS or above */
int portolan_unbind(portolan_endpoint *endpoint, uint16_t port);

/* Gives a port another buffer from the next message on, or none if `buffer` is
 * null. `old`, if not null, gets the former buffer where it is free again at
 * once, else null: then a message is in it. It is free when that message's handler
 * has returned, which sees it there (payload == the former buffer); where no
 * handler comes to see it, portolan_take_buffer() tells when it is free. */
int portolan_set_buffer(portolan_endpoint *endpoint, uint16_t port, void *buffer, size_t bytes,
                        void **old);

/* The oldest buffer of the port that was replaced while a message was in it,
 * which no handler came to see, and that is free again (the port has no
 * handler, was closed, or the sender died): 1, with its address and the
 * message's length (0 if incomplete); 0 if there is none. Both pointers may be
 * null. */
int portolan_take_buffer(portolan_endpoint *endpoint, uint16_t port, void **buffer,
                         size_t *bytes);

/* Messages that came to a port since it was bound, complete. */
int64_t portolan_arrived(portolan_endpoint *endpoint, uint16_t port);

/* Sets what is told of refused messages and of peers that die or are silent;
 * null for nobody. */
int portolan_on_error(portolan_endpoint *endpoint, portolan_error_handler handler, void *user);

/* ---- Sending ---------------------------------------------------------- */

/* Flags of a send. */
/* Gives -EAGAIN instead of waiting for credit; then runs no handler. */
#define PORTOLAN_NOWAIT 1u

/* How a message is sent beside where and what. */
typedef struct portolan_send_options {
    uint32_t size;
    /* PORTOLAN_NOWAIT or 0. */
    uint32_t flags;
    /* PORTOLAN_REQUEST (default) or PORTOLAN_REPLY. */
    uint32_t priority;
    /* Below PORTOLAN_FLOWS. Loss or a long message in one flow does not delay
     * another. Default: 0. */
    uint32_t flow;
    /* Argument words that travel beside the payload; null if arg_count is 0. */
    const uint64_t *args;
    /* At most PORTOLAN_ARGS_MAX. */
    uint32_t arg_count;
    uint32_t reserved;
    /* Where the message's number is stored, as PORTOLAN_REFUSED names it; may
     * be null. Broadcasts leave it alone. */
    uint32_t *number;
} portolan_send_options;

static inline void portolan_send_options_init(portolan_send_options *options)
{
    memset(options, 0, sizeof *options);
    options->size = (uint32_t)sizeof *options;
}

/*
 * Errors of every send:
 * -EAGAIN     no credit, window or memory now: make progress and try again.
 *             Only from calls that do not wait.
 * -ENXIO      no such rank
 * -EACCES     port PORTOLAN_PORTS or above
 * -ERANGE     flow PORTOLAN_FLOWS or above
 * -E2BIG      more than PORTOLAN_ARGS_MAX argument words (or see "Structures")
 * -EMSGSIZE   longer than any message can be (2^38 bytes)
 * -ESHUTDOWN  the endpoint is being closed
 * and where the receiver is dead, which is final:
 * -EPIPE      it closed its endpoint
 * -ECONNRESET its process ended
 * -EHOSTDOWN  it stopped answering
 * -EHOSTUNREACH  it never answered, or no link reaches it, or the kernel
 *             refuses packets here
 * -ESTALE     it was restarted
 * -EBADMSG    it wrote nonsense to shared memory
 *
 * A message to a port that is not bound yet waits there. One to a closed port,
 * or one longer than the port's buffer, is refused: PORTOLAN_REFUSED.
 */

/* Sends a request in flow 0. The bytes are copied: they are yours again on
 * return. Waits for credit where there is none, and of a long message until its
 * last byte is on its way; meanwhile runs handlers. `data` may be null if
 * `bytes` is 0. Sends to this rank itself too. */
int portolan_send(portolan_endpoint *endpoint, uint32_t rank, uint16_t port, const void *data,
                  size_t bytes);

/* The same, but gives -EAGAIN instead of waiting; then nothing was queued.
 * Runs no handler. */
int portolan_try_send(portolan_endpoint *endpoint, uint32_t rank, uint16_t port, const void *data,
                      size_t bytes);

/* As portolan_send(), with options; null for defaults. */
int portolan_sendx(portolan_endpoint *endpoint, uint32_t rank, uint16_t port, const void *data,
                   size_t bytes, const portolan_send_options *options);

/* Sends without a copy and without waiting: the bytes are lent, must stay valid
 * and unchanged until the operation has ended, and the operation must be given
 * to portolan_wait(), portolan_test() or portolan_op_free(). It has ended well
 * when the receiver has all of the message. PORTOLAN_NOWAIT is implied. */
int portolan_send_lent(portolan_endpoint *endpoint, uint32_t rank, uint16_t port, const void *data,
                       size_t bytes, const portolan_send_options *options, portolan_op **op);

/* Waits until the operation has ended, but not longer than `timeout_ns`;
 * makes progress and runs handlers. Once it has ended, well (0) or not, frees
 * it and sets `*op` to null. A null `*op` is an operation that has ended well.
 * -ETIMEDOUT     the time was up; the operation goes on
 * -ECONNREFUSED  ended: the receiver refused the message
 * -EPIPE, -ECONNRESET, ...  ended: the receiver is dead, see above */
int portolan_wait(portolan_endpoint *endpoint, portolan_op **op, int64_t timeout_ns);

/* The same without waiting, after one pass of progress if it had not ended: 1
 * if it has ended well, 0 if it goes on. */
int portolan_test(portolan_endpoint *endpoint, portolan_op **op);

/* Frees the handle of an operation; the message goes on if it has not arrived,
 * and its bytes stay lent until the endpoint is closed. May be called after
 * that. Null is allowed. */
void portolan_op_free(portolan_op *op);

/* ---- Progress and waiting --------------------------------------------- */

/* One pass of progress: takes what has arrived, runs handlers, sends what is
 * due. Gives how much was moved, 0 when nothing waited. */
int64_t portolan_progress(portolan_endpoint *endpoint);

/* A condition to wait for: not 0 when it is true. It is asked often, must be
 * quick and must not call the library. */
typedef int (*portolan_condition)(void *user);

/* Makes progress and runs handlers until the condition is true. Spins briefly,
 * then yields, then sleeps in the kernel. What makes it true is a handler, run
 * by this call or another thread's: it is asked when something has moved.
 * -ETIMEDOUT  the time was up
 * -EPIPE, -ECONNRESET, ...  a rank is dead, see above: told once for each rank
 *   whose process dies (and for the last other rank that closes its endpoint);
 *   which one, error handlers are told. Call again to go on waiting for others. */
int portolan_wait_until(portolan_endpoint *endpoint, portolan_condition condition, void *user,
                        int64_t timeout_ns);

/* A descriptor that is readable when progress is to be made, for programs with
 * an event loop of their own: call portolan_arm(), and if it gives 1 wait for
 * the descriptor (poll, epoll), then call portolan_progress() until it gives 0.
 * It belongs to the endpoint: neither read nor close it. */
int portolan_fd(const portolan_endpoint *endpoint);

/* Declares that the program will wait for the descriptor: 1. Or 0 if there is
 * something to do first: call portolan_progress() instead. */
int portolan_arm(portolan_endpoint *endpoint);

/* ---- Groups ----------------------------------------------------------- */

/* Makes a group of `count` ranks, to be freed by portolan_group_free(). All
 * members must make it of the same list.
 * -ENXIO  no such rank; -EINVAL  an empty list, or a rank twice */
int portolan_group_open(portolan_endpoint *endpoint, const uint32_t *ranks, size_t count,
                        portolan_group **group);

/* Frees it. Null is allowed. */
void portolan_group_free(portolan_group *group);

/* Waits until every member of the group (null: every rank of the job) has come
 * here; runs handlers meanwhile.
 * -ENXIO  this rank is no member
 * -EPIPE, -ECONNRESET, ...  a member is dead, see above; once also when it is
 *     back already, if neither a wait nor a barrier has told of its death */
int portolan_barrier(portolan_endpoint *endpoint, const portolan_group *group);

/* Sends a message to the port of every member of the group (null: every rank
 * of the job), this rank too if it is one, along a tree from four receivers on.
 * Waits as portolan_send() does. Only this rank calls. Broadcasts of one rank
 * to the same group and flow keep order among each other, but not with other
 * messages. If it fails, some members may have been reached.
 * -EINVAL  PORTOLAN_NOWAIT */
int portolan_broadcast(portolan_endpoint *endpoint, const portolan_group *group, uint16_t port,
                       const void *data, size_t bytes, const portolan_send_options *options);

/* ---- From handlers ---------------------------------------------------- */

/* As portolan_rank() and portolan_size(). */
int64_t portolan_context_rank(const portolan_context *context);
int64_t portolan_context_size(const portolan_context *context);

/* As portolan_restarts(). */
int64_t portolan_context_restarts(const portolan_context *context, uint32_t rank);

/* Answers the sender of the message, at port `port` of its, with reply priority
 * and in the message's flow. Does not wait: where there is no credit the answer
 * is kept and leaves later.
 * -EAGAIN  one handler has said more than the memory for such answers holds
 * -EINVAL  in an error handler, where there is no message to answer
 * otherwise as every send */
int portolan_reply(portolan_context *context, uint16_t port, const uint64_t *args,
                   uint32_t arg_count, const void *data, size_t bytes);

/* Sends a message without waiting: -EAGAIN where there is no credit. `options`
 * may be null. Otherwise as portolan_sendx(). */
int portolan_context_send(portolan_context *context, uint32_t rank, uint16_t port,
                          const void *data, size_t bytes, const portolan_send_options *options);

/* As portolan_bind(), portolan_unbind() and portolan_set_buffer(). A buffer
 * that the present message is in stays in use until the handler has returned. */
int portolan_context_bind(portolan_context *context, uint16_t port,
                          const portolan_binding *binding);
int portolan_context_unbind(portolan_context *context, uint16_t port);
int portolan_context_set_buffer(portolan_context *context, uint16_t port, void *buffer,
                                size_t bytes, void **old);

/* ---- Looking in ------------------------------------------------------- */

/* What the endpoint has done since it was opened. */
typedef struct portolan_counters {
    /* Size in bytes as the caller knows it; set before the call. */
    uint32_t size;
    uint32_t reserved;
    /* Messages accepted for sending, and payload bytes in them. */
    uint64_t sent;
    uint64_t bytes_sent;
    /* Messages handed to a handler or written to a buffer, and their bytes. */
    uint64_t received;
    uint64_t bytes_received;
    /* Messages that were kept in the endpoint's memory first. */
    uint64_t kept;
    /* Messages that had to wait where they were, for want of memory. */
    uint64_t not_now;
    /* Messages of ours that were refused. */
    uint64_t refused;
    /* Peers that died. */
    uint64_t deaths;
    /* Passes of the helper thread that moved something. */
    uint64_t helped;
    /* Sleeps in the kernel. */
    uint64_t sleeps;
    /* Packets that the network link could not send. */
    uint64_t tx_failed;
    /* Sends that found no credit: each try, also of a send that waits. */
    uint64_t no_credit;
    /* Packets on the network, those sent again among them, and those that
     * came and were dropped (forged, repeated, or for want of room); all 0
     * where all ranks share memory. */
    uint64_t packets_sent;
    uint64_t packets_received;
    uint64_t resent;
    uint64_t packets_dropped;
} portolan_counters;

static inline void portolan_counters_init(portolan_counters *counters)
{
    memset(counters, 0, sizeof *counters);
    counters->size = (uint32_t)sizeof *counters;
}

/* Fills `counters` as far as counters->size says; fields that this library
 * does not know become 0. */
int portolan_counters_read(portolan_endpoint *endpoint, portolan_counters *counters);

/* Whether the launcher is ending the job: 1, with its reason at `text`, cut to
 * `text_bytes` with a final 0 (`text` may be null); else 0. */
int portolan_ending(portolan_endpoint *endpoint, char *text, size_t text_bytes);

/* Tells the endpoint that a rank's process has ended, where the program knows
 * before the endpoint does.
 * -ENXIO  no such rank, or this one */
int portolan_peer_died(portolan_endpoint *endpoint, uint32_t rank);

#ifdef __cplusplus
}
#endif

#include "portolan_matched.h"
#include "portolan_onesided.h"

#endif
