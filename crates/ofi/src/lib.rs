//! A provider of libfabric, on which MPI libraries that use libfabric run unchanged. The
//! provider opens endpoints outside of a job ([`portolan::Endpoint::open_standalone`]) and
//! translates; matching, rendezvous, credit and one-sided memory are the engine's.
//!
//! | module | holds |
//! | --- | --- |
//! | [`abi`] | libfabric's structures |
//! | `error`, `fid` | errors and the edge to C; objects that programs hold |
//! | `info`, `name` | `fi_getinfo`; names of endpoints |
//! | `fabric`, `domain`, `av`, `ep`, `mr` | the objects of these names |
//! | `attachment`, `lookup` | an enabled endpoint, and the numbers of its peers |
//! | `message`, `rma`, `atomic` | operations of endpoints |
//! | `cq`, `cntr`, `eq`, `bell`, `sets` | completions and events, and what threads sleep on |
//!
//! `docs/mpi.md` says what is supported. The functions in libfabric's tables are not documented
//! one by one: its manual pages do that.

#[doc(hidden)]
pub mod abi;

mod atomic;
mod attachment;
mod av;
mod bell;
mod cntr;
mod cq;
mod domain;
mod ep;
mod eq;
mod error;
mod fabric;
mod fid;
mod info;
mod lookup;
mod message;
mod mr;
mod name;
mod rma;
mod sets;

/// Encodes a version as libfabric does.
const fn version(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}

/// Parses a number in decimal digits.
const fn number(text: &str) -> u32 {
    match u32::from_str_radix(text, 10) {
        Ok(number) => number,
        Err(_) => panic!("no number"),
    }
}
