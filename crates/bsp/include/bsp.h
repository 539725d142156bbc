/*
 * BSPlib over Portolan, for C99 and C++17: the interface of "BSPlib: The BSP Programming
 * Library" (Parallel Computing 24, 1998). Start the processes with `portolan run`.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Supersteps. A program is a row of supersteps, which bsp_sync() ends in all processes.
 *   What is put, got and sent in a superstep has happened when its bsp_sync() returns:
 *   gets have read before any put is written, and their results are there before puts
 *   are. Of puts to the same place one counts as the last.
 * Errors.     There are no error codes. A call that cannot be done prints
 *   "bsp: process I of P, CALL: reason" to standard error and ends all processes, with
 *   an exit code that is not 0.
 * Sizes.      Bytes. They are int, as in the standard. With BSP_UNSIGNED defined before
 *   this header numbers of processes are unsigned and sizes size_t, in all calls. Either
 *   way each call whose name ends in _64 takes size_t.
 * Memory.     bsp_put() copies at once. bsp_hpput(), bsp_get() and bsp_hpget() may read and
 *   write the caller's memory at any time until bsp_sync() returns.
 * Threads.    One thread calls, the same all the time, and not from a signal handler.
 */
#ifndef BSP_H
#define BSP_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h> /* no call needs it, but programs may count on it */

#ifdef __cplusplus
extern "C" {
#endif

/* Numbers of processes, and sizes: unsigned with BSP_UNSIGNED defined, else int. */
#ifdef BSP_UNSIGNED
typedef unsigned bsp_pid_t;
typedef unsigned bsp_nprocs_t;
typedef size_t bsp_size_t;
#else
typedef int bsp_pid_t;
typedef int bsp_nprocs_t;
typedef int bsp_size_t;
#endif

/* ---- The SPMD part ------------------------------------------------------ */

/* Needed where bsp_begin() is not the first statement of main(): then this is. `spmd` is
 * the function that begins with bsp_begin() and ends with bsp_end(). All processes but
 * number 0 call it in here, and end behind it; process 0 goes on, and calls it later. */
void bsp_init(void (*spmd)(void), int argc, char *argv[]);

/* Begins the SPMD part with at most so many processes, at least 1: process 0's number
 * counts, and the others may give any. Those beyond that end here, with exit code 0; where
 * there are fewer, there are fewer. Once in a program. */
void bsp_begin(bsp_nprocs_t processes);

/* Ends it, in all processes. Called by all in the same superstep. */
void bsp_end(void);

/* Returns how many processes there are: in the SPMD part those that take part, before it
 * those that could, after it those that did. */
bsp_nprocs_t bsp_nprocs(void);

/* Returns this process's number, from 0. */
bsp_pid_t bsp_pid(void);

/* Returns the seconds since bsp_begin(), in this process. */
double bsp_time(void);

/* Ends the superstep. */
void bsp_sync(void);

/* Returns the seconds since it was called before, or since bsp_begin(), in this process. */
double bsp_dtime(void);

/* What `portolan bench bsp` measured last on this host, for this number of processes and
 * this link: millions of floating-point operations a second; how many of them take as long
 * as an empty superstep; how many as a word of 8 bytes to another process. 0 where nothing
 * was measured. */
double bsp_s(void);
double bsp_l(void);
double bsp_g(void);

/* Prints a text, and ends all processes. */
void bsp_abort_text(const char *text);

/* Does the same with a text that is made as by printf(), and cut after 1,023 bytes. */
void bsp_abort(const char *format, ...);

/* ---- Registration ------------------------------------------------------- */

/* All processes call these in the same order. A registration holds from the next
 * bsp_sync() on until the bsp_sync() after it was popped. Of several of one address the
 * newest counts. A process that is to take no part in an area registers NULL with size 0, and pops NULL. */
void bsp_push_reg(const void *area, bsp_size_t bytes);
void bsp_pop_reg(const void *area);

/* ---- Puts and gets ------------------------------------------------------ */

/* Areas are named by their address in the calling process, and `offset` counts from their
 * beginning in process `pid`. With 0 bytes nothing is done. bsp_put() copies `source` at the
 * call; the bytes are in the area when bsp_sync() returns. bsp_get() reads when the superstep
 * ends, before any put is written; `into` has the bytes when bsp_sync() returns. bsp_hpput()
 * and bsp_hpget() copy nothing: they may read and write both sides' memory at any time until
 * bsp_sync() returns. */
void bsp_put(bsp_pid_t pid, const void *source, void *area, bsp_size_t offset, bsp_size_t bytes);
void bsp_hpput(bsp_pid_t pid, const void *source, void *area, bsp_size_t offset, bsp_size_t bytes);
void bsp_get(bsp_pid_t pid, const void *area, bsp_size_t offset, void *into, bsp_size_t bytes);
void bsp_hpget(bsp_pid_t pid, const void *area, bsp_size_t offset, void *into, bsp_size_t bytes);

/* ---- Messages ----------------------------------------------------------- */

/* Sets the length of tags, for what is sent after the next bsp_sync(), and stores what was
 * set before; 0 at first. The same in all processes. */
void bsp_set_tagsize(bsp_size_t *bytes);

/* Sends a message, which is in the queue of process `pid` in the next superstep, and gone
 * after that. Messages have no order. */
void bsp_send(bsp_pid_t pid, const void *tag, const void *payload, bsp_size_t bytes);

/* How many messages are left in the queue, and how many bytes their payloads have
 * together; `bytes` may be NULL. */
void bsp_qsize(bsp_nprocs_t *messages, bsp_size_t *bytes);

/* Stores the tag of the next message, and in `status` how many bytes its payload has: -1
 * (the largest number, if sizes are unsigned) if there is none. */
void bsp_get_tag(bsp_size_t *status, void *tag);

/* Takes the next message: copies at most so many bytes of its payload. */
void bsp_move(void *payload, bsp_size_t room);

/* Takes the next message without copying: stores where its tag and payload are, aligned
 * for any type, until the next bsp_sync(). Returns how many bytes the payload has, or as
 * bsp_get_tag() if there is none. */
bsp_size_t bsp_hpmove(void **tag, void **payload);

/* ---- Sizes of 64 bits --------------------------------------------------- */

void bsp_push_reg_64(const void *area, size_t bytes);
void bsp_put_64(unsigned pid, const void *source, void *area, size_t offset, size_t bytes);
void bsp_hpput_64(unsigned pid, const void *source, void *area, size_t offset, size_t bytes);
void bsp_get_64(unsigned pid, const void *area, size_t offset, void *into, size_t bytes);
void bsp_hpget_64(unsigned pid, const void *area, size_t offset, void *into, size_t bytes);
void bsp_set_tagsize_64(size_t *bytes);
void bsp_send_64(unsigned pid, const void *tag, const void *payload, size_t bytes);
void bsp_qsize_64(unsigned *messages, size_t *bytes);
void bsp_get_tag_64(size_t *status, void *tag);
void bsp_move_64(void *payload, size_t room);
size_t bsp_hpmove_64(void **tag, void **payload);

#ifdef BSP_UNSIGNED
#define bsp_push_reg bsp_push_reg_64
#define bsp_put bsp_put_64
#define bsp_hpput bsp_hpput_64
#define bsp_get bsp_get_64
#define bsp_hpget bsp_hpget_64
#define bsp_set_tagsize bsp_set_tagsize_64
#define bsp_send bsp_send_64
#define bsp_qsize bsp_qsize_64
#define bsp_get_tag bsp_get_tag_64
#define bsp_move bsp_move_64
#define bsp_hpmove bsp_hpmove_64
#endif

/* ---- Names of the first toolset ----------------------------------------- */

#define bsp_pushregister bsp_push_reg
#define bsp_popregister bsp_pop_reg
#define bsp_set_tag_size bsp_set_tagsize
#define bsp_bsmp_info bsp_qsize

#ifdef __cplusplus
}
#endif

#endif
