// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Random loss at a port of the lab's switch.
//
// It runs where a packet leaves the bridge towards a host, so that every
// packet between two hosts is judged once. The n-th packet of a port has
// always the same fate under the same seed, whichever CPU carries it: the
// fate is a mixed sum of seed and n, and n is counted atomically.

#include "kernel.h"

enum { VERDICT_NEXT = -1, VERDICT_DROP = 2 };
enum { PORTS_MAX = 256 };

struct port {
	u64 seed;
	u64 judged;
	u64 dropped;
};

// By interface index.
struct {
	UINT(type, MAP_TYPE_HASH);
	UINT(max_entries, PORTS_MAX);
	TYPE(key, u32);
	TYPE(value, struct port);
} ports SECTION(".maps");

// Parts of 2^32 that are dropped; 2^32 drops all.
struct {
	UINT(type, MAP_TYPE_ARRAY);
	UINT(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, u64);
} threshold SECTION(".maps");

// SplitMix64 (Steele, Lea and Flood, 2014): a counter, multiplied and mixed.
static u64 draw(u64 seed, u64 n)
{
	u64 x = seed + n * 0x9e3779b97f4a7c15ULL;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

SECTION("classifier")
int loss(struct packet *packet)
{
	u32 index = packet->ifindex, zero = 0;
	struct port *port = map_lookup(&ports, &index);
	u64 *limit = map_lookup(&threshold, &zero);

	if (!port || !limit)
		return VERDICT_NEXT;
	u64 n = __sync_fetch_and_add(&port->judged, 1);
	if (draw(port->seed, n) >> 32 >= *limit)
		return VERDICT_NEXT;
	__sync_fetch_and_add(&port->dropped, 1);
	return VERDICT_DROP;
}

SECTION("license") char terms[] = "Dual MIT/GPL";
