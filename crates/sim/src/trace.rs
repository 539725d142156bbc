//! A readable account of a run.

use portolan_wire::{ConnectIds, Flags, Header, PacketType};

/// Prints events as they happen, if it is on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trace {
    /// Whether it prints.
    pub on: bool,
}

impl Trace {
    /// An event at a node.
    pub fn note(self, now: u64, node: usize, what: impl FnOnce() -> String) {
        if self.on {
            println!("{now:>14} node {node:<2} {}", what());
        }
    }

    /// A packet leaves or arrives.
    pub fn packet(self, now: u64, way: &str, from: usize, to: usize, bytes: &[u8], mark: bool) {
        if !self.on {
            return;
        }
        let node = if way == "tx" { from } else { to };
        let mark = if mark { " ecn" } else { "" };
        let what = match Header::parse(bytes) {
            Err(error) => format!("{error}"),
            Ok(h) if h.kind == PacketType::Connect => match ConnectIds::parse(bytes) {
                Ok(ids) => format!(
                    "connect {:#x} of life {:#x} to life {:#x}",
                    h.number, ids.from_life.0, ids.to_life.0
                ),
                Err(error) => format!("connect: {error}"),
            },
            Ok(h) => {
                let flag = |f, name| if h.flags.has(f) { name } else { "" };
                format!(
                    "data {:#x} to connection {:#010x}{}{}{}{}{}{}",
                    h.number,
                    h.connection,
                    flag(Flags::ACK_WANTED, " ask"),
                    flag(Flags::HAS_ACK, " ack"),
                    flag(Flags::KEY_PHASE, " phase"),
                    flag(Flags::REQUESTS_FULL, " requests-full"),
                    flag(Flags::REPLIES_FULL, " replies-full"),
                    flag(Flags::DETOUR, " detour"),
                )
            }
        };
        println!(
            "{now:>14} node {node:<2} {way} {from}>{to} {} bytes: {what}{mark}",
            bytes.len()
        );
    }
}
