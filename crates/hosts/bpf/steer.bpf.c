// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Steers packets to host ports past the kernel's network stack. What is not
// for one goes on to the kernel untouched.

#include "kernel.h"

enum { VERDICT_DROP = 1, VERDICT_PASS = 2 };

static long (*const redirect_map)(void *map, u64 key, u64 otherwise) = (void *)51;
static u64 (*const packet_len)(void *context) = (void *)188;
static struct sock *(*const find_udp_socket)(void *context, const void *tuple, u32 tuple_len,
					     u64 network, u64 flags) = (void *)85;
static long (*const release_socket)(struct sock *socket) = (void *)86;

// The network of the device that the packet came by.
enum { OWN_NETWORK = -1 };

// Host ports of one interface at once.
enum { PORTS_MAX = 256 };
// Own addresses that are compared; packets to others the kernel delivers.
enum { OWN_MAX = 4 };
// docs/protocol.md, section Header. Header and tag make the shortest packet.
enum { WIRE_VERSION = 1, FLAGS_ALL = 63, WIRE_MIN = 28 };
enum { TYPE_CONNECT = 1, TYPE_DATA, TYPE_INTRODUCTION, TYPE_CHALLENGE };
// Bits that stand for connection numbers.
enum { KNOWN_BITS = 1 << 18 };

// The beginning of the kernel's struct xdp_md.
struct context {
	u32 data, data_end, data_meta, interface, queue;
};

// The beginning of the kernel's struct bpf_sock.
struct sock {
	u32 bound_interface, family, type, protocol, mark, priority;
};

// What a socket is looked up by, as struct bpf_sock_tuple has it.
struct tuple_v4 {
	u32 from, to;
	u16 from_port, to_port;
};

struct tuple_v6 {
	u32 from[4], to[4];
	u16 from_port, to_port;
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

// What became of packets to a port: steered; on to the kernel; dropped.
enum { STEERED, OTHER_QUEUE, TOO_LONG, BAD_VERSION, MALFORMED, UNKNOWN, COUNTERS = 8 };

// What the program and the process that has a port share. That may write
// anything here, which at worst drops or lets through packets of its own.
struct gate {
	u64 counters[COUNTERS];
	// The process says whom it knows; until then all are let through.
	u64 in_use, reserved[7];
	u64 known[KNOWN_BITS / 64];
};

struct port {
	u32 slot;  // in `sockets` and `gates`
	u32 queue; // that the socket is bound to
	u32 len_max; // of a packet that its chunks hold
	u32 priority; // by which its UDP socket is known
	u64 reserved; // maps of earlier versions were shorter and are not taken over
	u32 v4[OWN_MAX];
	u32 v6[OWN_MAX][4];
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

// By slot. A process has its own mapped, and none of another.
struct {
	UINT(type, MAP_TYPE_ARRAY_OF_MAPS);
	UINT(max_entries, PORTS_MAX);
	TYPE(key, u32);
	ARRAY(values, struct {
		UINT(type, MAP_TYPE_ARRAY);
		UINT(max_entries, 1);
		UINT(map_flags, MAP_MMAPABLE);
		UINT(key_size, sizeof(u32));
		UINT(value_size, sizeof(struct gate));
	});
} gates SECTION(".maps");

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

// Whether the kernel would deliver to the UDP socket that the port was given
// with. It stops being so when that is closed, or leaves the address; whoever
// binds the port then has a socket of another priority, since only a
// privileged process can give it one above 6.
static int has_socket(struct context *context, const struct port *port, const void *tuple,
		      u32 tuple_len)
{
	struct sock *socket = find_udp_socket(context, tuple, tuple_len, OWN_NETWORK, 0);
	u32 priority;

	if (!socket)
		return 0;
	priority = socket->priority;
	release_socket(socket);
	return priority == port->priority;
}

static struct gate *gate_of(const struct port *port)
{
	u32 first = 0;
	void *map = map_lookup(&gates, &port->slot);

	return map ? map_lookup(map, &first) : 0;
}

static int count(struct gate *gate, int what, int verdict)
{
	if (gate)
		__sync_fetch_and_add(&gate->counters[what], 1);
	return verdict;
}

// Whether the process may have given out a connection number: it says so in a
// bit that many numbers have in common.
static int is_known(const struct gate *gate, u32 number)
{
	u32 bit = number ^ number >> 20 << 6;

	// Linux 6.1 forgets all bounds at an exclusive or, and clang takes the
	// remainder before that unless the value is hidden from it.
	asm volatile("" : "+r"(bit));
	bit %= KNOWN_BITS;
	return !gate->in_use || gate->known[bit / 64] >> bit % 64 & 1;
}

// Decides on a packet to `port` with the payload `wire`.
static int judge(struct context *context, const struct port *port, const struct udp *udp,
		 const u8 *wire)
{
	const void *end = (void *)(long)context->data_end;
	struct gate *gate = gate_of(port);

	// Several in one, as a virtual device passes them on: the kernel takes
	// them apart.
	if (packet_len(context) > port->len_max)
		return count(gate, TOO_LONG, VERDICT_PASS);
	if (network16(udp->len) < sizeof(*udp) + WIRE_MIN || (const void *)(wire + WIRE_MIN) > end)
		return count(gate, MALFORMED, VERDICT_DROP);
	if (wire[0] >> 4 != WIRE_VERSION)
		return count(gate, BAD_VERSION, VERDICT_DROP);
	u8 type = wire[0] & 0xf;
	if (type < TYPE_CONNECT || type > TYPE_CHALLENGE || wire[1] & ~FLAGS_ALL || wire[3])
		return count(gate, MALFORMED, VERDICT_DROP);
	u32 number = wire[4] | wire[5] << 8 | wire[6] << 16 | (u32)wire[7] << 24;
	// Who connects has no number yet, nor has who introduces itself.
	if (type == TYPE_DATA && gate && !is_known(gate, number))
		return count(gate, UNKNOWN, VERDICT_DROP);
	// A socket takes packets of its own queue only.
	if (port->queue != context->queue)
		return count(gate, OTHER_QUEUE, VERDICT_PASS);
	// A queue is served by one processor at a time.
	if (gate)
		gate->counters[STEERED]++;
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
		// From nobody: sockets that are connected besides do not count.
		struct tuple_v4 tuple = { .to = ip->to, .to_port = to };
		own = port && is_own_v4(port, ip->to) &&
		      has_socket(context, port, &tuple, sizeof(tuple));
	} else if (ethernet->type == network16(ETHERNET_IPV6)) {
		const struct ipv6 *ip = (const void *)(ethernet + 1);

		udp = (const void *)(ip + 1);
		// Nor extension headers.
		if ((const void *)(udp + 1) > end || ip->next != PROTOCOL_UDP)
			return VERDICT_PASS;
		u16 to = udp->to;
		port = map_lookup(&ports, &to);
		struct tuple_v6 tuple = { .to_port = to };
		__builtin_memcpy(tuple.to, ip->to, sizeof(tuple.to));
		own = port && is_own_v6(port, ip->to) &&
		      has_socket(context, port, &tuple, sizeof(tuple));
	} else {
		return VERDICT_PASS;
	}
	// `own` implies a port; the verifier wants to see it.
	if (!own || !port)
		return VERDICT_PASS;
	return judge(context, port, udp, (const u8 *)(udp + 1));
}

SECTION("license") char terms[] = "Dual MIT/GPL";
