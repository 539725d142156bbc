//! Settings of the engine.

use portolan_exchange::Push;

/// Random bits that nobody else may guess. Each is a draw of its own, for one use: what others
/// see of one use tells them nothing of another.
#[derive(Clone, Copy, Default)]
pub struct Secrets {
    /// Nonces of the handshake and connection numbers come from it.
    pub protocol: [u8; 32],
    /// Keys the hash of the tags that peers choose.
    pub tags: [u64; 2],
    /// Keys and salts of regions come from it.
    pub regions: [u8; 32],
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secrets(..)")
    }
}

/// Settings, fixed while the engine lives. What each means, and what suits, stands with
/// the endpoint's own configuration.
#[derive(Clone, Debug)]
pub struct Settings {
    /// This process's rank.
    pub rank: u32,
    /// How many ranks there are.
    pub size: u32,
    /// There is no job: peers come and go.
    pub standalone: bool,
    /// What nobody else may guess.
    pub secrets: Secrets,
    /// Memory for messages to ports that are not bound yet, bytes.
    pub unexpected_bytes: usize,
    /// What one sender may take of it, bytes.
    pub unexpected_share: usize,
    /// Memory for messages that wait for their handler, bytes.
    pub queue_bytes: usize,
    /// What one sender may take of it, bytes.
    pub queue_share: usize,
    /// Memory for copies of long messages on their way out, bytes.
    pub copy_bytes: usize,
    /// Memory for answers of handlers that found no credit, bytes.
    pub reply_bytes: usize,
    /// Matched messages. Rank, size and secret are set from the above.
    pub exchange: portolan_exchange::Config,
    /// How matched messages are pushed by shared memory and to ourselves.
    pub push_shm: Push,
    /// How they are pushed by the network.
    pub push_net: Push,
    /// Registrations that stay when the program has ended them.
    pub regions_cached: usize,
    /// Tells people what they would not hear otherwise.
    pub tell: fn(std::fmt::Arguments<'_>),
}
