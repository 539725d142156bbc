//! Checks for the fuzz targets: what launchers, agents, ranks and the node service receive.

pub use crate::guest::values_travel as pmi_values;

use crate::codec::decode;
use crate::message::{ToLauncher, ToRank, decode_membership};
use crate::node::{Answer, Question};

/// Reads bytes as a stream between launcher and agent, and as messages between
/// launcher and rank. Returns whether they were understood.
pub fn agent_frames(bytes: &[u8]) -> bool {
    let Some((piece, bytes)) = bytes.split_first() else {
        return false;
    };
    [
        crate::launch::frames_travel(bytes, usize::from(*piece) + 1),
        decode::<ToLauncher>(bytes).is_some(),
        decode::<ToRank>(bytes).is_some(),
        decode_membership(bytes).is_some(),
    ]
    .contains(&true)
}

/// Reads bytes as a question to the node service, and as its answer. Returns
/// whether they were understood.
pub fn node_questions(bytes: &[u8]) -> bool {
    let question = Question::decode(bytes);
    if let Some(question) = &question {
        assert_eq!(question.encode(), bytes);
    }
    question.is_some() || Answer::decode(bytes).is_some()
}
