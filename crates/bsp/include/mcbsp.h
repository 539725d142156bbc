/*
 * BSPlib over Portolan for programs that were written for MulticoreBSP for C: bsp.h with
 * sizes of type size_t and unsigned numbers of processes, and bsp_hpsend().
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

#ifdef __cplusplus
}
#endif

#endif
