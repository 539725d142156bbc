//! Settings of an endpoint, and why it cannot be opened.

mod error;
mod threads;

use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use portolan_engine::{Death, Restarted, Secrets};
use portolan_exchange::Push;
use portolan_link::udp::UdpConfig;
use portolan_proto::congestion::Mode;
use portolan_seal::{PUBLIC_KEY_BYTES, SuiteId};
use portolan_sys::lives::Pulse;
use portolan_sys::memory::Hidden;
use portolan_wire::{Address, EndpointId, Life};

pub use self::error::OpenError;
pub use self::threads::Threads;

/// Thresholds for shared memory, where pushing costs no packets, only a copy on either core, both
/// at once.
const PUSH_SHM: Push = Push {
    whole: 128 << 10,
    ..Push::DEFAULT
};

/// Settings, fixed while the endpoint lives.
#[derive(Clone, Debug)]
pub struct Config {
    /// This process's rank. Default 0.
    pub rank: u32,
    /// Endpoint id, unique among those that share the secret. Default 0.
    pub id: EndpointId,
    /// Fresh random bits for this incarnation. Default 0, which only a test
    /// may use.
    pub life: Life,
    /// Secret that all members of the job share. Default none, which stands for zeros; for tests
    /// only.
    pub secret: Option<Arc<Hidden<32>>>,
    /// How keys are agreed on with peers that have a public key; no other endpoint may then know
    /// `secret`. Default none.
    pub agreement: Option<Agreement>,
    /// Cipher suite of the network lanes. Default AEGIS-128L.
    pub suite: SuiteId,
    /// Random bits that no other process may guess, fresh from the kernel for this life. Default
    /// zeros, for tests only.
    pub secrets: Secrets,
    /// Host identifier: equal for endpoints of one kernel and network namespace. Default 0, none.
    pub host: u64,
    /// Which threads may call. Default [`Threads::Single`].
    pub threads: Threads,
    /// Whether a helper thread keeps the network going while the program makes
    /// no calls. Default on.
    pub helper: bool,
    /// Time without a call of the program after which the helper takes over, ns. Default 50,000: a
    /// shorter one would disturb computing loops that do call; with a longer one, peers would take
    /// us for slow.
    pub takeover_ns: u64,
    /// Passes that a wait makes before it yields the core and then sleeps. Default 2,000, about
    /// what a wake-up costs (50 us); 0 where processes outnumber cores.
    pub spin_passes: u32,
    /// Time for which a wait then yields the core between its passes, for each rank on its core,
    /// ns. Default 50,000, about what a sleep costs: on a shared core the other process answers
    /// meanwhile. With 0 here and for `spin_passes`, a wait that finds nothing sleeps at once.
    pub yield_ns: u64,
    /// Other ranks of the job on each core of this host. Default 0, also if unknown.
    pub ranks_beside: u32,
    /// Memory for messages to ports that are not bound yet, bytes. Default 4 MiB.
    pub unexpected_bytes: usize,
    /// Part of `unexpected_bytes` that one sender may take, bytes. Default 1 MiB.
    pub unexpected_share: usize,
    /// Memory for messages that wait for their handler or are reassembled for a port without a
    /// buffer, bytes. Default 64 MiB.
    pub queue_bytes: usize,
    /// Part of `queue_bytes` that one sender may take, bytes. Default 32 MiB: longer messages need
    /// a port with a buffer.
    pub queue_share: usize,
    /// Memory for copies of long outgoing messages, bytes. Default 32 MiB.
    pub copy_bytes: usize,
    /// Memory for replies of handlers that found no credit, bytes. Default 1 MiB. Beyond half of it
    /// no requests are accepted; those held here are handled only while an arriving reply waits for
    /// their memory.
    pub reply_bytes: usize,
    /// On one host, least length of messages that their receiver may copy once, out of the sender's
    /// memory, bytes. Whether it does is found by trial as messages flow. Default 64 KiB.
    pub copy_min: usize,
    /// Matched messages: memory for unexpected ones, and how they are pulled. Rank, size and secret
    /// are set when the endpoint opens.
    pub exchange: portolan_exchange::Config,
    /// Push thresholds of matched messages by shared memory and to ourselves. Default: those of up
    /// to 128 KiB whole; of longer ones, unless the receiver copies them out of the sender's
    /// memory, 1 KiB and 15 KiB.
    pub push_shm: Push,
    /// Push thresholds by the network. Default: those of up to 64 KiB whole, of longer ones 1 KiB
    /// and 15 KiB.
    pub push_net: Push,
    /// Whether others may put to and get from this rank's registered memory. Default true.
    pub one_sided: bool,
    /// Number of registrations of [`crate::Space::register_cached`] that stay after the program has
    /// ended them. Default 128.
    pub regions_cached: usize,
    /// Longest wait of a close for what is in flight, ns. Default 3 s.
    pub close_ns: u64,
    /// Whether there is a network socket at all. Default on.
    pub network: bool,
    /// File that a timeline is written to. Default none: no timeline.
    pub trace: Option<PathBuf>,
    /// Settings of the sockets.
    pub udp: UdpConfig,
    /// Address at which others reach this host, if its socket is bound to none in particular.
    /// Default none: endpoints of this host only, by the loopback.
    pub reached_at: Option<IpAddr>,
    /// Prefix length of the network of the socket's own address, bits; used if there are `further`
    /// ones. Default 0.
    pub prefix: u8,
    /// Own addresses on networks beside that of the first socket or host port, with the lengths of
    /// the networks' prefixes, bits: each gets a socket, and messages to peers that are there too
    /// use all of them. At most 3. Default none.
    pub further: Vec<(IpAddr, u8)>,
    /// Whether peers count only in the lives they were given in, until [`Notice::Back`] names
    /// another; packets of other lives are ignored. Default off: a new life replaces the one
    /// before.
    pub fixed_lives: bool,
    /// Time that the engine takes in place of the host's, ns, for measurements that are to come out
    /// the same each time. Default none. Sleeps go by the host's all the same.
    #[doc(hidden)]
    pub clock: Option<Arc<AtomicU64>>,
    /// Settings of the protocol. `peers`, `packet_max` and `receive_packets` are set when the
    /// endpoint opens, from the job and the socket.
    pub proto: portolan_proto::Config,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            rank: 0,
            id: EndpointId(0),
            life: Life(0),
            secret: None,
            agreement: None,
            suite: SuiteId::Aegis,
            secrets: Secrets::default(),
            host: 0,
            threads: Threads::Single,
            helper: true,
            takeover_ns: 50_000,
            spin_passes: 2_000,
            yield_ns: 50_000,
            ranks_beside: 0,
            unexpected_bytes: 4 << 20,
            unexpected_share: 1 << 20,
            queue_bytes: 64 << 20,
            queue_share: 32 << 20,
            copy_bytes: 32 << 20,
            reply_bytes: 1 << 20,
            copy_min: 64 << 10,
            exchange: portolan_exchange::Config::default(),
            push_shm: PUSH_SHM,
            push_net: Push::default(),
            one_sided: true,
            regions_cached: 128,
            close_ns: 3_000_000_000,
            network: true,
            trace: None,
            udp: UdpConfig::default(),
            reached_at: None,
            prefix: 0,
            further: Vec::new(),
            fixed_lives: false,
            clock: None,
            proto: portolan_proto::Config::default(),
        }
    }
}

/// Keys of a job without a job secret.
#[derive(Clone, Debug)]
pub struct Agreement {
    /// Private key: random, fresh for this life. Id and life follow from its public key
    /// ([`portolan_seal::identity`]).
    pub private: Arc<Hidden<32>>,
    /// Pre-shared key of all members, if any.
    pub mix: Option<Arc<Hidden<32>>>,
}

/// A rank of the job, as the endpoint must know it.
#[derive(Clone, Debug)]
pub struct PeerConfig {
    /// Its address.
    pub address: Address,
    /// Its public key, where keys are agreed on.
    pub public_key: Option<[u8; PUBLIC_KEY_BYTES]>,
    /// Its index on this host, if memory is shared with it.
    pub local_index: Option<u16>,
    /// Its process id on this host, as the launcher or the kernel reports it, to notice its end and
    /// to copy its memory; 0: unknown.
    pub pid: u32,
    /// Congestion control on the way to it.
    pub mode: Mode,
    /// Whether it belongs to another partition, and must not be reached.
    pub barred: bool,
    /// Number of its restarts; 0 in its first life.
    pub restarts: u32,
    /// Number of its last return among all returns in the job, from 1; 0 in its first life.
    pub since: u32,
    /// Why it has this lane, for people to read.
    pub reason: std::borrow::Cow<'static, str>,
}

/// News of other ranks, from the launcher or agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A rank's process has ended without closing its endpoint: how.
    Died(u32, Death),
    /// A rank of this host has declared this one dead: their shared memory makes no sense.
    GivenUp(u32),
    /// A rank's process is stopped, so its silence means nothing now.
    Stopped(u32),
    /// The launcher has heard nothing of the host of these for a while: which of them has this
    /// endpoint heard last ([`Watch::has_heard`])?
    Doubted(Vec<u32>),
    /// A rank has closed its endpoint in good order: all that it sent has
    /// arrived.
    Left(u32),
    /// A rank that had died is back, in a new life.
    Back(Box<Restarted>),
    /// The job is being ended: why.
    Ending(String),
}

/// Source of [`Notice`]s. The engine polls it now and then, and whenever its descriptor is
/// readable.
pub trait Watch: Send {
    /// Descriptor that is readable when there is a notice; `None` when none will come any more.
    fn fd(&self) -> Option<BorrowedFd<'_>>;

    /// Futex word by which others see that this process lives; taken once, and held by the helper
    /// thread.
    fn pulse(&mut self) -> Option<Pulse> {
        None
    }

    /// Returns the next notice. Does not wait.
    fn poll(&mut self) -> Option<Notice>;

    /// Answers [`Notice::Doubted`]: the last packet of `_rank` came `_ago` ago. Does not wait.
    fn has_heard(&mut self, _rank: u32, _ago: Duration) {}

    /// Reports that the endpoint has declared `rank` dead without a notice of its death, in the
    /// life after `restarts` restarts. `starved`: this process got too little of its cores to hear
    /// it. Does not wait.
    fn give_up(&mut self, rank: u32, restarts: u32, why: Death, starved: bool);

    /// Reports that the endpoint was closed in good order.
    fn leave(&mut self);
}
