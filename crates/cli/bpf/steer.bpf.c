// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Steers packets to host ports past the kernel's network stack. What is not
// for one goes on to the kernel untouched.

#include "kernel.h"

enum { VERDICT_DROP = 1, VERDICT_PASS = 2 };

static long (*const redirect_map)(void *map, u64 key, u64 otherwise) = (void *)51;
static u64 (*const packet_len)(void *context) = (void *)188;

// Host ports of one interface at once.
enum { PORTS_MAX = 256 };
// Own addresses that are compared; packets to others the kernel delivers.
enum { OWN_MAX = 4 };
// docs/protocol.md, section Header. Header and tag make the shortest packet.
enum { WIRE_VERSION = 1, TYPE_CONNECT = 1, TYPE_DATA = 2, FLAGS_ALL = 31, WIRE_MIN = 28 };

// The beginning of the kernel's struct xdp_md.
struct context {
	u32 data, data_end, data_meta, interface, queue;
};

struct ethernet {
	u8 to[6], from[6];
	u16 type;
} __attribute__((packed));

struct ipv4 {
	u8 version_and_len, class;
	u16 len, id, fragment;
	u8 hops, protocol;
	u16 checksum;
	u32 from, to;
} __attribute__((packed));

struct ipv6 {
	u32 version_and_class;
	u16 len;
	u8 next, hops;
	u32 from[4], to[4];
} __attribute__((packed));

struct udp {
	u16 from, to, len, checksum;
} __attribute__((packed));

enum { ETHERNET_IPV4 = 0x0800, ETHERNET_IPV6 = 0x86dd, PROTOCOL_UDP = 17 };
// All of the fragment field but "don't fragment" and the reserved bit.
enum { FRAGMENT_MASK = 0x3fff };

#define network16(x) __builtin_bswap16(x)

// What became of packets to a port that were not steered.
enum { TO_KERNEL, BAD_VERSION, MALFORMED, COUNTERS };

struct port {
	u32 slot;  // in `sockets`
	u32 queue; // that the socket is bound to
	u64 len_max; // of a packet that its chunks hold
	u32 v4[OWN_MAX];
	u32 v6[OWN_MAX][4];
	u64 counters[COUNTERS];
};

// By UDP port, in network order.
struct {
	UINT(type, MAP_TYPE_HASH);
	UINT(max_entries, PORTS_MAX);
	TYPE(key, u16);
	TYPE(value, struct port);
} ports SECTION(".maps");

struct {
	UINT(type, MAP_TYPE_XSKMAP);
	UINT(max_entries, PORTS_MAX);
	TYPE(key, u32);
	TYPE(value, u32);
} sockets SECTION(".maps");

// Unused entries are zero, which is nobody's address.
static int is_own_v4(const struct port *port, u32 to)
{
	for (int i = 0; i < OWN_MAX; i++)
		if (port->v4[i] == to)
			return to != 0;
	return 0;
}

static int is_own_v6(const struct port *port, const u32 *to)
{
	for (int i = 0; i < OWN_MAX; i++) {
		const u32 *own = port->v6[i];

		if (own[0] == to[0] && own[1] == to[1] && own[2] == to[2] && own[3] == to[3])
			return own[0] != 0;
	}
	return 0;
}

static int count(struct port *port, int what, int verdict)
{
	__sync_fetch_and_add(&port->counters[what], 1);
	return verdict;
}

// Decides on a packet to `port` with the payload `wire`.
static int judge(struct context *context, struct port *port, const struct udp *udp, const u8 *wire)
{
	const void *end = (void *)(long)context->data_end;

	// Several in one, as a virtual device passes them on: the kernel takes
	// them apart.
	if (packet_len(context) > port->len_max)
		return count(port, TO_KERNEL, VERDICT_PASS);
	if (network16(udp->len) < sizeof(*udp) + WIRE_MIN || (const void *)(wire + WIRE_MIN) > end)
		return count(port, MALFORMED, VERDICT_DROP);
	if (wire[0] >> 4 != WIRE_VERSION)
		return count(port, BAD_VERSION, VERDICT_DROP);
	u8 type = wire[0] & 0xf;
	if ((type != TYPE_CONNECT && type != TYPE_DATA) || wire[1] & ~FLAGS_ALL || wire[3])
		return count(port, MALFORMED, VERDICT_DROP);
	// A socket takes packets of its own queue only.
	if (port->queue != context->queue)
		return count(port, TO_KERNEL, VERDICT_PASS);
	return redirect_map(&sockets, port->slot, VERDICT_PASS);
}

// It understands packets in several buffers, or devices would not be given any.
SECTION("xdp.frags")
int steer(struct context *context)
{
	const void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	const struct ethernet *ethernet = data;
	const struct udp *udp;
	struct port *port;
	int own;

	if ((const void *)(ethernet + 1) > end)
		return VERDICT_PASS;
	if (ethernet->type == network16(ETHERNET_IPV4)) {
		const struct ipv4 *ip = (const void *)(ethernet + 1);

		udp = (const void *)(ip + 1);
		// Neither options nor a fragment.
		if ((const void *)(udp + 1) > end || ip->version_and_len != 0x45 ||
		    ip->protocol != PROTOCOL_UDP || ip->fragment & network16(FRAGMENT_MASK))
			return VERDICT_PASS;
		u16 to = udp->to;
		port = map_lookup(&ports, &to);
		own = port && is_own_v4(port, ip->to);
	} else if (ethernet->type == network16(ETHERNET_IPV6)) {
		const struct ipv6 *ip = (const void *)(ethernet + 1);

		udp = (const void *)(ip + 1);
		// Nor extension headers.
		if ((const void *)(udp + 1) > end || ip->next != PROTOCOL_UDP)
			return VERDICT_PASS;
		u16 to = udp->to;
		port = map_lookup(&ports, &to);
		own = port && is_own_v6(port, ip->to);
	} else {
		return VERDICT_PASS;
	}
	// `own` implies a port; the verifier wants to see it.
	if (!own || !port)
		return VERDICT_PASS;
	return judge(context, port, udp, (const u8 *)(udp + 1));
}

SECTION("license") char terms[] = "Dual MIT/GPL";
