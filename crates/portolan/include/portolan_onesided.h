/*
 * Portolan: one-sided memory (RMA: put, get and atomic operations on the memory
 * of other ranks), for C99 and C++17. portolan.h includes this header; its rules
 * hold here, and those of portolan_matched.h on operations, completions and lent
 * memory.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A rank registers memory and passes its remote key to others, for example in a
 * message. They put bytes there, get bytes from there and change numbers in it.
 * The rank's program posts no receive and makes no call for this: while it
 * computes or sleeps, its helper thread serves the accesses. The rank that begins
 * an access is its initiator, the other one its target.
 *
 * Key, rights and bounds of every access are checked before anything is touched:
 * by the target or, on one host, by the initiator in the target's table. The
 * error of the operation's completion is
 * -ENOKEY       the target has no region under this key, or no longer, or the region
 *               demands its salt and the key has none (PORTOLAN_REGION_SALT)
 * -EACCES       the region's rights do not allow the access, or one-sided access
 *               is forbidden at the target
 * -ERANGE       the access does not lie in the region, or nothing is mapped there
 * -EINVAL       the offset of an atomic operation is not a multiple of the size of
 *               its elements (for complex numbers: of half of it)
 * -ECONNREFUSED the target has closed the port of the signal
 * -EPIPE, -ECONNRESET, ...  the target is dead, see portolan.h. A put may have
 *               been done in part, and the memory of a get written in part
 *
 * Order. Short puts and atomic operations of one rank on another are executed in
 * the order in which they were begun. The bytes of a long put arrive in parts,
 * and those of a later put may arrive before them. portolan_fence() and
 * portolan_post_flush() order them.
 *
 * None of these calls may be made from a handler (-EDEADLK).
 */
#ifndef PORTOLAN_ONESIDED_H
#define PORTOLAN_ONESIDED_H

#include "portolan_matched.h"
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Memory that others access ---------------------------------------- */

/* Rights. An atomic operation that fetches needs both, one that does not the right
 * to put, a read the right to get. */
#define PORTOLAN_MAY_GET 1u
#define PORTOLAN_MAY_PUT 2u

/* Flags of a region. PORTOLAN_CACHED goes with neither PORTOLAN_KEY nor
 * PORTOLAN_ADDRESS_SPACE, PORTOLAN_REGION_SALT not with PORTOLAN_REGION_ANY. */
/* The region's key is `key` of the options, not one that the library chooses. */
#define PORTOLAN_KEY 1u
/* For memory in one piece that is used again and again. A region of the same
 * memory and rights that was registered with the same flags is found again, also after
 * it was deregistered. So its key must be sent to others only once. The region
 * stays open, and the memory lent, until portolan_forget_memory() has returned or
 * the library needs its place. Of the deregistered regions, the last ones stay,
 * as many as the setting regions_cached says. */
#define PORTOLAN_CACHED 2u

/* The region is the whole address space, 2^64 - 1 bytes from address 0 on: an access
 * names bytes by their address. `memory` is null and `bytes` 0. Nothing is mapped,
 * locked or walked. An access to an address that is not mapped, or that may not be
 * written, ends with -ERANGE; of a put a part may then have been written. Whoever
 * has the key can access any memory of this process, as the rights say. */
#define PORTOLAN_ADDRESS_SPACE 4u

/* A remote key has two halves of 64 bits: the region's key, and a salt that is
 * always random. With PORTOLAN_REGION_SALT an access must show both, so only who was
 * given the remote key reaches the region. With PORTOLAN_REGION_ANY the key will do,
 * as portolan_remote_key_any() makes it. Default: PORTOLAN_REGION_SALT at an endpoint
 * outside of a job, since anybody who knows its address may guess a key such as 1;
 * PORTOLAN_REGION_ANY in a job, whose members trust each other. */
#define PORTOLAN_REGION_SALT 8u
#define PORTOLAN_REGION_ANY 16u

/* How memory is registered. */
typedef struct portolan_region_options {
    uint32_t size;
    /* PORTOLAN_KEY, PORTOLAN_CACHED, PORTOLAN_ADDRESS_SPACE, PORTOLAN_REGION_SALT,
     * PORTOLAN_REGION_ANY, or 0. */
    uint32_t flags;
    /* PORTOLAN_MAY_*: what others may do. Default: 0, nothing. */
    uint32_t rights;
    uint32_t reserved;
    /* With PORTOLAN_KEY any number, which is free again after the region was
     * deregistered. Else 0. */
    uint64_t key;
} portolan_region_options;

static inline void portolan_region_options_init(portolan_region_options *options)
{
    memset(options, 0, sizeof *options);
    options->size = (uint32_t)sizeof *options;
}

/* Names a region to other ranks: opaque bytes, to be sent to them unchanged. If a
 * key is used again after its region was deregistered, it names another region,
 * and accesses with the old bytes are refused. */
typedef struct portolan_remote_key {
    unsigned char bytes[16];
} portolan_remote_key;

/* Lets other ranks access memory. `*region` names it in this process and is never
 * 0. An access names bytes by their offset from the first one. Memory may be
 * registered several times and in parts, each time as a region of its own.
 * `options` may be null: then others may do nothing.
 *
 * The memory is lent until it was deregistered or the endpoint was closed (if
 * that returned -ETIMEDOUT, see portolan_close()). Others may change it meanwhile,
 * so read it by volatile or atomic reads, or by portolan_region_read().
 * -EEXIST  the key already names another region here
 * -ENOSPC  65,536 regions are registered
 * -EACCES  one-sided access is forbidden here
 * -EOPNOTSUPP  PORTOLAN_ADDRESS_SPACE: the kernel does not permit process_vm_readv
 *          and process_vm_writev of this process on itself, or PORTOLAN_DISABLE
 *          names cma */
int portolan_register(portolan_endpoint *endpoint, void *memory, size_t bytes,
                      const portolan_region_options *options, uint64_t *region);

/* Does the same for several pieces: one region of all their bytes in a row.
 * -EINVAL  PORTOLAN_CACHED with other than one piece, or PORTOLAN_ADDRESS_SPACE with
 *          memory */
int portolan_registerv(portolan_endpoint *endpoint, const struct iovec *pieces, size_t count,
                       const portolan_region_options *options, uint64_t *region);

/* Returns the remote key of a region.
 * -ENOENT  the region is not open */
int portolan_region_key(portolan_endpoint *endpoint, uint64_t region, portolan_remote_key *key);

/* Makes a remote key that names whichever region has the key `number` at the time
 * of the access. For programs that agree on keys beforehand (PORTOLAN_KEY) and do
 * not exchange them. Regions that demand their salt are not reached by it (-ENOKEY): see
 * PORTOLAN_REGION_SALT. Does nothing if `key` is null. */
void portolan_remote_key_any(uint64_t number, portolan_remote_key *key);

/* Reads a region of this rank itself while others may change it. `to` must not lie
 * in the region.
 * -ENOENT  the region is not open
 * -ERANGE  the bytes do not lie in it, or are not mapped */
int portolan_region_read(portolan_endpoint *endpoint, uint64_t region, uint64_t offset, void *to,
                         size_t bytes);

/* Ends a registration. No further access is admitted; accesses under way are
 * waited for, with progress. Then the memory is the program's again, unless
 * another registration holds it. A region with PORTOLAN_CACHED stays open, see
 * there.
 * -ENOENT  the region is not registered */
int portolan_deregister(portolan_endpoint *endpoint, uint64_t region);

/* Closes the regions registered with PORTOLAN_CACHED that contain any of these
 * bytes, and waits for accesses under way. Call it before the memory is freed or
 * used for something else. Regions that are still registered are closed when they
 * are deregistered. Regions that portolan_register_again() made of them must be
 * deregistered separately. */
int portolan_forget_memory(portolan_endpoint *endpoint, const void *memory, size_t bytes);

/* Forbids one-sided access to this rank's memory from now on. Nothing can be
 * registered any more, and every access ends with -EACCES. */
int portolan_forbid_onesided(portolan_endpoint *endpoint);

/* Registers memory of the region `of` once more: `bytes` bytes from `offset` on,
 * all of it or a part. Rights and key come from `options` (neither PORTOLAN_CACHED nor
 * PORTOLAN_ADDRESS_SPACE); null, and `*region`, are as in portolan_register(). The two regions may be
 * deregistered in any order. The memory is lent until the last of its regions was
 * deregistered.
 *
 * If a region of this memory has the same key (PORTOLAN_KEY), extent and rights, and
 * demands its salt or does not as this one, `*region` is that region. It then admits accesses until it was deregistered as
 * often as it was registered.
 * -ENOENT  `of` is not open
 * -ERANGE  the bytes do not lie in it
 * -EEXIST, -ENOSPC, -EACCES  as in portolan_register() */
int portolan_register_again(portolan_endpoint *endpoint, uint64_t of, uint64_t offset,
                            size_t bytes, const portolan_region_options *options,
                            uint64_t *region);

/* ---- Accesses to memory of others ------------------------------------- */

/* Flags of a put. */
/* The put ends when the program may use its memory again; the next flush reports
 * whether it succeeded. Default: it ends when its bytes are visible at the
 * target. */
#define PORTOLAN_LOCAL 1u
/* When the bytes are visible, the handler of a port of the target runs, with two
 * argument words: `word`, and the number of bytes put. */
#define PORTOLAN_SIGNAL 2u

/* How an access is done, and how its end is reported. */
typedef struct portolan_access_options {
    uint32_t size;
    /* For a put PORTOLAN_LOCAL and PORTOLAN_SIGNAL, or 0; for others 0. */
    uint32_t flags;
    /* As in portolan_tagged_options. */
    uint64_t context;
    uint32_t queue;
    uint32_t counter;
    /* Word and port of the signal; 0 without PORTOLAN_SIGNAL. */
    uint64_t word;
    uint32_t port;
    uint32_t reserved;
} portolan_access_options;

static inline void portolan_access_options_init(portolan_access_options *options)
{
    memset(options, 0, sizeof *options);
    options->size = (uint32_t)sizeof *options;
}

/* The following calls store the operation's number, never 0, and return at once.
 * `options` may be null. Any rank may be the target, also this one; then the
 * memory must not overlap the place. After these errors nothing was begun:
 * -EPIPE, -ECONNRESET, ...  the target is dead
 * -EACCES  the port of a signal is PORTOLAN_PORTS or above
 * -ENOENT  the queue or the counter of the options does not exist */

/* Begins to write bytes to `offset` of the region. The bytes are lent until the
 * operation has ended. */
int portolan_post_put(portolan_endpoint *endpoint, uint32_t rank, const portolan_remote_key *key,
                      uint64_t offset, const void *data, size_t bytes,
                      const portolan_access_options *options, uint64_t *operation);
int portolan_post_putv(portolan_endpoint *endpoint, uint32_t rank, const portolan_remote_key *key,
                       uint64_t offset, const struct iovec *pieces, size_t count,
                       const portolan_access_options *options, uint64_t *operation);

/* Begins to read bytes from there. The operation ends when they have arrived; until
 * then the memory `to` is lent. */
int portolan_post_get(portolan_endpoint *endpoint, uint32_t rank, const portolan_remote_key *key,
                      uint64_t offset, void *to, size_t bytes,
                      const portolan_access_options *options, uint64_t *operation);
int portolan_post_getv(portolan_endpoint *endpoint, uint32_t rank, const portolan_remote_key *key,
                       uint64_t offset, const struct iovec *pieces, size_t count,
                       const portolan_access_options *options, uint64_t *operation);

/* What an atomic operation does with each element. `with` is its operand, `there` what
 * stands at the target. */
#define PORTOLAN_ATOMIC_MIN 0u     /* with, if it is less */
#define PORTOLAN_ATOMIC_MAX 1u     /* with, if it is greater */
#define PORTOLAN_ATOMIC_SUM 2u     /* there + with; integers wrap around */
#define PORTOLAN_ATOMIC_PRODUCT 3u /* there * with; integers wrap around */
#define PORTOLAN_ATOMIC_LOR 4u     /* there || with */
#define PORTOLAN_ATOMIC_LAND 5u    /* there && with */
#define PORTOLAN_ATOMIC_BOR 6u     /* there | with */
#define PORTOLAN_ATOMIC_BAND 7u    /* there & with */
#define PORTOLAN_ATOMIC_LXOR 8u    /* !there != !with */
#define PORTOLAN_ATOMIC_BXOR 9u    /* there ^ with */
#define PORTOLAN_ATOMIC_READ 10u   /* there; no operand, and it must fetch */
#define PORTOLAN_ATOMIC_WRITE 11u  /* with */
/* The following must fetch. */
#define PORTOLAN_ATOMIC_SWAP_EQ 12u /* with, if compare == there */
#define PORTOLAN_ATOMIC_SWAP_NE 13u /* with, if compare != there */
#define PORTOLAN_ATOMIC_SWAP_LE 14u /* with, if compare <= there */
#define PORTOLAN_ATOMIC_SWAP_LT 15u /* with, if compare < there */
#define PORTOLAN_ATOMIC_SWAP_GE 16u /* with, if compare >= there */
#define PORTOLAN_ATOMIC_SWAP_GT 17u /* with, if compare > there */
#define PORTOLAN_ATOMIC_MSWAP 18u   /* (with & compare) | (there & ~compare) */

/* The type of the elements, little-endian. */
#define PORTOLAN_INT8 0u
#define PORTOLAN_UINT8 1u
#define PORTOLAN_INT16 2u
#define PORTOLAN_UINT16 3u
#define PORTOLAN_INT32 4u
#define PORTOLAN_UINT32 5u
#define PORTOLAN_INT64 6u
#define PORTOLAN_UINT64 7u
#define PORTOLAN_FLOAT 8u
#define PORTOLAN_DOUBLE 9u
/* Two numbers, the real part first. */
#define PORTOLAN_FLOAT_COMPLEX 10u
#define PORTOLAN_DOUBLE_COMPLEX 11u

/* Returns how many elements an atomic operation may have at most: their operands and
 * what they are compared with have 1,024 bytes. `fetching` is 0 if what was there is
 * not asked for.
 * -EINVAL  there is no such operation. Bits are combined of integers only (BOR, BAND,
 *          BXOR, MSWAP), complex numbers have no order (MIN, MAX, SWAP_LE to SWAP_GT),
 *          and READ and all swaps must fetch */
int portolan_atomic_elements_max(uint32_t operation, uint32_t type, int fetching);

/* An atomic operation on elements that lie in a row. */
typedef struct portolan_atomic {
    uint32_t size;
    /* PORTOLAN_ATOMIC_*. */
    uint32_t operation;
    /* PORTOLAN_INT8 and so on. */
    uint32_t type;
    uint32_t reserved;
    /* Elements: 1 to portolan_atomic_elements_max(). */
    size_t count;
    /* An operand for each; null for PORTOLAN_ATOMIC_READ. */
    const void *operands;
    /* What each is compared with; null if the operation does not compare. */
    const void *compare;
} portolan_atomic;

static inline void portolan_atomic_init(portolan_atomic *atomic)
{
    memset(atomic, 0, sizeof *atomic);
    atomic->size = (uint32_t)sizeof *atomic;
}

/* Begins to change elements at `offset`, each atomically with respect to the atomic
 * operations of all ranks, but not to the target's own program. The offset is a
 * multiple of an element's size (for complex numbers: of half of it). The values are
 * copied by the call. If `found` is not null the operation fetches: it fills `found`
 * with what the elements were before, and that memory is lent until the operation
 * has ended.
 * -EINVAL  see portolan_atomic_elements_max(); or too many elements, or values where
 *          there must be none
 * -EFAULT  operands or what is compared with are missing */
int portolan_post_atomic(portolan_endpoint *endpoint, uint32_t rank,
                         const portolan_remote_key *key, uint64_t offset,
                         const portolan_atomic *atomic, void *found,
                         const portolan_access_options *options, uint64_t *operation);

/* Adds `add` to the 64-bit number at `offset`, as a fetching atomic operation whose
 * completion has the old value as `data`. */
int portolan_post_fetch_add(portolan_endpoint *endpoint, uint32_t rank,
                            const portolan_remote_key *key, uint64_t offset, uint64_t add,
                            const portolan_access_options *options, uint64_t *operation);

/* Replaces such a number by `desired` if it is `expected`. `data` of the
 * completion is the old value: if it is `expected`, the number was replaced. */
int portolan_post_compare_swap(portolan_endpoint *endpoint, uint32_t rank,
                               const portolan_remote_key *key, uint64_t offset, uint64_t expected,
                               uint64_t desired, const portolan_access_options *options,
                               uint64_t *operation);

/* Begins an operation that ends when all earlier puts and atomic operations on a
 * rank are visible there. If a put with PORTOLAN_LOCAL has failed and no flush
 * has reported that, the flush ends with the error of the first such put. */
int portolan_post_flush(portolan_endpoint *endpoint, uint32_t rank,
                        const portolan_access_options *options, uint64_t *operation);

/* Orders operations: those on a rank that are begun after this call are executed
 * after those that were begun before. Does not wait.
 * -ENXIO  no such rank */
int portolan_fence(portolan_endpoint *endpoint, uint32_t rank);

#ifdef __cplusplus
}
#endif

#endif
