// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Loss and repetition at a port of the lab's switch.
//
// It runs where a packet leaves the switch towards a host, so that every
// packet between two hosts is judged once. The n-th chosen packet of a port
// has always the same fate under the same seed, whichever CPU carries it: the
// fate is a mixed sum of seed and n, and n is counted atomically.

#include "impair.h"

static long (*const clone_redirect)(void *packet, u32 ifindex, u64 flags) = (void *)13;

struct port {
	u64 seed;
	u64 own; // the host's byte
	u64 judged;
	u64 dropped;
	u64 repeated;
	u64 burst_end; // first packet after the burst that goes on
};

// By interface index.
struct {
	UINT(type, MAP_TYPE_HASH);
	UINT(max_entries, PORTS_MAX);
	TYPE(key, u32);
	TYPE(value, struct port);
} ports SECTION(".maps");

// Shares are parts of 2^32; 2^32 is all.
struct rule {
	struct choice choice;
	u64 loss; // share of packets that are lost, or with which a burst begins
	u64 burst_min, burst_max; // packets
	u64 acks_only; // the others are not lost
	u64 repeat;
};

struct {
	UINT(type, MAP_TYPE_ARRAY);
	UINT(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct rule);
} rules SECTION(".maps");

// Ethernet, IPv4 without options, UDP, our header; or IPv6.
enum { AT_TYPE = 12, AT_V4_PROTOCOL = 23, AT_V4_UDP = 34, AT_V6_PROTOCOL = 20, AT_V6_UDP = 54 };
enum { UDP_LEN = 4, UDP_BYTES = 8, PROTOCOL_UDP = 17 };
// docs/protocol.md, section Header: version and type of a packet with data,
// and the flag of one that bears an acknowledgement.
enum { OURS = 0x12, HAS_ACK = 4 };
// Header, acknowledgement with 0 to 8 words of bitmap, tag.
enum { ACK_MIN = 12 + 28 + 16, ACK_WORD = 8, ACK_WORDS_MAX = 8 };

#define network16(x) __builtin_bswap16(x)

// Whether a packet is one of ours that carries an acknowledgement and no
// message. What it carries is sealed: its length tells.
static int is_ack(void *packet)
{
	u16 type = 0, len = 0;
	u8 first[2] = {}, protocol = 0;

	if (load_bytes(packet, AT_TYPE, &type, sizeof(type)))
		return 0;
	int is_v4 = type == network16(0x0800);
	u32 at = is_v4 ? AT_V4_UDP : AT_V6_UDP;

	if (!is_v4 && type != network16(0x86dd))
		return 0;
	if (load_bytes(packet, is_v4 ? AT_V4_PROTOCOL : AT_V6_PROTOCOL, &protocol, 1) ||
	    protocol != PROTOCOL_UDP || load_bytes(packet, at + UDP_LEN, &len, sizeof(len)) ||
	    load_bytes(packet, at + UDP_BYTES, first, sizeof(first)))
		return 0;
	u32 rest = network16(len) - UDP_BYTES - ACK_MIN;

	return first[0] == OURS && first[1] & HAS_ACK && rest <= ACK_WORDS_MAX * ACK_WORD &&
	       rest % ACK_WORD == 0;
}

static int is_lost(const struct rule *rule, struct port *port, u64 n)
{
	if (n < port->burst_end)
		return 1;
	if (!happens(rule->loss, port->seed, FOR_LOSS, n))
		return 0;
	u64 kinds = rule->burst_max - rule->burst_min + 1;
	u64 length = rule->burst_min + (draw(port->seed, FOR_LENGTH, n) >> 32) % kinds;

	port->burst_end = n + length;
	return 1;
}

SECTION("classifier")
int impair(struct packet *packet)
{
	u32 index = packet->ifindex, zero = 0;
	struct port *port = map_lookup(&ports, &index);
	const struct rule *rule = map_lookup(&rules, &zero);

	if (!port || !rule || packet->mark == COPY || packet->mark == HELD ||
	    !chosen(&rule->choice, packet, port->own) || (rule->acks_only && !is_ack(packet)))
		return VERDICT_NEXT;
	u64 n = __sync_fetch_and_add(&port->judged, 1);
	if (is_lost(rule, port, n)) {
		__sync_fetch_and_add(&port->dropped, 1);
		return VERDICT_DROP;
	}
	if (happens(rule->repeat, port->seed, FOR_REPEAT, n)) {
		// The copy comes by here too, before this one goes on.
		packet->mark = COPY;
		if (!clone_redirect(packet, index, 0))
			__sync_fetch_and_add(&port->repeated, 1);
		packet->mark = 0;
	}
	return VERDICT_NEXT;
}

SECTION("license") char terms[] = "Dual MIT/GPL";
