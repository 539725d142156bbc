//! What `make instructions` counts: small messages from one endpoint to
//! another in this process, each received before the next is sent, and one look
//! in vain before each.
//!
//! `instructions udp|shm|crowd COUNT WARM_UP`; a crowd is UDP among 4,096 peers, of
//! which the others are silent. Time goes on by 2.5 us a message, whatever the machine
//! and whoever counts, so that each run meets the same timers.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use portolan_link::shm::Segment;
use portolan_runtime::{
    Binding, Config, Congestion, EndpointId, Hidden, Life, Opening, PeerConfig, ShmAttachment,
    Space,
};
use portolan_sys::shared_doorbell::SharedDoorbells;

const PORT: u16 = 1;

type Error = Box<dyn std::error::Error>;

/// Nanoseconds that a message takes.
const STEP_NS: u64 = 2_500;

fn opening(rank: u32, network: bool, clock: &Arc<AtomicU64>) -> Result<Opening, Error> {
    let mut config = Config {
        rank,
        id: EndpointId(u64::from(rank) + 1),
        life: Life(u64::from(rank) + 100),
        secret: Some(Hidden::copy_of(&[7; 32])?.into()),
        host: 1,
        helper: false,
        network,
        clock: Some(Arc::clone(clock)),
        ..Config::default()
    };
    config.udp.address = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    config.udp.frame_max = Some(1472);
    Ok(Opening::new(config)?)
}

/// Silent peers that a crowd has beside the two.
const CROWD: u16 = 4_095;

fn pair(shared: bool, crowd: u16, clock: &Arc<AtomicU64>) -> Result<[Space; 2], Error> {
    let openings = [opening(0, !shared, clock)?, opening(1, !shared, clock)?];
    let mut peers: Vec<PeerConfig> = openings
        .iter()
        .zip(0..)
        .map(|(o, index)| PeerConfig {
            address: *o.address(),
            public_key: None,
            local_index: shared.then_some(index),
            pid: std::process::id(),
            mode: Congestion::Lan,
            barred: false,
            restarts: 0,
            since: 0,
            reason: "same process".into(),
        })
        .collect();
    for other in 0..crowd {
        let mut silent = peers[0].clone();
        silent.address.id = EndpointId(u64::from(other) + 3);
        silent.address.port = 1 + other;
        peers.push(silent);
    }
    let segment = Segment::create(2, &portolan_link::shm::SegmentConfig::default())?;
    let bells = SharedDoorbells::new(2)?;
    let attach = |index: u16| -> Result<Option<ShmAttachment>, Error> {
        if !shared {
            return Ok(None);
        }
        Ok(Some(ShmAttachment {
            segment: segment.duplicate_fd()?,
            index,
            doorbells: bells.duplicate_of(index.into())?,
        }))
    };
    let [first, second] = openings;
    Ok([
        first.finish(&peers, attach(0)?, None)?,
        second.finish(&peers, attach(1)?, None)?,
    ])
}

struct PingPong {
    ends: [Space; 2],
    /// Bytes that each end has received.
    seen: [Arc<AtomicU64>; 2],
    clock: Arc<AtomicU64>,
}

fn main() -> Result<(), Error> {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let [link, count, warm_up] = words.as_slice() else {
        return Err("usage: instructions udp|shm|crowd COUNT WARM_UP".into());
    };
    let (shared, crowd) = match link.as_str() {
        "shm" => (true, 0),
        "udp" => (false, 0),
        "crowd" => (false, CROWD),
        other => return Err(format!("udp, shm or crowd, not {other}").into()),
    };
    let clock = Arc::new(AtomicU64::new(portolan_sys::clock::now_ns()));
    let turns = PingPong {
        ends: pair(shared, crowd, &clock)?,
        seen: Default::default(),
        clock,
    };
    for (end, seen) in turns.ends.iter().zip(&turns.seen) {
        let seen = Arc::clone(seen);
        end.bind(
            PORT,
            Binding::to(move |_, m| {
                seen.fetch_add(m.payload.len() as u64, Ordering::Relaxed);
            }),
        )?;
    }
    // For who follows each instruction.
    let (from, to) = (measured as *const (), over as *const ());
    println!("measured from {from:p} to {to:p}");
    // The handshake, and what is learnt in the beginning.
    turns.make(warm_up.parse()?)?;
    measured(&turns, count.parse()?)?;
    over();
    Ok(())
}

/// What is counted: everything within.
#[inline(never)]
fn measured(turns: &PingPong, count: u64) -> Result<(), Error> {
    turns.make(count)
}

/// Where it has ended.
#[inline(never)]
fn over() {
    std::hint::black_box(());
}

impl PingPong {
    /// As in a ping-pong: acknowledgements ride on the answers.
    fn make(&self, count: u64) -> Result<(), Error> {
        for i in 0..count {
            let from = (i % 2) as usize;
            let to = 1 - from;
            let before = self.seen[to].load(Ordering::Relaxed);
            self.clock.fetch_add(STEP_NS, Ordering::Relaxed);
            self.ends[to].progress()?;
            self.ends[from].send(to as u32, PORT, &i.to_le_bytes())?;
            while self.seen[to].load(Ordering::Relaxed) == before {
                if before == 0 {
                    // The handshake needs both sides.
                    self.ends[from].progress()?;
                }
                self.ends[to].progress()?;
            }
        }
        Ok(())
    }
}
