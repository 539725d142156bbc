// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The way to the process that holds packets back, and back from it.
//
// `detour` runs where a packet leaves the switch towards a host and sends it
// to a device that the process reads; what the process writes there comes in,
// and `back` sends it on to the host. Both end with the process.

#include "impair.h"

static long (*const redirect)(u32 ifindex, u64 flags) = (void *)23;

struct port {
	u64 seed;
	u64 own; // the host's byte
	u64 other; // interface index of the other end
	u64 judged;
};

// By interface index, of the switch's ports and of the process's devices.
struct {
	UINT(type, MAP_TYPE_HASH);
	UINT(max_entries, 2 * PORTS_MAX);
	TYPE(key, u32);
	TYPE(value, struct port);
} ports SECTION(".maps");

struct rule {
	struct choice choice;
	u64 share; // of packets, parts of 2^32
};

struct {
	UINT(type, MAP_TYPE_ARRAY);
	UINT(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct rule);
} rules SECTION(".maps");

SECTION("classifier")
int detour(struct packet *packet)
{
	u32 index = packet->ifindex, zero = 0;
	struct port *port = map_lookup(&ports, &index);
	const struct rule *rule = map_lookup(&rules, &zero);

	if (!port || !rule || packet->mark == HELD || !chosen(&rule->choice, packet, port->own))
		return VERDICT_NEXT;
	u64 n = __sync_fetch_and_add(&port->judged, 1);
	if (!happens(rule->share, port->seed, FOR_WIRE, n))
		return VERDICT_NEXT;
	return redirect(port->other, 0);
}

SECTION("classifier")
int back(struct packet *packet)
{
	u32 index = packet->ifindex;
	const struct port *port = map_lookup(&ports, &index);

	if (!port)
		return VERDICT_DROP;
	packet->mark = HELD;
	return redirect(port->other, 0);
}

SECTION("license") char terms[] = "Dual MIT/GPL";
