//! State of an exchange: operations, messages, pending tasks, credit, regions, the schedule of
//! pulls.

mod credit;
mod lanes;
mod late;
mod messages;
mod ops;
mod outbox;
mod pulls;
mod regions;
mod remote;
mod served;
mod slab;
mod words;

pub(crate) use self::credit::{IncastDetector, Peer, Peers, Room};
pub(crate) use self::lanes::Lanes;
pub(crate) use self::late::{LATE_SHARE, Late};
pub(crate) use self::messages::{Dest, Message, Origin, Part};
pub(crate) use self::ops::{
    Body, LEAST, Many, Meeting, Op, Ops, Posted, Receive, ReceiveStage, Send, SendStage,
};
pub(crate) use self::outbox::{Lines, Outbox, Waiting};
pub(crate) use self::pulls::Pulls;
pub(crate) use self::regions::{Region, RegionMemory, Regions, Spot};
pub(crate) use self::remote::{Remote, RemoteStage, RmaOp, TargetState, of_status, to_status};
pub(crate) use self::served::{Arriving, Served, Told};
pub(crate) use self::slab::Slab;
pub(crate) use self::words::Words;
