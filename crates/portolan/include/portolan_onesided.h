/*
 * Portolan: one-sided memory, for C99 and C++17. portolan.h includes this; its
 * rules hold here, and those of portolan_matched.h on operations, their ends
 * and the memory that is lent to them.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A rank registers memory and tells others its remote key, for example in a
 * message. They put bytes there, get bytes from there and change numbers in
 * it, without a receive and without a call of its program: where that computes
 * or sleeps, its helper thread serves them.
 *
 * Key, rights and bounds of every access are checked before anything is
 * touched: by the target or, on one host, by the initiator in the target's
 * table. What is wrong is the error of the operation's completion:
 * -ENOKEY       it has no region under this key, or no longer
 * -EACCES       the region's rights do not allow it, or one-sided access is
 *               forbidden there
 * -ERANGE       it does not lie in the region
 * -EINVAL       the offset of an atomic operation is no multiple of 8
 * -ECONNREFUSED the target has closed the port of the signal
 * -EPIPE, -ECONNRESET, ...  the target is dead, see portolan.h; a put may have
 *               been done in part, and the memory of a get written in part
 *
 * Order. Short puts and atomic operations of one rank to another are executed
 * in the order in which they were begun; the bytes of a long put arrive in
 * parts, and those of a later one may be there before. portolan_fence() and
 * portolan_post_flush() order them.
 * In handlers none of these calls may be made (-EDEADLK).
 */
#ifndef PORTOLAN_ONESIDED_H
#define PORTOLAN_ONESIDED_H

#include "portolan_matched.h"
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Memory that others access ---------------------------------------- */

/* Rights. Atomic operations need both. */
#define PORTOLAN_MAY_GET 1u
#define PORTOLAN_MAY_PUT 2u

/* Flags of a region, one at most. */
/* Its key is the one given, not one that is chosen for it. */
#define PORTOLAN_KEY 1u
/* Of memory in one piece that is used again and again: a region of the same
 * memory and rights that was registered so is found, also when it was
 * deregistered, and others need be told its key only once. It stays open, and
 * the memory lent, until its place is needed (of those that were deregistered
 * setting regions_cached stay, the ones that were so last) or
 * portolan_forget_memory() has returned. */
#define PORTOLAN_CACHED 2u

/* How memory is registered. */
typedef struct portolan_region_options {
    uint32_t size;
    /* PORTOLAN_KEY, PORTOLAN_CACHED or 0. */
    uint32_t flags;
    /* PORTOLAN_MAY_*: what others may do. Default: 0, nothing. */
    uint32_t rights;
    uint32_t reserved;
    /* Any number, which is free again once the region was deregistered; 0
     * without PORTOLAN_KEY. */
    uint64_t key;
} portolan_region_options;

static inline void portolan_region_options_init(portolan_region_options *options)
{
    memset(options, 0, sizeof *options);
    options->size = (uint32_t)sizeof *options;
}

/* What names a region to other ranks: opaque bytes, to be told to them as they
 * are. A key that is used again after its region was deregistered names
 * another region, and who has the old bytes is refused. */
typedef struct portolan_remote_key {
    unsigned char bytes[16];
} portolan_remote_key;

/* Lets other ranks access memory; `*region` names it here, and is never 0. An
 * access names bytes by their offset from the memory's first. Memory may be
 * registered several times and in parts, each time as a region of its own.
 * `options` may be null: then others may do nothing.
 * The memory is lent until it was deregistered or the endpoint was closed (if
 * that gives -ETIMEDOUT, see portolan_close()); others may change it meanwhile,
 * so look at it by volatile or atomic reads, or by portolan_region_read().
 * -EEXIST  the key names another region here
 * -ENOSPC  65,536 regions are registered
 * -EACCES  one-sided access is forbidden here */
int portolan_register(portolan_endpoint *endpoint, void *memory, size_t bytes,
                      const portolan_region_options *options, uint64_t *region);

/* The same of several pieces, one region of all their bytes in a row. */
int portolan_registerv(portolan_endpoint *endpoint, const struct iovec *pieces, size_t count,
                       const portolan_region_options *options, uint64_t *region);

/* What other ranks name a region by.
 * -ENOENT  it is not open */
int portolan_region_key(portolan_endpoint *endpoint, uint64_t region, portolan_remote_key *key);

/* Names whatever region has a key at the moment of the access: for programs
 * that agree on keys beforehand (PORTOLAN_KEY) and tell each other none. Does
 * nothing if `key` is null. */
void portolan_remote_key_any(uint64_t number, portolan_remote_key *key);

/* Reads a region of this rank's own while others may change it, to memory that
 * is not in it.
 * -ENOENT  it is not open
 * -ERANGE  the bytes do not lie in it */
int portolan_region_read(portolan_endpoint *endpoint, uint64_t region, uint64_t offset, void *to,
                         size_t bytes);

/* Ends a registration: no access is admitted any more, and those that are under
 * way are waited for, with progress. Then the memory is yours, if no other
 * registration holds it. A region with PORTOLAN_CACHED stays open, see there.
 * -ENOENT  it is not registered */
int portolan_deregister(portolan_endpoint *endpoint, uint64_t region);

/* Closes the regions registered with PORTOLAN_CACHED that any of these bytes is
 * in, and waits for accesses under way: to be called before the memory is given
 * back or used for something else. Those that are not deregistered are closed
 * when they are, and regions that portolan_register_again() made of them are
 * deregistered by themselves. */
int portolan_forget_memory(portolan_endpoint *endpoint, const void *memory, size_t bytes);

/* Forbids one-sided access to this rank's memory from now on: nothing can be
 * registered any more, and every access ends with -EACCES. */
int portolan_forbid_onesided(portolan_endpoint *endpoint);

/* Registers memory of a region once more: the bytes from `offset` of that region
 * on, all of it or a part, with rights and a key of their own; `options`, but
 * not PORTOLAN_CACHED, and `*region` as of portolan_register(). The two may be deregistered in any order;
 * the memory is lent until the last of its regions was.
 * With the key (PORTOLAN_KEY), the extent and the rights of a region of this
 * memory it is that region, which then admits accesses until it was deregistered
 * as often as it was registered.
 * -ENOENT  `of` is not open
 * -ERANGE  the bytes do not lie in it
 * -EEXIST, -ENOSPC, -EACCES  as of portolan_register() */
int portolan_register_again(portolan_endpoint *endpoint, uint64_t of, uint64_t offset,
                            size_t bytes, const portolan_region_options *options,
                            uint64_t *region);

/* ---- Accesses to memory of others ------------------------------------- */

/* Flags of a put. */
/* It ends when its memory is yours again; whether all went well, the next
 * flush tells. Default: it ends when its bytes are visible at the target. */
#define PORTOLAN_LOCAL 1u
/* Once the bytes are visible the handler of a port of the target runs, with two
 * argument words: `word`, and how many bytes were put. */
#define PORTOLAN_SIGNAL 2u

/* How an access is done, and how its end is told. */
typedef struct portolan_access_options {
    uint32_t size;
    /* Of a put PORTOLAN_LOCAL and PORTOLAN_SIGNAL, or 0; of others 0. */
    uint32_t flags;
    /* As in portolan_tagged_options. */
    uint64_t context;
    uint32_t queue;
    uint32_t counter;
    /* Of the signal; 0 without PORTOLAN_SIGNAL. */
    uint64_t word;
    uint32_t port;
    uint32_t reserved;
} portolan_access_options;

static inline void portolan_access_options_init(portolan_access_options *options)
{
    memset(options, 0, sizeof *options);
    options->size = (uint32_t)sizeof *options;
}

/* All of these store the operation's number, never 0, and return at once;
 * `options` may be null. Any rank, this one too, may be the target; then the
 * memory must not overlap the place.
 * -EPIPE, -ECONNRESET, ...  the target is dead; nothing was begun
 * -EACCES  the port of a signal is the library's own */

/* Begins to write bytes to `offset` of the region. */
int portolan_post_put(portolan_endpoint *endpoint, uint32_t rank, const portolan_remote_key *key,
                      uint64_t offset, const void *data, size_t bytes,
                      const portolan_access_options *options, uint64_t *operation);
int portolan_post_putv(portolan_endpoint *endpoint, uint32_t rank, const portolan_remote_key *key,
                       uint64_t offset, const struct iovec *pieces, size_t count,
                       const portolan_access_options *options, uint64_t *operation);

/* Begins to read bytes from there; it ends when they are here. */
int portolan_post_get(portolan_endpoint *endpoint, uint32_t rank, const portolan_remote_key *key,
                      uint64_t offset, void *to, size_t bytes,
                      const portolan_access_options *options, uint64_t *operation);
int portolan_post_getv(portolan_endpoint *endpoint, uint32_t rank, const portolan_remote_key *key,
                       uint64_t offset, const struct iovec *pieces, size_t count,
                       const portolan_access_options *options, uint64_t *operation);

/* Adds to the 64-bit little-endian number at `offset`, a multiple of 8. `data`
 * of the completion is what was there before. Atomic among these operations
 * and those that follow, not beside the target's own program. */
int portolan_post_fetch_add(portolan_endpoint *endpoint, uint32_t rank,
                            const portolan_remote_key *key, uint64_t offset, uint64_t add,
                            const portolan_access_options *options, uint64_t *operation);

/* Replaces such a number by `desired` if it is `expected`. `data` of the
 * completion is what was there before: it was replaced if that is `expected`. */
int portolan_post_compare_swap(portolan_endpoint *endpoint, uint32_t rank,
                               const portolan_remote_key *key, uint64_t offset, uint64_t expected,
                               uint64_t desired, const portolan_access_options *options,
                               uint64_t *operation);

/* Ends when all puts and atomic operations towards a rank that were begun
 * before are visible there; with the error of the first put with PORTOLAN_LOCAL
 * that failed and that no flush has told of. */
int portolan_post_flush(portolan_endpoint *endpoint, uint32_t rank,
                        const portolan_access_options *options, uint64_t *operation);

/* What is begun after this towards a rank is executed after what was begun
 * before. Does not wait. */
int portolan_fence(portolan_endpoint *endpoint, uint32_t rank);

#ifdef __cplusplus
}
#endif

#endif
