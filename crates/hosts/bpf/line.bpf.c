// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The wires of a lab whose lines have a rate.
//
// `join` ties two devices together as a cable does: what comes in at the one
// goes out at the other. It runs after the sender's device, so that AF_XDP,
// which goes round the queue of its own device, meets the line's queue too.
//
// `mark` runs where a packet leaves the switch towards a host, before the
// bucket with the rate and the finite buffer. It keeps a clock of its own: a
// queue at the line's rate that is empty when its last bit is out. Above the
// threshold, packets of transports that understand it are marked.

#include "kernel.h"

enum { VERDICT_NEXT = -1, VERDICT_DROP = 2 };
enum { WIRES_MAX = 2048 };
// Others who change the clock at the same moment are given way to so often.
enum { TRIES = 16 };

static u64 (*const now_ns)(void) = (void *)5;
static long (*const redirect)(u32 ifindex, u64 flags) = (void *)23;
static long (*const pull_data)(void *packet, u32 len) = (void *)39;
static long (*const set_ce)(void *packet) = (void *)97;

#define NS_PER_S 1000000000ULL

// By interface index: the other end.
struct {
	UINT(type, MAP_TYPE_HASH);
	UINT(max_entries, WIRES_MAX);
	TYPE(key, u32);
	TYPE(value, u32);
} ends SECTION(".maps");

struct port {
	u64 bits_per_s;
	u64 threshold_ns; // of queue, from which on packets are marked
	u64 buffer_ns; // of queue; beyond it the bucket drops
	u64 empty_ns; // when the last bit of the queue is out
	u64 marked;
};

// By interface index.
struct {
	UINT(type, MAP_TYPE_HASH);
	UINT(max_entries, WIRES_MAX);
	TYPE(key, u32);
	TYPE(value, struct port);
} ports SECTION(".maps");

SECTION("classifier")
int join(struct packet *packet)
{
	u32 index = packet->ifindex;
	const u32 *other = map_lookup(&ends, &index);

	return other ? redirect(*other, 0) : VERDICT_DROP;
}

SECTION("classifier")
int mark(struct packet *packet)
{
	u32 index = packet->ifindex;
	struct port *port = map_lookup(&ports, &index);

	if (!port)
		return VERDICT_NEXT;
	u64 takes = packet->len * 8 * NS_PER_S / port->bits_per_s;
	for (int i = 0; i < TRIES; i++) {
		u64 now = now_ns(), empty = port->empty_ns;
		u64 starts = empty > now ? empty : now, queue = starts - now;

		if (queue + takes > port->buffer_ns)
			break;
		if (__sync_val_compare_and_swap(&port->empty_ns, empty, starts + takes) != empty)
			continue;
		if (queue <= port->threshold_ns)
			break;
		// A part that others share is copied before it is written to.
		pull_data(packet, 0);
		if (set_ce(packet) == 1)
			__sync_fetch_and_add(&port->marked, 1);
		break;
	}
	return VERDICT_NEXT;
}

SECTION("license") char terms[] = "Dual MIT/GPL";
