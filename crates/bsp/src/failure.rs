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
    #[error("what process {who} sent makes no sense: do all have the same version?")]
    Malformed { who: u32 },
    #[error(
        "this superstep needs {bytes} bytes for what process {who} asks, and there is not so much \
         memory: do it in several supersteps"
    )]
    NoMemory { who: u32, bytes: u64 },
    #[error("process {who} is gone: {why}")]
    Died { who: u32, why: String },
    #[error("writing the profile {file}: {error}")]
    Profile { file: String, error: String },
    #[error("{0}")]
    Endpoint(String),
}

impl Failure {
    /// Whether all processes find it out.
    pub const fn is_known_to_all(&self) -> bool {
        matches!(
            self,
            Self::Ended { .. } | Self::Differ { .. } | Self::Popped { .. }
        )
    }
}
