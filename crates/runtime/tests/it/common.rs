//! Endpoints of one job within one process.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use portolan_link::shm::{Segment, SegmentConfig};
use portolan_runtime::{
    Config, Congestion, EndpointId, Hidden, Life, OpId, Opening, PeerConfig, ShmAttachment, Space,
    Watch,
};
use portolan_sys::shared_doorbell::SharedDoorbells;

/// How long something may take to come about that surely does. It only ends a
/// test that would hang: nothing is measured by it.
pub const PATIENCE: Duration = Duration::from_secs(120);

pub mod processes;
pub mod published;

/// Which lane joins the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Shm,
    /// Shared memory without copies between processes.
    Ring,
    Udp,
}

pub const ALL: [By; 3] = [By::Shm, By::Ring, By::Udp];

/// Settings for tests: no helper thread, so that each step is the test's own.
pub fn config() -> Config {
    // Two that share a thread cannot wait for each other's last acknowledgement.
    let mut config = Config {
        helper: false,
        spin_passes: 50,
        close_ns: 20_000_000,
        ..Config::default()
    };
    config.udp.address = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    config.secret = Some(Hidden::copy_of(&[7; 32]).unwrap().into());
    config
}

/// Settings for ranks with threads of their own: what one still owes the other
/// when its test is over the helper thread does.
pub fn helped() -> Config {
    Config {
        helper: true,
        close_ns: PATIENCE.as_nanos() as u64,
        ..config()
    }
}

/// Opens a job of `size` ranks.
pub fn job(by: By, size: u32, config: &Config) -> Vec<Space> {
    job_watched(by, size, config, |_| None)
}

pub fn job_watched(
    by: By,
    size: u32,
    config: &Config,
    mut watch: impl FnMut(u32) -> Option<Box<dyn Watch>>,
) -> Vec<Space> {
    let shm = by != By::Udp;
    let segment = shm.then(|| Segment::create(size, &SegmentConfig::default()).unwrap());
    let bells = SharedDoorbells::new(size as usize).unwrap();
    let openings: Vec<Opening> = (0..size).map(|rank| opening(by, rank, config)).collect();
    let peers: Vec<PeerConfig> = openings
        .iter()
        .zip(0..)
        .map(|(o, index)| peer(o, shm.then_some(index)))
        .collect();
    openings
        .into_iter()
        .zip(0u16..)
        .map(|(opening, index)| {
            let attachment = segment.as_ref().map(|segment| ShmAttachment {
                segment: segment.duplicate_fd().unwrap(),
                index,
                doorbells: bells.duplicate_of(index.into()).unwrap(),
            });
            opening
                .finish(&peers, attachment, watch(u32::from(index)))
                .unwrap()
        })
        .collect()
}

/// A rank that knows no others yet.
pub fn opening(by: By, rank: u32, config: &Config) -> Opening {
    let mut config = config.clone();
    config.rank = rank;
    config.id = EndpointId(100 + u64::from(rank));
    config.life = Life(0x1234_5678 + u64::from(rank));
    config.secrets.protocol = [1 + rank as u8; 32];
    config.network = by == By::Udp;
    config.udp.disabled.cma |= by == By::Ring;
    // Ends are the test's to tell.
    config.udp.disabled.pidfd = true;
    Opening::new(config).unwrap()
}

/// A rank as the others know it; its index on the host where memory is shared.
pub fn peer(opening: &Opening, local_index: Option<u16>) -> PeerConfig {
    PeerConfig {
        address: *opening.address(),
        public_key: None,
        local_index,
        pid: std::process::id(),
        mode: Congestion::Lan,
        barred: false,
        restarts: 0,
        since: 0,
        reason: "as the test asks".into(),
    }
}

pub fn pair(by: By, config: &Config) -> (Space, Space) {
    let mut all = job(by, 2, config);
    let b = all.pop().unwrap();
    (all.pop().unwrap(), b)
}

/// Progress on all until `done`; panics when nothing comes of it.
pub fn run(endpoints: &[&Space], mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    loop {
        if done() {
            return;
        }
        for e in endpoints {
            e.progress().unwrap();
        }
        assert!(start.elapsed() < PATIENCE, "nothing comes any more");
    }
}

/// A few passes, for what must not happen.
pub fn settle(endpoints: &[&Space]) {
    for _ in 0..200 {
        for e in endpoints {
            e.progress().unwrap();
        }
    }
}

/// Whether an operation of an endpoint has ended.
pub fn ended(e: &Space, op: OpId) -> impl Fn() -> bool + '_ {
    move || e.has_ended(op).unwrap()
}

/// A counter to share with a handler.
#[derive(Clone, Default)]
pub struct Count(Arc<AtomicU64>);

impl Count {
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// Bytes that show where they belong.
pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|i| (i % 251) as u8 ^ (i >> 8) as u8 ^ seed)
        .collect()
}
