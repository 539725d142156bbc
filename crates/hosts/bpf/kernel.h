// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The part of the kernel's stable interface that our BPF programs use, so
// that no kernel headers are needed to build them.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SECTION(name) __attribute__((section(name), used))
#define UINT(name, value) int(*name)[value]
#define TYPE(name, type) type *name
#define ARRAY(name, type) typeof(type) *name[]

enum { MAP_TYPE_HASH = 1, MAP_TYPE_ARRAY = 2, MAP_TYPE_ARRAY_OF_MAPS = 12, MAP_TYPE_XSKMAP = 17 };
// Processes can map it.
enum { MAP_MMAPABLE = 1 << 10 };

static void *(*const map_lookup)(void *map, const void *key) = (void *)1;

// The beginning of the kernel's struct __sk_buff.
struct packet {
	u32 len, pkt_type, mark, queue_mapping, protocol;
	u32 vlan_present, vlan_tci, vlan_proto, priority;
	u32 ingress_ifindex, ifindex;
};
