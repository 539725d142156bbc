//! Why a superstep cannot end. The program ends then: BSPlib has no errors that a program
//! could handle.

use crate::areas::Outside;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    #[error("process {who} has called bsp_end and process {other} has not")]
    Ended { who: u32, other: u32 },
    #[error(
        "all processes must have the same {what}: process {who} has {theirs}, process {other} has \
         {its}"
    )]
    Differ {
        what: &'static str,
        who: u32,
        theirs: u64,
        other: u32,
        its: u64,
    },
    #[error("process {who} has popped other areas than process {other}")]
    Popped { who: u32, other: u32 },
    #[error(
        "it has popped NULL, and has not registered NULL in what process {other} has popped by \
         the same call"
    )]
    PoppedNull { other: u32 },
    #[error(
        "process {who} {verb} {bytes} bytes at offset {offset} of an area of process {whose}: {why}"
    )]
    Outside {
        who: u32,
        /// "puts" or "gets".
        verb: &'static str,
        offset: u64,
        bytes: u64,
        whose: u32,
        why: Outside,
    },
    #[error("{bytes} bytes at offset {offset} of an area of process {whose}: {why}")]
    OutsideThere {
        offset: u64,
        bytes: u64,
        whose: u32,
        why: Outside,
    },
    #[error(
        "{} of process {} and {} of process {} overlap in memory of process {whose}, in {bytes} \
         bytes: which of them is done first is open", both[0].0, both[0].1, both[1].0, both[1].1
    )]
    Overlap {
        /// Names of the calls, and their processes.
        both: [(&'static str, u32); 2],
        whose: u32,
        bytes: usize,
    },
    #[error(
        "the {bytes} bytes that bsp_hpput sends to process {to} have changed since it was called"
    )]
    Changed { bytes: usize, to: u32 },
    #[error("what process {who} sent makes no sense: do all have the same version?")]
    Malformed { who: u32 },
    #[error(
        "this superstep needs {bytes} bytes for what process {who} asks, and there is not so much \
         memory: do it in several supersteps"
    )]
    NoMemory { who: u32, bytes: u64 },
    #[error("memory that is sent to process {to} cannot be read: Bad address")]
    Unreadable { to: u32 },
    #[error("process {who} is gone: {why}")]
    Died { who: u32, why: String },
    #[error("writing the profile {file}: {error}")]
    Profile { file: String, error: String },
    #[error("{0}")]
    Endpoint(String),
}

impl Failure {
    /// Whether all processes find the failure.
    pub const fn is_known_to_all(&self) -> bool {
        matches!(
            self,
            Self::Ended { .. } | Self::Differ { .. } | Self::Popped { .. }
        )
    }
}
