/*
 * ATOLL's interface, over Portolan, for C99 and C++17: link with -latoll, start
 * the processes with `portolan run`. docs/atoll.md tells what stands for the
 * hardware that it was made for.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Ids.      Each process has one host port. atoll_init() gives its id, which is
 *   the handle that the other calls take as `self`, and by which others name it:
 *   the processes of a job have the ids 0 to atoll_size() - 1.
 * Results.  Negative errno values are errors; atoll_strerror() says what one
 *   means here. Every call with `self` gives -EBADF where that is not this
 *   process's id or atoll_finish() was called, -ECHILD in a forked child, which
 *   has no host port. A call that fails has done nothing, unless it says
 *   otherwise. Of a dead process: -EPIPE it closed its host port, -ECONNRESET
 *   it ended, -EHOSTDOWN it stopped answering.
 * Threads.  Any thread may call at any time.
 * Memory.   All pointers are read or written only during the call, but for
 *   memory that is registered.
 * Waiting.  atoll_recv(), atoll_rcv_desc(), atoll_put(), atoll_get(),
 *   atoll_finish(), deregistration and atoll_allow_rdma() wait, and atoll_init()
 *   does for all processes; no other call does.
 */
#ifndef ATOLL_H
#define ATOLL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A host port's id, or a negative errno value. */
typedef int32_t atoll_id;

/* ---- The host port ---------------------------------------------------- */

/* Opens this process's host port, once in a process, and waits until all
 * processes of the job have opened theirs. Gives its id.
 * -EALREADY  it was opened before
 * others     what atoll_why() says */
atoll_id atoll_init(void);

/* Why atoll_init() failed, as a sentence with its remedy, cut to `bytes` with a
 * final 0. Gives the length of the whole sentence without that 0; 0 if it has
 * not failed. `text` may be null. */
int atoll_why(char *text, size_t bytes);

/* How many host ports the job has. */
int32_t atoll_size(atoll_id self);

/* How atoll_finish() ends. */
/* At once: messages that no receive has met may be lost. */
#define ATOLL_NOW 0
/* When the descriptors of all messages that were sent have been consumed: long
 * messages have been received, short ones have left. */
#define ATOLL_WAIT 1

/* Closes the host port; other threads' calls end with -ESHUTDOWN. Nothing that
 * is registered is accessed any more.
 * -ETIMEDOUT  something may not have arrived; the host port is closed
 * -EPIPE, -ECONNRESET, ...  a message that atoll_send() took was not received,
 *   because the receiver is dead; the host port is closed
 * -EINVAL     `how` is none of both; nothing was done */
int atoll_finish(atoll_id self, int how);

/* What an error means, in a few words. Never null; the text is constant. */
const char *atoll_strerror(int error);

/* A clock for measurements, nanoseconds. It starts anywhere. */
uint64_t atoll_clock(void);

/* ---- Connections ------------------------------------------------------ */

/* Connects to a host port, this one too, so that messages can be sent there and
 * its memory accessed; the other side does not take part. Where there is a
 * connection already, nothing is done.
 * -ENXIO  there is no such id
 * -EPIPE, -ECONNRESET, ...  that process is dead */
int atoll_connect(atoll_id self, atoll_id dest);

/* Ends a connection: what was sent by it still arrives.
 * -ENOTCONN  there is none */
int atoll_disconnect(atoll_id self, atoll_id dest);

/* ---- Messages --------------------------------------------------------- */

/* Bytes of a message, at most. */
#define ATOLL_MAX_SEND_LENGTH ((size_t)1 << 20)

/* For calls that look for a message: from any host port, with any tag. */
#define ATOLL_ANY (-1)
#define ATOLL_ANY_TAG UINT32_MAX

/* What is known of a message. 64 bytes. */
typedef struct atoll_header {
    /* Its sender. */
    atoll_id from;
    uint32_t tag;
    /* Its length, bytes. */
    uint64_t length;
    /* Names it to atoll_rcv_desc(), until it was received. Of one that was
     * received: 0. */
    uint64_t descriptor;
    uint64_t reserved[5];
} atoll_header;

/* Sends a message: copies it into the send space and returns at once. Messages
 * to one host port are received in the order in which they were sent, as far as
 * their tags do not say otherwise. `tag` is any but ATOLL_ANY_TAG; `data` may be
 * null if `length` is 0.
 * -ENOTCONN  there is no connection
 * -EMSGSIZE  longer than ATOLL_MAX_SEND_LENGTH
 * -EAGAIN    the send space, 4 MB with 64 bytes a message, is full of messages
 *            that are not received: call again later
 * -EPIPE, -ECONNRESET, ...  the receiver is dead */
int atoll_send(atoll_id self, atoll_id dest, uint32_t tag, const void *data, size_t length);

/* Waits for the oldest message that fits (ATOLL_ANY, ATOLL_ANY_TAG) and receives
 * it, before others that came earlier and do not fit. Gives its length; `header`,
 * unless null, gets the rest, as do AtollLen and AtollFrom.
 * -EMSGSIZE  it was longer than `room`: its beginning is there, the rest is
 *            lost, and the header says how long it was
 * -ENXIO     there is no such id
 * -EPIPE, -ECONNRESET, ...  `from` is dead; of ATOLL_ANY once for each process
 *   that dies (and for the last one that closes its host port): call again to
 *   wait for others */
int64_t atoll_recv(atoll_id self, atoll_id from, uint32_t tag, void *buffer, size_t room,
                   atoll_header *header);

/* Whether there is a message that atoll_recv() would take: 1, else 0.
 * -ENXIO  there is no such id */
int atoll_probe(atoll_id self, atoll_id from, uint32_t tag);

/* The header of the oldest message: 1, and it stays where it is; 0 if there is
 * none. */
int atoll_read_header(atoll_id self, atoll_header *header);

/* The header of the oldest message that fits, wherever it stands among the
 * others: 1, and it stays where it is; 0 if there is none.
 * -ENXIO  there is no such id */
int atoll_find_header(atoll_id self, atoll_id from, uint32_t tag, atoll_header *header);

/* Receives the message that a header's descriptor names, in whatever order.
 * Gives its length; the rest is as of atoll_recv().
 * -ENOENT    there is none, or it was received
 * -EMSGSIZE  as of atoll_recv() */
int64_t atoll_rcv_desc(atoll_id self, uint64_t descriptor, void *buffer, size_t room);

/* Length and sender of the message that this process received last; 0 and
 * ATOLL_ANY before the first. */
uint64_t atoll_len(void);
atoll_id atoll_from(void);
#define AtollLen atoll_len()
#define AtollFrom atoll_from()

/* ---- Memory ----------------------------------------------------------- */

/* What others may do with registered memory. */
#define ATOLL_RDMA_OFF 0
#define ATOLL_RDMA_GET 1
#define ATOLL_RDMA_PUT 2
#define ATOLL_RDMA_BOTH 3

/* Grants or denies access to the memory that this host port has registered, or
 * will register. Nothing is allowed at first. When it returns, no access that is
 * not allowed is under way. Until then others' accesses fail with -EACCES, also
 * those that are allowed before and afterwards.
 * -EINVAL  `how` is none of ATOLL_RDMA_*
 * -EACCES  this host or its administrator forbids it; nothing is allowed
 * -ENOSPC  too much is registered (65,536 pieces); nothing is allowed */
int atoll_allow_rdma(atoll_id id, int how);

/* Registers `length` bytes from `va` on, so that they can be put from and got
 * to, and that others can access them as far as atoll_allow_rdma() lets them.
 * Registrations may overlap; the same may be registered several times, and is
 * deregistered as often. The memory stays yours; it must be valid until it was
 * deregistered or the host port was closed.
 * -EFAULT  `va` is null
 * -EINVAL  `length` is 0, or no memory is that long
 * -ENOSPC, -EACCES  as of atoll_allow_rdma()
 * -EBADF, -ECHILD   there is no host port */
int atoll_register_memory(void *va, size_t length);

/* Ends one registration of just these bytes; accesses that are under way are
 * waited for.
 * -ENOENT  there is none
 * -EBADF, -ECHILD  there is no host port */
int atoll_deregister_memory(void *va, size_t length);

/* Writes `length` bytes from `va_self` on to `dest`'s memory at `va_dest`.
 * Returns when they are visible there; `dest` takes no part.
 * -ENOTCONN  there is no connection
 * -EFAULT    the bytes at `va_self` do not lie in one registration of ours
 * -EACCES    `dest` does not allow it
 * -ENOKEY    at `va_dest` nothing is registered
 * -ERANGE    a registration holds `va_dest`, but none all of the bytes
 * -EINVAL    to this host port itself, and the bytes overlap
 * -EPIPE, -ECONNRESET, ...  `dest` is dead; they may have been written in part
 * Of all other errors nothing was touched. */
int atoll_put(atoll_id self, atoll_id dest, void *va_self, void *va_dest, size_t length);

/* Reads `length` bytes at `va_src` of `src`'s memory to `va_self`. Returns when
 * they are here; `src` takes no part. Offset and length of the route back are
 * not needed: Portolan knows its ways. Errors as of atoll_put(), the other way
 * round. */
int atoll_get(atoll_id self, atoll_id src, void *va_self, void *va_src, size_t length,
              uint32_t src_rtoff, uint32_t src_rtlen);

/* ---- As some programs spell them -------------------------------------- */

#define Atoll_Init atoll_init
#define Atoll_End(self) atoll_finish((self), ATOLL_WAIT)
#define Atoll_finish atoll_finish
#define Atoll_connect atoll_connect
#define Atoll_Connect atoll_connect
#define Atoll_disconnect atoll_disconnect
#define Atoll_Disconnect atoll_disconnect
#define Atoll_send atoll_send
#define Atoll_Send atoll_send
#define Atoll_recv atoll_recv
#define Atoll_Recv atoll_recv
#define Atoll_probe atoll_probe
#define Atoll_Probe atoll_probe
#define Atoll_read_header atoll_read_header
#define Atoll_find_header atoll_find_header
#define Atoll_rcv_desc atoll_rcv_desc
#define Atoll_Clock atoll_clock
#define AClock atoll_clock
#define Atoll_register_memory atoll_register_memory
#define Atoll_deregister_memory atoll_deregister_memory
#define Atoll_put atoll_put
#define Atoll_get atoll_get

#ifdef __cplusplus
}
#endif

#endif
