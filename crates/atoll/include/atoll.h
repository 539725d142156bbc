/*
 * ATOLL's interface over Portolan, for C99 and C++17. Link with -latoll and start
 * the processes with `portolan run`. docs/atoll.md describes what takes the place
 * of the hardware that the interface was made for.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Ids.      Each process has one host port. atoll_init() returns its id. The id is
 *   the handle that the other calls take as `self`, and the name by which others
 *   refer to it. The processes of a job have the ids 0 to atoll_size() - 1.
 * Results.  Negative errno values are errors; atoll_strerror() returns what one
 *   means here. A call that fails has done nothing, unless its comment says
 *   otherwise.
 * Threads.  Any thread may call at any time. No call may be made from a signal handler.
 * Memory.   Pointers are used only during the call, except for registered memory.
 * Waiting.  These calls wait: atoll_init() (for all processes), atoll_recv(),
 *   atoll_rcv_desc(), atoll_put(), atoll_get(), atoll_finish(),
 *   atoll_deregister_memory() and atoll_allow_rdma(). No other call waits.
 *
 * Errors of every call with `self`, not repeated below:
 * -EBADF   `self` is not this process's id, or the host port was closed by
 *          atoll_finish()
 * -ECHILD  called in a forked child, which has no host port
 * -EFAULT  a pointer is null that must not be
 * -EIO     a bug of the library, which it has caught
 * Errors for a dead process, abbreviated below as "-EPIPE, ...":
 * -EPIPE       it closed its host port
 * -ECONNRESET  it ended
 * -EHOSTDOWN   it stopped answering
 */
#ifndef ATOLL_H
#define ATOLL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Id of a host port, or a negative errno value. */
typedef int32_t atoll_id;

/* ---- The host port ---------------------------------------------------- */

/* Opens this process's host port, once in a process, and waits until all
 * processes of the job have opened theirs. Returns its id.
 * -EALREADY  this process has opened it before
 * -ECHILD    called in a forked child of a process that has opened it
 * others     atoll_why() returns the reason */
atoll_id atoll_init(void);

/* Writes to `text` why atoll_init() failed: a sentence with its remedy, cut to
 * `bytes` including the final 0. Returns the length of the whole sentence without
 * that 0, or 0 if atoll_init() has not failed. `text` may be null. */
int atoll_why(char *text, size_t bytes);

/* Returns the number of host ports in the job. */
int32_t atoll_size(atoll_id self);

/* When atoll_finish() closes. */
/* At once: messages that no receive has taken may be lost. */
#define ATOLL_NOW 0
/* When the descriptors of all sent messages have been consumed: long messages
 * have been received, and short ones have left. */
#define ATOLL_WAIT 1

/* Closes the host port. Calls of other threads end with -ESHUTDOWN. Registered
 * memory is not accessed any more after the call. The host port is closed also
 * after these errors:
 * -ETIMEDOUT   something may not have arrived
 * -EPIPE, ...  a message that atoll_send() accepted was not received, because the
 *              receiver is dead
 * But not after
 * -EINVAL      `how` is neither ATOLL_NOW nor ATOLL_WAIT; nothing was done */
int atoll_finish(atoll_id self, int how);

/* Returns what an error means, in a few words. Never null; the text is
 * constant. */
const char *atoll_strerror(int error);

/* Returns a clock for measurements, nanoseconds. Its starting point is
 * arbitrary. */
uint64_t atoll_clock(void);

/* ---- Connections ------------------------------------------------------ */

/* Connects to a host port, or to this one itself, so that messages can be sent to
 * it and its memory be accessed. The other side takes no part. If there is a
 * connection already, nothing is done.
 * -ENXIO       there is no such id
 * -EPIPE, ...  that process is dead */
int atoll_connect(atoll_id self, atoll_id dest);

/* Ends a connection. Messages that were sent over it still arrive.
 * -ENXIO     there is no such id
 * -ENOTCONN  there is no connection */
int atoll_disconnect(atoll_id self, atoll_id dest);

/* ---- Messages --------------------------------------------------------- */

/* Longest message, bytes. */
#define ATOLL_MAX_SEND_LENGTH ((size_t)1 << 20)

/* For calls that look for a message: from any host port; with any tag. */
#define ATOLL_ANY (-1)
#define ATOLL_ANY_TAG UINT32_MAX

/* Describes a message. 64 bytes. */
typedef struct atoll_header {
    /* Its sender. */
    atoll_id from;
    uint32_t tag;
    /* Its length, bytes. */
    uint64_t length;
    /* Names the message to atoll_rcv_desc() until it was received. Of a received
     * message: 0. */
    uint64_t descriptor;
    uint64_t reserved[5];
} atoll_header;

/* Sends a message: copies it into the send space and returns at once. Messages
 * to one host port are received in the order in which they were sent, unless the
 * receiver selects by tag. `tag` is any but ATOLL_ANY_TAG. `data` may be null if
 * `length` is 0.
 * -ENXIO       there is no such id
 * -ENOTCONN    there is no connection
 * -EINVAL      `tag` is ATOLL_ANY_TAG
 * -EMSGSIZE    longer than ATOLL_MAX_SEND_LENGTH
 * -EAGAIN      the send space is full of messages that were not received: call
 *              again later. It has 4 MB; a message takes 64 bytes beside its own
 * -EPIPE, ...  the receiver is dead */
int atoll_send(atoll_id self, atoll_id dest, uint32_t tag, const void *data, size_t length);

/* Waits for the oldest message that fits `from` (or ATOLL_ANY) and `tag` (or
 * ATOLL_ANY_TAG) and receives it, before earlier messages that do not fit. Returns
 * its length. `header`, unless null, gets the other details, and so do AtollLen and
 * AtollFrom.
 * -EMSGSIZE    it was longer than `room` bytes: its beginning is in the buffer, the
 *              rest is lost, and the header has its whole length
 * -ENXIO       there is no such id
 * -EPIPE, ...  `from` is dead. With ATOLL_ANY: returned once for each process that
 *              dies, and for the last one that closes its host port. Call again to
 *              wait for others */
int64_t atoll_recv(atoll_id self, atoll_id from, uint32_t tag, void *buffer, size_t room,
                   atoll_header *header);

/* Returns 1 if there is a message that atoll_recv() would take, else 0.
 * -ENXIO  there is no such id */
int atoll_probe(atoll_id self, atoll_id from, uint32_t tag);

/* Fills `header` for the oldest message, which stays where it is. Returns 1, or 0
 * if there is no message. */
int atoll_read_header(atoll_id self, atoll_header *header);

/* Does the same for the oldest message that fits, wherever it stands among the
 * others.
 * -ENXIO  there is no such id */
int atoll_find_header(atoll_id self, atoll_id from, uint32_t tag, atoll_header *header);

/* Receives the message that a header's descriptor names, in any order. Returns its
 * length, and sets AtollLen and AtollFrom.
 * -ENOENT      there is no such message, or it was received
 * -EMSGSIZE    as in atoll_recv()
 * -EPIPE, ...  the sender died before the message had arrived */
int64_t atoll_rcv_desc(atoll_id self, uint64_t descriptor, void *buffer, size_t room);

/* Return length and sender of the message that this process received last, or 0
 * and ATOLL_ANY before the first. */
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

/* Sets what others may do with the memory that this host port has registered, or
 * will register. Initially they may do nothing. When the call returns, no access
 * that is not allowed is under way. Until then all accesses of others fail with
 * -EACCES, including those that are allowed before and after it.
 * -EINVAL  `how` is none of ATOLL_RDMA_*
 * After these errors nothing is allowed:
 * -EACCES  this host or its administrator forbids one-sided access
 * -ENOSPC  too much is registered (65,536 pieces) */
int atoll_allow_rdma(atoll_id id, int how);

/* Registers `length` bytes from `va` on. They can then be put from and got to, and
 * others can access them as far as atoll_allow_rdma() allows. Registrations may
 * overlap. The same bytes may be registered several times, and must be
 * deregistered as often. The memory stays the program's, and must be valid until it
 * was deregistered or the host port was closed.
 * -EFAULT  `va` is null
 * -EINVAL  `length` is 0, or no memory is that long
 * -ENOSPC, -EACCES  as in atoll_allow_rdma()
 * -EBADF, -ECHILD   there is no host port */
int atoll_register_memory(void *va, size_t length);

/* Ends one registration of exactly these bytes. Waits for accesses under way.
 * -ENOENT          there is no such registration
 * -EBADF, -ECHILD  there is no host port */
int atoll_deregister_memory(void *va, size_t length);

/* Writes `length` bytes from `va_self` on to the memory of `dest` at `va_dest`.
 * Returns when they are visible there; `dest` takes no part.
 * -ENXIO       there is no such id
 * -ENOTCONN    there is no connection
 * -EFAULT      the bytes at `va_self` do not lie in one registration of this
 *              process
 * -EACCES      `dest` does not allow it
 * -ENOKEY      nothing is registered at `va_dest`
 * -ERANGE      a registration contains `va_dest`, but none contains all of the bytes
 * -EINVAL      `dest` is this host port itself, and the bytes overlap
 * -EPIPE, ...  `dest` is dead. The bytes may have been written in part; after all
 *              other errors nothing was touched */
int atoll_put(atoll_id self, atoll_id dest, void *va_self, void *va_dest, size_t length);

/* Reads `length` bytes at `va_src` of `src`'s memory to `va_self`. Returns when
 * they have arrived; `src` takes no part. Offset and length of the route back may be
 * anything: Portolan finds its routes itself. Errors are those of atoll_put(), with
 * the sides exchanged. */
int atoll_get(atoll_id self, atoll_id src, void *va_self, void *va_src, size_t length,
              uint32_t src_rtoff, uint32_t src_rtlen);

/* ---- Other spellings -------------------------------------------------- */

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
