//! Tests of `portolan-proto`: a program for all of them, which is linked once.

mod clauses;
mod closed_port;
mod closing;
mod common;
mod crowd;
mod cuts;
mod handed_out;
mod limits;
mod losses;
mod pair;
mod paths;
mod peers;
mod quick;
mod receiver_not_ready;
mod rekey;
mod returned;
mod script;
mod silence;
mod sizes;
mod stops;
