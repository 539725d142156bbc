/*
 * Portolan: reliable messages between processes on ordinary Ethernet.
 * The native interface for C99 and C++17; link with -lportolan. This header
 * includes portolan_matched.h (tag-matched messages) and portolan_onesided.h
 * (memory that other ranks access).
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Rules for every call:
 *
 * Handles.  Every call takes the handle that it works on; the library has no
 *   globals. Handles are pointers to types that only the library knows.
 * Results.  An int or int64_t is a count, a truth value or 0 if it is not
 *   negative. Otherwise it is a negative errno value; portolan_strerror()
 *   returns what it means here. A call that fails has done nothing, unless its
 *   comment says otherwise.
 * Ranks are numbers of processes in a job. An endpoint outside of a job
 *   (portolan_open_standalone()) numbers its peers itself; wherever a call or a
 *   structure has a rank, such a number stands there.
 * Structures begin with their size. Use the portolan_*_init() functions, which
 *   set the size and zero the rest. Zero means "default" everywhere. So a
 *   program keeps working with later libraries, whose structures are longer.
 * Threads.  By default only the first thread that calls may use an endpoint;
 *   see portolan_options.threads.
 * Signal handlers may call portolan_version(), portolan_version_number(),
 *   portolan_strerror(), portolan_rank(), portolan_size() and portolan_fd(), and
 *   nothing else of the library. Set a flag or write to a descriptor there, and
 *   let the program's own loop make the call.
 * Fork.  A child of fork() cannot use its parent's endpoints. It may call
 *   portolan_close(), which frees the child's copy.
 * Progress.  Handlers run within portolan_progress() and within calls that wait
 *   (send, wait, barrier, broadcast, close). They run in the calling thread, one
 *   at a time. The helper thread may also run handlers of ports bound with
 *   PORTOLAN_ANY_THREAD. Between calls the helper thread keeps data moving.
 * Handlers get a context and use portolan_context_*() and portolan_reply() with
 *   it. They must not leave by an exception or longjmp: a C++ exception that
 *   leaves a handler ends the process.
 * Memory lent to the library (buffers of ports, payloads of
 *   portolan_post_message()) may come from anywhere. It must stay valid as long as
 *   the call's comment says. All other pointers are used only during the call.
 * Times are in nanoseconds unless a field's name has another unit. A negative
 *   time means "no limit".
 * Order.  Messages from one rank to another with the same priority and flow
 *   arrive in the order in which they were sent, each exactly once.
 *
 * Errors of every call, not repeated below:
 * -EFAULT   a pointer is null that must not be
 * -EINVAL   an impossible value: a flag that this version does not know, a
 *           reserved field that is not 0, or a structure whose size is not set
 * -E2BIG    a structure from a newer header sets a field that this library does
 *           not know
 * -EPERM    called by another thread than the first (THREADS_SINGLE)
 * -EBUSY    called while another thread is in a call (THREADS_SERIALIZED)
 * -EDEADLK  called with the endpoint itself from a handler, from the condition
 *           of portolan_wait_until(), or from a signal handler that interrupted
 *           a call with it in the same thread
 * -ECHILD   called in a forked child
 * -EIO      a bug of the library, which it has caught
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
/* This header's version, in the form of portolan_version_number(). */
#define PORTOLAN_VERSION_NUMBER \
    ((PORTOLAN_VERSION_MAJOR << 16) | (PORTOLAN_VERSION_MINOR << 8) | PORTOLAN_VERSION_PATCH)

/* Returns the version of the linked library as text ("0.1.0"). Never null. */
const char *portolan_version(void);

/* Returns the same as a number: major << 16 | minor << 8 | patch. */
uint32_t portolan_version_number(void);

/* Returns what an error of this library means, in a few words. Takes the value
 * with or without its sign. Never null; the text is constant. */
const char *portolan_strerror(int error);

/* ---- Limits ----------------------------------------------------------- */

/* Programs use ports below this number. The rest is the library's (-EACCES). */
#define PORTOLAN_PORTS 0xff00u
/* Most argument words of a message. */
#define PORTOLAN_ARGS_MAX 20u
/* Number of flows: they are numbered from 0 to one less. */
#define PORTOLAN_FLOWS 6u
/* Length of an address, bytes. */
#define PORTOLAN_ADDRESS_BYTES 64u

/* ---- Types ------------------------------------------------------------ */

/* The attachment of one process to its job, or to peers that it has added. */
typedef struct portolan_endpoint portolan_endpoint;
/* The endpoint as its handlers see it; valid only during the handler's call. */
typedef struct portolan_context portolan_context;
/* A list of ranks of the job. */
typedef struct portolan_group portolan_group;

/* Priorities. A reply is never held up by requests. */
#define PORTOLAN_REQUEST 0u
#define PORTOLAN_REPLY 1u

/* A message that has arrived. Read only; valid only during the handler's call. */
typedef struct portolan_message {
    uint32_t size;
    /* Rank of the sender; of a broadcast, rank of its root. */
    uint32_t from;
    /* The port that it was sent to. */
    uint16_t port;
    uint16_t flow;
    /* PORTOLAN_REQUEST or PORTOLAN_REPLY. */
    uint8_t priority;
    uint8_t reserved[3];
    /* Its number within sender, priority and flow; wraps around. */
    uint32_t number;
    /* Number of argument words at `args`. */
    uint32_t arg_count;
    const uint64_t *args;
    /* The payload: in the port's buffer if it has one, else where it arrived
     * (then without any alignment). Never null, even if empty. */
    const void *payload;
    /* Length of the payload, bytes. */
    size_t bytes;
    /* Bytes that were sent: more than `bytes` if the message was cut off
     * (PORTOLAN_PLACE_INTO), or if its port is asked where it goes. */
    uint64_t total;
} portolan_message;

/* Returns argument word `index` of a message. Returns 0 if there is no such word
 * or `message` is null. */
uint64_t portolan_arg(const portolan_message *message, uint32_t index);

/* Kinds of events. An event of a port goes to the port's error handler, or to
 * the endpoint's if the port has none. */
/* Of a port: a message from `rank` to `port` has `bytes` bytes, but there is
 * room for `room` bytes only. Nothing of it was stored. Its sender gets
 * PORTOLAN_REFUSED. */
#define PORTOLAN_TOO_LONG 1u
/* Of the endpoint: `rank` refused this rank's message `number` (of `priority`
 * and `flow`). It had closed the port or the endpoint, or the message was too
 * long. Not reported for a portolan_post_message() that is under way: its operation
 * ends with -ECONNREFUSED instead. */
#define PORTOLAN_REFUSED 2u
/* Of the endpoint and of every port with an error handler: `rank` is dead; or, in
 * the space alone and with -EPIPE, it closed this space.
 * `error` names how, as listed at "Errors of every send" below. `status` is
 *  - for an ended process its exit code, or minus the signal that ended it; 0 if
 *    not known
 *  - for -EHOSTUNREACH because the kernel refuses packets here, that errno
 * `lost` counts the matched messages of the peer that were offered here, or had begun to
 * arrive, and are lost.
 * Of messages that it had not acknowledged, each was delivered at most once. */
#define PORTOLAN_PEER_DEAD 3u
/* Of the endpoint: `rank` has not answered the connection attempt for 3 s (setting
 * silence_ms); it is still tried. `status` is the errno with which the kernel
 * refuses packets here, or 0 if it does not. */
#define PORTOLAN_PEER_SILENT 4u
/* Of the endpoint and of every port with an error handler: `rank`, which was
 * dead, was restarted (portolan run --respawn), has joined and can be sent to.
 * Nothing from its previous life (incarnation) arrives any more. */
#define PORTOLAN_PEER_BACK 5u
/* Of the endpoint and of every port with an error handler: peer `rank` has introduced
 * itself and can be sent to. It may have been dead before. Only outside of a job. */
#define PORTOLAN_PEER_COME 6u

/* What an error handler gets. Fields that the kind does not name are 0. */
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
    uint64_t lost;
} portolan_event;

/* Called with each message of a port. `user` is the binding's. */
typedef void (*portolan_handler)(portolan_context *context, const portolan_message *message,
                                 void *user);
/* Called with each event. */
typedef void (*portolan_error_handler)(portolan_context *context, const portolan_event *event,
                                       void *user);

/* ---- Opening and closing ---------------------------------------------- */

/* Which threads may call. */
#define PORTOLAN_THREADS_DEFAULT 0u
/* Only the first thread that calls (the default). Others get -EPERM. */
#define PORTOLAN_THREADS_SINGLE 1u
/* Any thread, but the program must ensure that calls do not overlap. If they
 * do, the second gets -EBUSY. */
#define PORTOLAN_THREADS_SERIALIZED 2u
/* Any thread at any time; calls wait for each other. */
#define PORTOLAN_THREADS_MULTIPLE 3u

#define PORTOLAN_HELPER_DEFAULT 0u
#define PORTOLAN_HELPER_ON 1u
#define PORTOLAN_HELPER_OFF 2u

/* Settings of an endpoint. A value given here overrides the other sources. In
 * falling order of precedence these are `portolan run --set`, the environment
 * (PORTOLAN_NAME), the file that PORTOLAN_CONFIG names, and what `portolan tune`
 * has found. All ranks must agree on the links of a job and on encryption: these
 * are set by `portolan run`, or under another launcher by settings that are the
 * same for all ranks. */
typedef struct portolan_options {
    uint32_t size;
    /* PORTOLAN_THREADS_*. Default: single. */
    uint32_t threads;
    /* PORTOLAN_HELPER_*: a thread that keeps data moving while the program
     * makes no calls. Default: on. */
    uint32_t helper;
    uint32_t reserved;
    /* The helper takes over if the program has made no call for this long,
     * microseconds. Default: 50. */
    uint64_t takeover_us;
    /* Longest time that closing waits for what is under way, milliseconds.
     * Default: 3000. */
    uint64_t close_ms;
    /* Any settings: an array of strings "NAME=VALUE" that ends with a null
     * pointer. docs/operations.md lists them. Default: none. */
    const char *const *settings;
} portolan_options;

static inline void portolan_options_init(portolan_options *options)
{
    memset(options, 0, sizeof *options);
    options->size = (uint32_t)sizeof *options;
}

/* Opens this process's endpoint, once in a process, and waits until all ranks
 * have opened theirs. If another interface of the process (atoll.h) has opened it,
 * the call gives the program's own space of it, at once. The job is the one that
 * `portolan run` started, or another launcher that offers PMI or PMIx
 * (mpiexec.hydra, mpirun of Open MPI, srun --mpi=pmix or pmi2). A process that no
 * launcher started is a job of one rank.
 *
 * `options` may be null, for all defaults. On success `*endpoint` is the handle,
 * to be freed by portolan_close(). On failure it is null, and the buffer `why`
 * holds the reason as a sentence with its remedy, cut to `why_bytes` including
 * the final 0. `why` may be null.
 *
 * -EALREADY      the process has opened its endpoint before
 * -EINVAL        a setting, here or in the environment, has an impossible value,
 *                or the file or the network that it names cannot be used; or the
 *                endpoint is open with other settings or for fewer threads
 * -EHOSTUNREACH  a rank cannot be reached by the link that the job asks for
 * -ECANCELED     the job is being ended, for example because a rank did not join
 * -EKEYREJECTED  the launcher refused this process: another version or secret
 * -ECONNABORTED  the launcher has gone
 * -ETIMEDOUT     under another launcher: a rank did not join in time, or the
 *                launcher's library did not return
 * -EBADF         PORTOLAN_JOB or PMI_FD names a descriptor that is no launcher's
 *                socket
 * -EPROTO        the launcher, its library or a rank has another version; or the
 *                library is missing
 * -EADDRINUSE, -EADDRNOTAVAIL, -EACCES  the UDP port cannot be bound
 * -EACCES        a launcher has set its variables, but the environment does not
 *                count: the program is set-user-id or set-group-id, or its file
 *                has capabilities (docs/security.md)
 * -ENOMEM        too little memory, or too little may be locked or shared
 * others         the errno of the system call that `why` names */
int portolan_open(portolan_endpoint **endpoint, const portolan_options *options, char *why,
                  size_t why_bytes);

/* ---- Without a launcher ------------------------------------------------ */

/* An endpoint outside of a job needs no launcher. It has the number 0 itself, and gives
 * each peer a number of its own, from 1. Other endpoints may number the same peers
 * otherwise. The programs exchange addresses as they like: by a file, a name service,
 * standard output. Memory is shared with endpoints of the same user and host; others are
 * reached by the network. docs/native.md describes them. */

/* Opens an endpoint outside of a job, at once. It knows no peers. A process may open
 * several, also beside its endpoint in a job. `options`, `why` and the handle are as of
 * portolan_open(). Settings that matter here: peers_max, unknown_peers, address, port,
 * interface, link, security, suite, congestion.
 *
 * Waits of such an endpoint do not end because a peer dies, except those for an operation
 * with that peer: error handlers get PORTOLAN_PEER_DEAD. Barriers, broadcasts and groups
 * return -EOPNOTSUPP.
 *
 * -EINVAL        a setting, here or in the environment, has an impossible value, or the
 *                file or the network that it names cannot be used
 * -EADDRINUSE, -EADDRNOTAVAIL, -EACCES  the UDP port cannot be bound
 * -EHOSTUNREACH  link=xdp is asked for, and there is no host port
 * -ENOMEM        too little memory, or too little may be locked
 * others         the errno of the system call that `why` names */
int portolan_open_standalone(portolan_endpoint **endpoint, const portolan_options *options,
                             char *why, size_t why_bytes);

/* Writes the endpoint's address: what another needs to add it. It has no secrets. It is
 * another one each time that an endpoint is opened. The address of an endpoint in a job
 * is of use in that job alone. */
int portolan_address(const portolan_endpoint *endpoint, uint8_t address[PORTOLAN_ADDRESS_BYTES]);

/* Adds a peer by the bytes that its portolan_address() wrote, and returns its number, 1
 * or more. The peer need not be up yet. It need not add this endpoint: this one
 * introduces itself with its first message. The same address again returns the same
 * number, also of a peer that has introduced itself; another place with the same key is
 * where a peer is looked for that is not connected. A peer that is dead begins anew:
 * nothing from before arrives.
 * -EINVAL      the bytes are no address that can be added, or the endpoint's own
 * -ENOSPC      there are as many peers as the setting peers_max allows. Remove one, make
 *              progress and try again: one that was removed has its place until it knows
 * -EOPNOTSUPP  the endpoint is in a job */
int64_t portolan_add_peer(portolan_endpoint *endpoint,
                          const uint8_t address[PORTOLAN_ADDRESS_BYTES]);

/* Removes a peer that was added or that introduced itself, dead or alive. From now on
 * nothing that it has sent is delivered, and what is sent to its number fails with
 * -ENXIO. Operations with it end with -ENXIO. What was sent to it before still arrives if
 * it is connected and each message that it has not acknowledged fits one packet; else all
 * that is not acknowledged is dropped. Then it is told, and gets
 * PORTOLAN_PEER_DEAD with -ENOTCONN. The number
 * may later become another peer's. If the peer sends again, it introduces itself anew and gets a
 * new number (setting unknown_peers).
 * -ENXIO       nobody has this number
 * -EOPNOTSUPP  the endpoint is in a job */
int portolan_remove_peer(portolan_endpoint *endpoint, uint32_t peer);

/* ---- Spaces ------------------------------------------------------------ */

/* An interface that is built on this library opens a space. A space has 65,280
 * ports, matched messages, regions, queues, counters, an error handler and memory
 * for arriving messages of its own, so that several interfaces share the endpoint
 * of a process. What is sent in a space arrives in the space with the same number;
 * it has one flow, number 0. Threads and settings are those of the endpoint. Any
 * call makes progress for all spaces. Messages for a space that is not open yet
 * wait, most of them at their sender. */

/* The space that portolan_open() gives. */
#define PORTOLAN_SPACE_PROGRAM 0u
/* That of ATOLL's interface (atoll.h). */
#define PORTOLAN_SPACE_ATOLL 1u
/* Free for libraries that others write: these two. 2 to 6 are kept for interfaces
 * of later versions. */
#define PORTOLAN_SPACE_FREE_1 7u
#define PORTOLAN_SPACE_FREE_2 8u

/* Opens a space. `*space` is a handle like the endpoint's, for all calls, to be
 * freed by portolan_close(). On failure it is null.
 * -ENOENT    there is no space with this number: they are numbered 0 to 8
 * -EALREADY  the space was opened before; each is opened once in a process */
int portolan_space(portolan_endpoint *endpoint, uint32_t number, portolan_endpoint **space);

/* Closes a space and frees the handle. No other thread may be in a call with the
 * handle, or make one later. Messages that wait for a handler of the space are
 * refused, and so is what comes to its ports from then on.
 *
 * While other spaces of the process are open,
 *  - operations of the space that have not ended end with -ESHUTDOWN. The call
 *    waits until nobody reads or writes memory that was lent to them
 *  - the other ranks are told, behind what was sent before, which still arrives.
 *    What they wait for in this space from this rank ends with -EPIPE. What they
 *    send to its ports is refused (PORTOLAN_REFUSED), as at closed ports
 *
 * With the last space the endpoint closes, and no earlier: close each space that
 * you opened. The call then waits until everything that was sent has been
 * acknowledged, and notifies the other ranks. Handlers still run meanwhile, but
 * cannot send.
 *
 * The call waits at most options.close_ms, and longer only while a process of this
 * host that is writing to a receive's memory is stopped.
 *
 * After the call the library uses no lent memory of the space any more, except
 * after -ETIMEDOUT. A null handle is allowed and does nothing. The handle is freed,
 * except after -EPERM, -EBUSY and -EDEADLK.
 * -ETIMEDOUT  something may not have arrived, or a process of this host was
 *             still writing to a registered region. Memory that was registered
 *             with PORTOLAN_MAY_PUT must not be freed or reused while that
 *             process may live. All other lent memory is the program's again.
 *             While other spaces are open, memory that was lent to a send or a
 *             put stays lent until the endpoint closes
 * -ECHILD     in a forked child: the child's copy is freed, nothing else is done */
int portolan_close(portolan_endpoint *endpoint);

/* Returns this process's number in the job, from 0; 0 outside of a job. */
int64_t portolan_rank(const portolan_endpoint *endpoint);

/* Returns the number of processes in the job; 1 outside of a job. */
int64_t portolan_size(const portolan_endpoint *endpoint);

/* Returns how often a rank was restarted (portolan run --respawn), as far as this
 * rank knows. For this rank itself: how often it was started before.
 * -ENXIO  no such rank */
int64_t portolan_restarts(portolan_endpoint *endpoint, uint32_t rank);

/* Writes to `text` which link carries messages to a rank: "self", "shm", "udp",
 * "xdp", "dead", or "undecided" (of this host, and nothing was sent yet), then ": " and the
 * reason. The text is cut to `text_bytes`
 * including the final 0. Returns the length of the whole text without that 0.
 * -ENXIO  no such rank */
int portolan_lane(portolan_endpoint *endpoint, uint32_t rank, char *text, size_t text_bytes);

/* ---- Ports ------------------------------------------------------------ */

/* Flags of a binding. */
/* The helper thread may also run this port's handlers while the program makes
 * no calls. So they must be able to run in another thread. */
#define PORTOLAN_ANY_THREAD 1u

/* Results of a placing function: where a message's payload goes. Any other result
 * counts as PORTOLAN_PLACE_HERE. */
/* Nowhere: the handler sees the message where it arrived. A long one is assembled
 * in memory of the endpoint. If it is longer than that can ever hold (32
 * MiB, or queue_bytes if that is less), it is refused, and the error handler gets PORTOLAN_TOO_LONG. */
#define PORTOLAN_PLACE_HERE 0
/* To the memory that the function has put in `*buffer` and `*bytes`. What does not
 * fit there is cut off and lost; with null, all of it is. The memory is lent until
 * the handler has returned, which sees the message there. If no handler saw it,
 * portolan_take_buffer() returns it; with length 0 if the sender has died. */
#define PORTOLAN_PLACE_INTO 1
/* It cannot be taken yet. The port pauses until portolan_resume_port(): this
 * message, and all that come for the port, wait in their order. Messages in other
 * flows go on. */
#define PORTOLAN_PLACE_LATER 2

/* Says where a message's payload goes, before any of it is written. It sees the
 * sender, the argument words and `total`; `payload` and `bytes` are what has come
 * so far, which may be nothing. Called once for each message, within the same calls
 * as the handler. It is called again only if it returned PORTOLAN_PLACE_LATER, or if
 * memory of the endpoint was wanted and there was none. It cannot call the
 * endpoint (-EDEADLK). */
typedef int (*portolan_placing)(const portolan_message *message, void **buffer, size_t *bytes,
                                void *user);

/* What a port is bound to. Everything may be left out. */
typedef struct portolan_binding {
    uint32_t size;
    /* PORTOLAN_ANY_THREAD or 0. */
    uint32_t flags;
    /* Lent memory to which messages are written, one at a time, each from the
     * start; null for none. Without a buffer the handler sees a message where it
     * arrived. A long one is assembled in memory of the endpoint (setting
     * queue_bytes). */
    void *buffer;
    /* Length of the buffer, bytes. */
    size_t buffer_bytes;
    /* Called once for each message. Without a handler, messages are only written
     * to the buffer, each over the last, and counted (portolan_arrived()). */
    portolan_handler handler;
    /* Called with PORTOLAN_TOO_LONG of this port, PORTOLAN_PEER_DEAD,
     * PORTOLAN_PEER_BACK and PORTOLAN_PEER_COME. */
    portolan_error_handler error_handler;
    /* Passed to all of them. */
    void *user;
    /* Asked about each message where it goes. Then `buffer` is not used. */
    portolan_placing placing;
} portolan_binding;

static inline void portolan_binding_init(portolan_binding *binding)
{
    memset(binding, 0, sizeof *binding);
    binding->size = (uint32_t)sizeof *binding;
}

/* Binds a port. If it is bound or closed, it is bound anew. Messages that wait
 * for it are delivered in the next call that makes progress.
 *
 * The buffer is lent: nobody else may write it, and nobody may read it outside
 * the handler, until one of these happens:
 *  - portolan_set_buffer() returns it in `old`
 *  - portolan_take_buffer() returns it
 *  - the port is closed or bound anew while no message is in the buffer
 *  - the endpoint is closed
 * A message is in the buffer from its first byte's arrival until its handler has
 * returned. If you are not sure, use one of the other ways, or keep the memory.
 * -EACCES  the port is PORTOLAN_PORTS or above */
int portolan_bind(portolan_endpoint *endpoint, uint16_t port, const portolan_binding *binding);

/* Closes a port. Messages that wait there, and later ones, are refused, and their
 * senders get PORTOLAN_REFUSED. The port can be bound again.
 * -EACCES  the port is PORTOLAN_PORTS or above */
int portolan_unbind(portolan_endpoint *endpoint, uint16_t port);

/* Lets a port go on that has paused (PORTOLAN_PLACE_LATER). What waits for it is
 * offered again by the next call that makes progress. A port that has not paused is
 * left as it is. */
int portolan_resume_port(portolan_endpoint *endpoint, uint16_t port);

/* Sets a port's buffer from the next message on; null for none. If `old` is not
 * null, `*old` becomes the former buffer if the program may use it again at once.
 * Else a message is in it, and `*old` becomes null. Then the buffer is free when
 * that message's handler has returned, which sees it (payload == the former
 * buffer). If no handler runs for it, portolan_take_buffer() returns it. */
int portolan_set_buffer(portolan_endpoint *endpoint, uint16_t port, void *buffer, size_t bytes,
                        void **old);

/* Returns the oldest former buffer of the port that is free again and that no
 * handler has seen. Such a buffer was replaced while a message was in it, and the
 * port has no handler, was closed, or the sender died. The result is 1, with the
 * buffer's address and the message's length (0 if incomplete), or 0 if there is
 * none. Both pointers may be null. */
int portolan_take_buffer(portolan_endpoint *endpoint, uint16_t port, void **buffer,
                         size_t *bytes);

/* Returns how many complete messages came to a port since it was bound. */
int64_t portolan_arrived(portolan_endpoint *endpoint, uint16_t port);

/* Sets the endpoint's error callback; null removes it. It gets PORTOLAN_REFUSED
 * and the events of peers, and PORTOLAN_TOO_LONG of ports without an error
 * handler. */
int portolan_on_error(portolan_endpoint *endpoint, portolan_error_handler handler, void *user);

/* ---- Sending ---------------------------------------------------------- */

/* Flags of a send. */
/* If there is no credit (the receiver's permission to send), returns -EAGAIN
 * instead of waiting. Runs no handler. */
#define PORTOLAN_NOWAIT 1u

/* How a message is sent. */
typedef struct portolan_send_options {
    uint32_t size;
    /* PORTOLAN_NOWAIT or 0. */
    uint32_t flags;
    /* PORTOLAN_REQUEST (default) or PORTOLAN_REPLY. */
    uint32_t priority;
    /* Below PORTOLAN_FLOWS. Loss, a long message, or a port that takes nothing in
     * one flow does not delay another flow. Default: 0. */
    uint32_t flow;
    /* Argument words beside the payload; null if arg_count is 0. */
    const uint64_t *args;
    /* At most PORTOLAN_ARGS_MAX. */
    uint32_t arg_count;
    uint32_t reserved;
    /* Where the message's number is stored, by which PORTOLAN_REFUSED names it;
     * may be null. Broadcasts and portolan_post_message() do not store it. */
    uint32_t *number;
    /* Of portolan_post_message() alone: how the end of the operation is reported, as
     * in portolan_tagged_options (portolan_matched.h). */
    uint64_t context;
    uint32_t queue;
    uint32_t counter;
} portolan_send_options;

static inline void portolan_send_options_init(portolan_send_options *options)
{
    memset(options, 0, sizeof *options);
    options->size = (uint32_t)sizeof *options;
}

/*
 * Errors of every send:
 * -EAGAIN     there is no credit, window or memory now: make progress and try
 *             again. Only from calls that do not wait
 * -ENXIO      no such rank
 * -EACCES     the port is PORTOLAN_PORTS or above
 * -ERANGE     the flow is PORTOLAN_FLOWS or above
 * -E2BIG      more than PORTOLAN_ARGS_MAX argument words
 * -EMSGSIZE   longer than any message can be (2^38 bytes); to a port of this rank
 *             itself that is not bound, also: longer than the endpoint's memory for
 *             arriving messages can ever hold (setting queue_bytes)
 * -ESHUTDOWN  the endpoint is being closed
 * and if the receiver is dead, which is final:
 * -EPIPE      it closed its endpoint. Calls that do not send to ports: or this
 *             space
 * -ECONNRESET its process ended
 * -EHOSTDOWN  it stopped answering, or its host is lost
 * -EHOSTUNREACH  it never answered, or no link reaches it, or the kernel refuses
 *             packets here
 * -ESTALE     it was restarted
 * -EBADMSG    the memory shared with it holds invalid data
 * -ENOTCONN   it has removed this endpoint (portolan_remove_peer())
 * -ENXIO      nobody has this number any more: who had it was removed here, or is gone
 *
 * A message to a port that is not bound yet waits there. A message to a closed
 * port, or one longer than the port's buffer, is refused: PORTOLAN_REFUSED.
 */

/* Sends a request in flow 0, also to this rank itself. The bytes are copied: the
 * program may use them again on return. If there is no credit, it waits; a long
 * message is waited for until its last byte is under way. Meanwhile it runs
 * handlers. `data` may be null if `bytes` is 0. */
int portolan_send(portolan_endpoint *endpoint, uint32_t rank, uint16_t port, const void *data,
                  size_t bytes);

/* Does the same, but returns -EAGAIN instead of waiting; then nothing was
 * queued. Runs no handler. */
int portolan_try_send(portolan_endpoint *endpoint, uint32_t rank, uint16_t port, const void *data,
                      size_t bytes);

/* Does the same as portolan_send(), with options; null for the defaults. */
int portolan_sendx(portolan_endpoint *endpoint, uint32_t rank, uint16_t port, const void *data,
                   size_t bytes, const portolan_send_options *options);

/* Begins to send a message, without a copy and without waiting (PORTOLAN_NOWAIT is
 * implied), and stores the operation's number, never 0. The bytes are lent: they
 * must stay valid and unchanged until the operation has ended. It ends well when
 * the receiver has the whole message, else with
 * -ECONNREFUSED  the receiver refused the message
 * -EPIPE, -ECONNRESET, ...  the receiver is dead, see above
 * Its end is reported as that of every operation: see "Operations" in
 * portolan_matched.h. The completion's `data` is the message's number. `options` may
 * be null. A short message is copied and has ended at once; if it is refused later,
 * PORTOLAN_REFUSED reports that by its number.
 * -EAGAIN  there is no credit: make progress and try again. One long message may
 *          use up what its flow has until it is nearly over
 * -ENOENT  there is no such queue or counter */
int portolan_post_message(portolan_endpoint *endpoint, uint32_t rank, uint16_t port,
                          const void *data, size_t bytes, const portolan_send_options *options,
                          uint64_t *operation);

/* ---- Progress and waiting --------------------------------------------- */

/* Makes one pass of progress: takes what has arrived, runs handlers, sends what
 * is due. Returns how much was moved; 0 if nothing waited. */
int64_t portolan_progress(portolan_endpoint *endpoint);

/* A condition to wait for: not 0 if it holds. It is called often, must be quick
 * and must not call the library. */
typedef int (*portolan_condition)(void *user);

/* Makes progress and runs handlers until the condition holds. It spins briefly,
 * then yields the core, then sleeps in the kernel. The condition is checked when
 * something has moved, so a handler must make it true, run by this call or by
 * another thread's.
 * -ETIMEDOUT  the time is up
 * -EPIPE, -ECONNRESET, ...  a rank is dead, see "Errors of every send". Returned
 *   once for each rank whose process dies, and for the last other rank that
 *   closes its endpoint or the space. Error handlers get its number. Call again to go on
 *   waiting for others. Not returned outside of a job */
int portolan_wait_until(portolan_endpoint *endpoint, portolan_condition condition, void *user,
                        int64_t timeout_ns);

/* Returns a descriptor for event loops; it is readable when there is progress to
 * make. Call portolan_arm(). If that returns 1, wait for the descriptor (poll,
 * epoll); then call portolan_progress() until it returns 0. The descriptor
 * belongs to the endpoint: neither read nor close it. It is made by the first call.
 * -EMFILE, -ENFILE, -ENOMEM  none is left */
int portolan_fd(const portolan_endpoint *endpoint);

/* Announces that the program will wait for the descriptor. Returns 1, or 0 if
 * there is something to do first: then call portolan_progress(). */
int portolan_arm(portolan_endpoint *endpoint);

/* ---- Groups ----------------------------------------------------------- */

/* Makes a group of `count` ranks, to be freed by portolan_group_free(). All
 * members must make it from the same list. The list is copied.
 * -ENXIO   no such rank
 * -EINVAL  the list is empty, or has a rank twice
 * -EOPNOTSUPP  the endpoint is outside of a job */
int portolan_group_open(portolan_endpoint *endpoint, const uint32_t *ranks, size_t count,
                        portolan_group **group);

/* Frees a group. Null is allowed. */
void portolan_group_free(portolan_group *group);

/* Waits until every member of the group (null: every rank of the job) has called
 * this. Runs handlers meanwhile.
 * -ENXIO  this rank is no member
 * -EOPNOTSUPP  the endpoint is outside of a job
 * -EPIPE, -ECONNRESET, ...  a member is dead, see "Errors of every send". Also
 *   returned once if the member is back already, unless a wait or a barrier has
 *   reported its death */
int portolan_barrier(portolan_endpoint *endpoint, const portolan_group *group);

/* Sends a message to the port of every member of the group (null: every rank of
 * the job), this rank included if it is one. From four receivers on, it goes
 * along a tree. Waits as portolan_send() does. Only the sender calls. Broadcasts
 * of one rank to the same group and flow keep order among each other, but not
 * with other messages. If the call fails, some members may have been reached.
 * -EINVAL  PORTOLAN_NOWAIT is set
 * -EOPNOTSUPP  the endpoint is outside of a job
 * others   see "Errors of every send" */
int portolan_broadcast(portolan_endpoint *endpoint, const portolan_group *group, uint16_t port,
                       const void *data, size_t bytes, const portolan_send_options *options);

/* ---- From handlers ---------------------------------------------------- */

/* The same as portolan_rank() and portolan_size(). */
int64_t portolan_context_rank(const portolan_context *context);
int64_t portolan_context_size(const portolan_context *context);

/* The same as portolan_restarts(). */
int64_t portolan_context_restarts(const portolan_context *context, uint32_t rank);

/* Replies to the sender of the message, at the sender's port `port`, with reply
 * priority and in the message's flow. The bytes are copied. Does not wait: if
 * there is no credit, the reply is kept and leaves later.
 * -EAGAIN  this handler has sent more than the memory for such replies holds
 * -EINVAL  called in an error handler, which has no message to reply to
 * others   see "Errors of every send" */
int portolan_reply(portolan_context *context, uint16_t port, const uint64_t *args,
                   uint32_t arg_count, const void *data, size_t bytes);

/* Sends a message without waiting; the bytes are copied. `options` may be null.
 * -EAGAIN  there is no credit
 * others   see "Errors of every send" */
int portolan_context_send(portolan_context *context, uint32_t rank, uint16_t port,
                          const void *data, size_t bytes, const portolan_send_options *options);

/* The same as portolan_post_message(). */
int portolan_context_post_message(portolan_context *context, uint32_t rank, uint16_t port,
                                  const void *data, size_t bytes,
                                  const portolan_send_options *options, uint64_t *operation);

/* The same as portolan_bind(), portolan_unbind(), portolan_resume_port() and
 * portolan_set_buffer(). A buffer that the present message is in stays in use until
 * the handler has returned. */
int portolan_context_bind(portolan_context *context, uint16_t port,
                          const portolan_binding *binding);
int portolan_context_unbind(portolan_context *context, uint16_t port);
int portolan_context_resume_port(portolan_context *context, uint16_t port);
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
    /* Messages passed to a handler or written to a buffer, and their bytes. */
    uint64_t received;
    uint64_t bytes_received;
    /* Messages that were first buffered in the endpoint's memory. */
    uint64_t kept;
    /* How often a message found no memory: it is set aside, and is offered again
     * when memory becomes free. */
    uint64_t not_now;
    /* Messages of this rank that were refused. */
    uint64_t refused;
    /* Peers that died. */
    uint64_t deaths;
    /* Passes of the helper thread that moved something. */
    uint64_t helped;
    /* Sleeps in the kernel. */
    uint64_t sleeps;
    /* Packets that the network link could not send. */
    uint64_t tx_failed;
    /* Sends that found no credit. Each attempt counts, also of a send that
     * waits. */
    uint64_t no_credit;
    /* Packets on the network: sent (retransmissions included), received,
     * retransmitted, and dropped on arrival (forged, repeated, or for lack of
     * memory). All are 0 if all ranks share memory. */
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

/* Fills `counters` as far as counters->size says. Fields that this library does
 * not know become 0. */
int portolan_counters_read(portolan_endpoint *endpoint, portolan_counters *counters);

/* Returns 1 if the launcher is ending the job, else 0. If 1, the buffer `text`
 * (may be null) gets the reason, cut to `text_bytes` including the final 0. */
int portolan_ending(portolan_endpoint *endpoint, char *text, size_t text_bytes);

/* Notifies the endpoint that a rank's process has ended, if the program knows
 * before the endpoint does.
 * -ENXIO  no such rank, or this one */
int portolan_peer_died(portolan_endpoint *endpoint, uint32_t rank);

#ifdef __cplusplus
}
#endif

#include "portolan_matched.h"
#include "portolan_onesided.h"

#endif
