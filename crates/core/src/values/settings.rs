//! Settings of the engine.

use portolan_exchange::Push;

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
    /// Fresh random bits for this incarnation.
    pub life: u64,
    /// Fresh random bits for what others are not to guess.
    pub seed: u64,
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
