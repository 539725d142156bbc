//! What an endpoint is opened with, and why it cannot be.

mod error;
mod threads;

use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use portolan_core::{Death, Restarted, Secrets};
use portolan_exchange::Push;
use portolan_link::udp::UdpConfig;
use portolan_proto::congestion::Mode;
use portolan_seal::{PUBLIC_KEY_BYTES, SuiteId};
use portolan_sys::lives::Pulse;
use portolan_sys::memory::Hidden;
use portolan_wire::{Address, EndpointId, Life};

pub use self::error::OpenError;
pub use self::threads::Threads;

/// By shared memory pushing costs no packets, only a copy on either core, at once.
const PUSH_SHM: Push = Push {
    whole: 128 << 10,
    ..Push::DEFAULT
};

/// Settings, fixed while the endpoint lives.
#[derive(Clone, Debug)]
pub struct Config {
    /// This process's rank. Default 0.
    pub rank: u32,
    /// Unique among those that share the secret. Default 0.
    pub id: EndpointId,
    /// Fresh random bits for this incarnation. Default 0, which only a test
    /// may use.
    pub life: Life,
    /// What all members of the job share. Default none, which stands for zeros,
    /// likewise.
    pub secret: Option<Arc<Hidden<32>>>,
    /// How keys are agreed on with peers that have a public key; `secret` must
    /// then be nobody else's. Default none.
    pub agreement: Option<Agreement>,
    /// Cipher suite of the network lanes. Default AES-128-GCM.
    pub suite: SuiteId,
    /// What nobody else may guess, fresh from the kernel for this life. Default zeros,
    /// likewise.
    pub secrets: Secrets,
    /// Names the host: equal for endpoints of one kernel and network
    /// namespace. Default 0, none.
    pub host: u64,
    /// Which threads may call. Default [`Threads::Single`].
    pub threads: Threads,
    /// Whether a helper thread keeps the network going while the program makes
    /// no calls. Default on.
    pub helper: bool,
    /// The helper takes over when the program has made no call for this long,
    /// ns. Default 50,000: shorter, it would disturb computing loops that do
    /// call; longer, peers would take us for slow.
    pub takeover_ns: u64,
    /// Passes that a wait makes before it yields the core and then sleeps.
    /// Default 2,000, about what a wake-up costs (50 us); 0 where more
    /// processes run than there are cores.
    pub spin_passes: u32,
    /// How long it then lets other processes run between its passes, for each rank on its core,
    /// ns. Default 50,000, about what a sleep costs: where processes share a core, the other one
    /// answers meanwhile. With 0 for both a wait that finds nothing sleeps at once.
    pub yield_ns: u64,
    /// Other ranks of the job on each core of this host. Default 0, also where that is unknown.
    pub ranks_beside: u32,
    /// Memory for messages to ports that are not bound yet, bytes. Default 4 MiB.
    pub unexpected_bytes: usize,
    /// What one sender may take of it, bytes. Default 1 MiB.
    pub unexpected_share: usize,
    /// Memory for messages that wait for their handler or are put together for
    /// a port without a buffer, bytes. Default 64 MiB.
    pub queue_bytes: usize,
    /// What one sender may take of it, bytes. Default 32 MiB: longer messages
    /// need a port with a buffer.
    pub queue_share: usize,
    /// Memory for copies of long messages on their way out, bytes. Default 32 MiB.
    pub copy_bytes: usize,
    /// Memory for answers of handlers that found no credit, bytes. Default 1 MiB.
    /// Beyond half of it no requests are taken; those that are here go on only while
    /// another's answer waits for their memory.
    pub reply_bytes: usize,
    /// On one host, messages from this length on may be copied once by their
    /// receiver, out of the sender's memory, bytes: whether they are is tried out
    /// as they go. Default 64 KiB.
    pub copy_min: usize,
    /// Matched messages: memory for those that no receive has met, and how they
    /// are pulled. Rank, size and secret are set when the endpoint opens.
    pub exchange: portolan_exchange::Config,
    /// How matched messages are pushed by shared memory and to ourselves.
    /// Default: those of up to 128 KiB whole; of longer ones, unless the receiver
    /// copies them out of the sender's memory, 1 KiB and 15 KiB.
    pub push_shm: Push,
    /// How they are pushed by the network. Default: those of up to 64 KiB
    /// whole, of longer ones 1 KiB and 15 KiB.
    pub push_net: Push,
    /// Others may put to this rank's memory and get from it, where it is
    /// registered. Default true.
    pub one_sided: bool,
    /// Registrations of [`crate::Space::register_cached`] that stay when the program
    /// has ended them. Default 128.
    pub regions_cached: usize,
    /// Closing waits that long for what is under way, ns. Default 3 s.
    pub close_ns: u64,
    /// Whether there is a network socket at all. Default on.
    pub network: bool,
    /// The file that a timeline is written to; none: no timeline. Default
    /// none.
    pub trace: Option<PathBuf>,
    /// The socket.
    pub udp: UdpConfig,
    /// Where others reach this host, if its socket is bound to no address of
    /// its own. Default none: endpoints of this host only, by the loopback.
    pub reached_at: Option<IpAddr>,
    /// Bits of the socket's own address that name its network; counts where there are
    /// `further` ones. Default none.
    pub prefix: u8,
    /// Own addresses on networks beside that of the first socket or host port,
    /// with the lengths of the networks' prefixes, bits: each gets a socket,
    /// and messages go by all of them to peers that are there too. 3 at most.
    /// Default none.
    pub further: Vec<(IpAddr, u8)>,
    /// Peers are in the lives that they are given in, until
    /// [`Notice::Back`] says otherwise; another that speaks up is not listened
    /// to. Default off: it replaces the one before.
    pub fixed_lives: bool,
    /// The protocol. `peers`, `packet_max` and `receive_packets` are set when
    /// the endpoint opens, from the job and the socket.
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
            suite: SuiteId::AesGcm,
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
            proto: portolan_proto::Config::default(),
        }
    }
}

/// Keys of a job that no secret joins.
#[derive(Clone, Debug)]
pub struct Agreement {
    /// Random, fresh for this life. Id and life follow from its public key
    /// ([`portolan_seal::identity`]).
    pub private: Arc<Hidden<32>>,
    /// What all members of the job have besides.
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
    /// Its process on this host, as the launcher or the kernel names it, to see it end and to
    /// copy its memory; 0 for unknown.
    pub pid: u32,
    /// How to share the network on the way to it.
    pub mode: Mode,
    /// It must not be reached: another partition's.
    pub barred: bool,
    /// How often it was started again, and which return in the job its last
    /// was, from 1; zeros for the first life.
    pub restarts: u32,
    /// See there.
    pub since: u32,
    /// Why it is reached the way it is, for people to read.
    pub reason: std::borrow::Cow<'static, str>,
}

/// What whoever started the process knows of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A rank's process has ended without closing its endpoint: how.
    Died(u32, Death),
    /// A rank of this host has given this one up: the memory that they share
    /// makes no sense.
    GivenUp(u32),
    /// A rank's process is stopped, so its silence means nothing now.
    Stopped(u32),
    /// Whoever tells has heard nothing of the host of these for a while: of
    /// which has this endpoint heard ([`Watch::has_heard`])?
    Doubted(Vec<u32>),
    /// A rank has closed its endpoint in good order: all that it sent has
    /// arrived.
    Left(u32),
    /// A rank that had died is back, in a new life.
    Back(Box<Restarted>),
    /// The job is being ended: why.
    Ending(String),
}

/// Brings such notices. The engine asks now and then, and whenever the
/// descriptor is readable.
pub trait Watch: Send {
    /// Readable when there is a notice; `None` when none will come any more.
    fn fd(&self) -> Option<BorrowedFd<'_>>;

    /// The word that says whether this process lives; taken once, and held
    /// by the helper thread.
    fn pulse(&mut self) -> Option<Pulse> {
        None
    }

    /// The next notice. Does not wait.
    fn poll(&mut self) -> Option<Notice>;

    /// The last packet of a rank came so long ago. Does not wait.
    fn has_heard(&mut self, _rank: u32, _ago: Duration) {}

    /// The endpoint has given a rank up that nobody had said was dead, in the
    /// life after so many restarts. `starved`: this process got too little of its cores to hear
    /// it. Does not wait.
    fn give_up(&mut self, rank: u32, restarts: u32, why: Death, starved: bool);

    /// The endpoint was closed in good order.
    fn leave(&mut self);
}
