// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What is common to those who do harm to packets at the ports of a lab's
// switch: which packets, and by which chance.

#include "kernel.h"

enum { VERDICT_NEXT = -1, VERDICT_DROP = 2 };
// A port for each host, on each of two switches.
enum { PORTS_MAX = 512 };

// Borne by copies, which are neither lost nor repeated, and by packets that
// have been held back: they pass.
enum { COPY = 0x70746c, HELD = 0x70746d };

static long (*const load_bytes)(const void *packet, u32 at, void *to, u32 len) = (void *)26;

// Last byte of an Ethernet address tells the lab's host.
enum { AT_FROM = 11 };

// Which packets, by the hosts' bytes; 0 is any.
struct choice {
	u64 from;
	u64 to;
	u64 either; // one of the two suffices
};

// Whether a packet to the host with the byte `own` is chosen.
static int chosen(const struct choice *choice, void *packet, u64 own)
{
	u8 from = 0;

	if (load_bytes(packet, AT_FROM, &from, 1))
		return 0;
	int is_from = !choice->from || choice->from == from;
	int is_to = !choice->to || choice->to == own;

	return choice->either ? is_from || is_to : is_from && is_to;
}

// What a number is drawn for.
enum { FOR_LOSS, FOR_LENGTH, FOR_REPEAT, FOR_WIRE };

// SplitMix64 (Steele, Lea and Flood, 2014): a counter, multiplied and mixed.
static u64 draw(u64 seed, u64 what, u64 n)
{
	u64 x = seed + what * 0xd1b54a32d192ed03ULL + n * 0x9e3779b97f4a7c15ULL;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

// Whether it happens, with `share` parts of 2^32.
static int happens(u64 share, u64 seed, u64 what, u64 n)
{
	return draw(seed, what, n) >> 32 < share;
}
