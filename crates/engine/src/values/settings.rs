//! Settings of the engine.

use portolan_exchange::Push;

/// Secret random bits. Each field is drawn on its own, for one use: what others see of one use
/// reveals nothing of another.
#[derive(Clone, Copy, Default)]
pub struct Secrets {
    /// Source of the handshake's nonces and of connection numbers.
    pub protocol: [u8; 32],
    /// Key of the hash over tags, which peers choose.
    pub tags: [u64; 2],
    /// Source of the keys and salts of regions.
    pub regions: [u8; 32],
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secrets(..)")
    }
}

/// Settings, fixed while the engine lives. The endpoint's own configuration documents their
/// meaning and suitable values.
#[derive(Clone, Debug)]
pub struct Settings {
    /// This process's rank.
    pub rank: u32,
    /// Number of ranks.
    pub size: u32,
    /// Outside of a job: peers come and go.
    pub standalone: bool,
    /// Secret random bits.
    pub secrets: Secrets,
    /// Memory for messages to ports that are not bound yet, bytes.
    pub unexpected_bytes: usize,
    /// Share of `unexpected_bytes` that one sender may take, bytes.
    pub unexpected_share: usize,
    /// Memory for messages that wait for their handler, bytes.
    pub queue_bytes: usize,
    /// Share of `queue_bytes` that one sender may take, bytes.
    pub queue_share: usize,
    /// Memory for copies of long messages on their way out, bytes.
    pub copy_bytes: usize,
    /// Memory for replies of handlers that found no credit, bytes.
    pub reply_bytes: usize,
    /// Configuration of matched messages. Rank, size and secrets are set from the above.
    pub exchange: portolan_exchange::Config,
    /// How matched messages are pushed through shared memory and to this rank itself.
    pub push_shm: Push,
    /// How matched messages are pushed by the network.
    pub push_net: Push,
    /// Maximum number of registrations that stay cached after the program has ended them.
    pub regions_cached: usize,
    /// Prints a diagnostic that is reported nowhere else.
    pub tell: fn(std::fmt::Arguments<'_>),
}
