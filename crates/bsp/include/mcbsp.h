/*
 * BSPlib over Portolan for programs that were written for MulticoreBSP for C. It is bsp.h
 * with sizes of type size_t and unsigned numbers of processes, bsp_hpsend() and
 * bsp_direct_get().
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef MCBSP_H
#define MCBSP_H

#ifndef BSP_UNSIGNED
#ifdef BSP_H
#error "bsp.h came first, with sizes of type int: include mcbsp.h alone, or define BSP_UNSIGNED"
#endif
#define BSP_UNSIGNED
#endif
#include <bsp.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Messages of MulticoreBSP ------------------------------------------- */

/* Does what bsp_send() does, and may read tag and payload until bsp_sync() returns: do not
 * change them before. */
static inline void bsp_hpsend(bsp_pid_t pid, const void *tag, const void *payload, bsp_size_t bytes)
{
    bsp_send(pid, tag, payload, bytes);
}

/* ---- Gets that read now -------------------------------------------------- */

/* Reads from an area of process `pid`, and has done so when it returns; a program that
 * writes there in this superstep may have done so before or not. Process `pid` may compute
 * meanwhile: a thread of the library answers for it. */
void bsp_direct_get(bsp_pid_t pid, const void *area, bsp_size_t offset, void *into, bsp_size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
