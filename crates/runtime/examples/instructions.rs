//! What `make instructions` counts: small messages from one endpoint to
//! another in this process, each received before the next is sent.
//!
//! `instructions udp|shm|crowd COUNT`; a crowd is UDP among 4,096 peers, of which
//! the others are silent.

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

fn opening(rank: u32, network: bool) -> Result<Opening, Error> {
    let mut config = Config {
        rank,
        id: EndpointId(u64::from(rank) + 1),
        life: Life(u64::from(rank) + 100),
        secret: Some(Hidden::copy_of(&[7; 32])?.into()),
        host: 1,
        helper: false,
        network,
        ..Config::default()
    };
    config.udp.address = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    config.udp.frame_max = Some(1472);
    Ok(Opening::new(config)?)
}

/// Messages before those that are counted.
const WARM_UP: u64 = 2_000;

/// Silent peers that a crowd has beside the two.
const CROWD: u16 = 4_095;

fn pair(shared: bool, crowd: u16) -> Result<[Space; 2], Error> {
    let openings = [opening(0, !shared)?, opening(1, !shared)?];
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

fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let (Some(link), Some(count)) = (args.next(), args.next()) else {
        return Err("usage: instructions udp|shm|crowd COUNT".into());
    };
    let count: u64 = count.parse()?;
    let (shared, crowd) = match link.as_str() {
        "shm" => (true, 0),
        "udp" => (false, 0),
        "crowd" => (false, CROWD),
        other => return Err(format!("udp, shm or crowd, not {other}").into()),
    };
    let ends = pair(shared, crowd)?;
    let seen: [Arc<AtomicU64>; 2] = [Arc::default(), Arc::default()];
    for (end, seen) in ends.iter().zip(&seen) {
        let seen = Arc::clone(seen);
        end.bind(
            PORT,
            Binding::to(move |_, m| {
                seen.fetch_add(m.payload.len() as u64, Ordering::Relaxed);
            }),
        )?;
    }
    // The handshake, and what is learnt in the beginning.
    turns(&ends, &seen, WARM_UP)?;
    measured(&ends, &seen, count)
}

/// What is counted: everything within.
#[inline(never)]
fn measured(ends: &[Space; 2], seen: &[Arc<AtomicU64>; 2], count: u64) -> Result<(), Error> {
    turns(ends, seen, count)
}

/// Turns, as in a ping-pong: acknowledgements ride on the answers.
fn turns(ends: &[Space; 2], seen: &[Arc<AtomicU64>; 2], count: u64) -> Result<(), Error> {
    for i in 0..count {
        let from = (i % 2) as usize;
        let to = 1 - from;
        let before = seen[to].load(Ordering::Relaxed);
        ends[from].send(to as u32, PORT, &i.to_le_bytes())?;
        while seen[to].load(Ordering::Relaxed) == before {
            if before == 0 {
                // The handshake needs both sides.
                ends[from].progress()?;
            }
            ends[to].progress()?;
        }
    }
    Ok(())
}
