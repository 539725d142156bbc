//! The deterministic network and the cluster simulator.
//!
//! A run is named by a seed and replays exactly: virtual time, random numbers
//! of our own, no map whose order depends on the process.
//!
//! [`net`] moves packets, [`fate`] writes down what became of them, `link`
//! puts a link's face on it. [`scenario`] says what a seed stands for,
//! [`cluster`] runs it over protocol endpoints ([`node`], [`memory`],
//! [`suite`]), [`ledger`] checks what applications may rely on, and [`run`]
//! goes through many seeds. [`stage`] is of the shipped engine in a job, and of
//! supersteps of BSPlib over it; [`meeting`] is of endpoints outside of a job. [`search`]
//! tries every order of events of a small case, and [`goodput`] shows what congestion
//! control makes of a link.
#![forbid(unsafe_code)]

pub mod cluster;
pub mod content;
pub mod fate;
pub mod goodput;
pub mod ledger;
pub mod link;
pub mod meeting;
pub mod memory;
pub mod net;
pub mod node;
mod pipe;
pub mod rng;
pub mod run;
pub mod scenario;
pub mod search;
pub mod stage;
pub mod steer;
pub mod suite;
pub mod tcp;
pub mod trace;
