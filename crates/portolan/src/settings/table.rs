//! The rows.

use super::Setting;

const fn row(
    name: &'static str,
    default: &'static str,
    unit: &'static str,
    range: (u64, u64),
    help: &'static str,
) -> Setting {
    Setting {
        name,
        default,
        unit,
        help,
        range,
    }
}

/// An hour, ms.
const HOUR_MS: u64 = 3_600_000;
/// A gibibyte.
const GIB: u64 = 1 << 30;
/// Of a value that is no number.
const TEXT: (u64, u64) = (0, 0);
/// No limit but the machine's.
pub(super) const ANY: u64 = u64::MAX;

/// All settings, with default, unit, range and meaning of each.
pub const SETTINGS: &[Setting] = &[
    row(
        "helper",
        "on",
        "on or off",
        (0, 1),
        "a thread that keeps the network going while the program computes",
    ),
    row(
        "takeover_us",
        "50",
        "us",
        (1, HOUR_MS * 1000),
        "the helper takes over when the program made no call for this long",
    ),
    row(
        "spin_passes",
        "2000",
        "passes",
        (0, u32::MAX as u64),
        "looks before a wait yields and then sleeps; 0 where processes outnumber cores",
    ),
    row(
        "yield_passes",
        "16",
        "passes",
        (0, u32::MAX as u64),
        "looks after these, between which a wait lets other processes run before it sleeps",
    ),
    row(
        "port",
        "0",
        "UDP port",
        (1, 65_535),
        "own port; 0 lets the kernel choose",
    ),
    row(
        "interface",
        "",
        "names or networks, as in eth0,10.2.0.0/16; all for all",
        TEXT,
        "networks that messages go by, at most 4; the first one connects; empty for the best one, as routed",
    ),
    row(
        "receive_buffer",
        "212992",
        "bytes",
        (0, GIB),
        "socket receive buffer to ask for",
    ),
    row(
        "send_buffer",
        "212992",
        "bytes",
        (0, GIB),
        "socket send buffer to ask for",
    ),
    row(
        "packet_max",
        "0",
        "bytes",
        (1232, 65_507),
        "largest UDP payload; 0 takes it from the interface",
    ),
    row(
        "unexpected_bytes",
        "4194304",
        "bytes",
        (1, ANY),
        "memory for messages to ports that are not bound yet",
    ),
    row(
        "queue_bytes",
        "67108864",
        "bytes",
        (1, ANY),
        "memory for messages that wait for their handler",
    ),
    row(
        "copy_min",
        "65536",
        "bytes",
        (0, ANY),
        "on one host, messages of so many bytes may be copied straight out of the sender's memory",
    ),
    row(
        "share_min",
        "131072",
        "bytes",
        (0, ANY),
        "on one host, of matched messages of so many bytes sent by a call that waits each side copies a half",
    ),
    row(
        "pushed_bytes",
        "4194304",
        "bytes",
        (1, 1 << 40),
        "memory for matched messages that were pushed and that no receive has asked for",
    ),
    row(
        "pushed_share",
        "0",
        "bytes",
        (0, 1 << 40),
        "what one sender may have of it, 4,096 at least; 0: what one message pushes at most",
    ),
    row(
        "offers_max",
        "65536",
        "messages",
        (1, u32::MAX as u64),
        "longer matched messages of one sender that may wait here for a receive",
    ),
    row(
        "pull_window",
        "524288",
        "bytes",
        (4096, 1 << 40),
        "of matched messages: bytes asked for that have not come, of all senders together",
    ),
    row(
        "pull_chunk",
        "131072",
        "bytes",
        (4096, 1 << 40),
        "of matched messages: bytes that one request asks for",
    ),
    row(
        "regions_cached",
        "128",
        "registrations",
        (0, 1_024),
        "of memory registered to be found again: those that stay when the program has ended them",
    ),
    row(
        "push_shm_whole",
        "131072",
        "bytes",
        (0, ANY),
        "on one host and to oneself: longest matched message that is pushed whole",
    ),
    row(
        "push_shm_first",
        "1024",
        "bytes",
        (0, ANY),
        "on one host: of a longer one, bytes that leave with its offer, BTP(1)",
    ),
    row(
        "push_shm_second",
        "15360",
        "bytes",
        (0, ANY),
        "on one host: bytes that follow right behind, BTP(2)",
    ),
    row(
        "push_net_whole",
        "65536",
        "bytes",
        (0, ANY),
        "by the network: longest matched message that is pushed whole",
    ),
    row(
        "push_net_first",
        "1024",
        "bytes",
        (0, ANY),
        "by the network: of a longer one, bytes that leave with its offer, BTP(1)",
    ),
    row(
        "push_net_second",
        "15360",
        "bytes",
        (0, ANY),
        "by the network: bytes that follow right behind, BTP(2)",
    ),
    row(
        "frames",
        "2048",
        "frames",
        (32, 1 << 20),
        "frames of the shared pool for the network",
    ),
    row(
        "active_peers",
        "64",
        "peers",
        (1, 1 << 16),
        "peers on the network that can be active at once; without a launcher only at first",
    ),
    row(
        "peers_max",
        "4096",
        "peers",
        (1, 1 << 19),
        "without a launcher: peers that can be there at once, added or not",
    ),
    row(
        "unknown_peers",
        "accept",
        "accept or refuse",
        TEXT,
        "without a launcher: what happens to peers that introduce themselves and were not added",
    ),
    row(
        "silence_ms",
        "3000",
        "ms",
        (1, ANY),
        "a peer that does not answer for so long while something waits for it is dead; 30000 by default without a launcher",
    ),
    row(
        "idle_ms",
        "10000",
        "ms",
        (0, ANY),
        "a peer quiet for so long gives its active state back",
    ),
    row(
        "trace",
        "",
        "file",
        (0, 0),
        "write a timeline for Perfetto; %r is the rank, added at the end where it is missing",
    ),
    row(
        "close_ms",
        "3000",
        "ms",
        (0, ANY),
        "closing waits so long for what is under way",
    ),
    row(
        "join_ms",
        "60000",
        "ms",
        (1, ANY),
        "a peer that has never answered is dead after this; silence_ms by default without a launcher; under another launcher the others are waited for so long, too",
    ),
    row(
        "address",
        "",
        "an IP address or a network (10.1.0.0/16)",
        TEXT,
        "under another launcher: which of the host's addresses others are told; empty for the best one",
    ),
    row(
        "agent",
        "portolan",
        "a program, or nothing",
        TEXT,
        "under another launcher: the command that is run as agent of each host; empty for none",
    ),
    row(
        "job_secret_file",
        "",
        "a path",
        TEXT,
        "under another launcher: a file, the same for all ranks, that goes into the keys",
    ),
    row(
        "security",
        "encrypt",
        "encrypt or none",
        TEXT,
        "under another launcher: whether packets are encrypted and authenticated",
    ),
    row(
        "suite",
        "aes-128-gcm",
        "aes-128-gcm or chacha20-poly1305",
        TEXT,
        "under another launcher: the cipher suite",
    ),
    row(
        "link",
        "auto",
        "auto, shm or udp",
        TEXT,
        "under another launcher: which link to use",
    ),
    row(
        "congestion",
        "auto",
        "auto, lan or shared",
        TEXT,
        "under another launcher: how to share the network",
    ),
];
