//! What the driver supplies to the engine: a clock, the networks' links, a timeline.

mod clock;
mod network;
mod tracer;

pub use self::clock::Clock;
#[cfg(test)]
pub use self::clock::CountingClock;
pub use self::network::Network;
pub use self::tracer::Tracer;
