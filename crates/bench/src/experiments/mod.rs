//! The benches, each with what it was asked for; and what some have in common.

pub mod barrier;
pub mod bsp;
pub mod connect;
pub mod contest;
pub mod death;
pub mod early_late;
pub mod external_mpi;
pub mod fairness;
pub mod forged;
pub mod idle;
pub mod incast;
pub mod lanes;
pub mod logp;
pub mod matching;
pub mod memory;
pub mod networks;
pub mod outage;
pub mod overlap;
pub mod paired;
pub mod pushpull;
pub mod ring;
pub mod rma;
pub mod spray;
pub mod stalled;
pub mod start;
pub mod threads;
