//! What the fuzz targets check of what launchers, agents, ranks and the node
//! service are told.

pub use crate::guest::values_travel as pmi_values;

use crate::message::{decode_from_launcher, decode_from_rank, decode_membership};
use crate::node::{Answer, Question};

/// Bytes on the stream between launcher and agent, and in messages between
/// launcher and rank.
pub fn agent_frames(bytes: &[u8]) {
    let Some((piece, bytes)) = bytes.split_first() else {
        return;
    };
    crate::launch::frames_travel(bytes, usize::from(*piece) + 1);
    let _ = decode_from_rank(bytes);
    let _ = decode_from_launcher(bytes);
    let _ = decode_membership(bytes);
}

/// Bytes as a question to the node service, and as its answer.
pub fn node_questions(bytes: &[u8]) {
    if let Some(question) = Question::decode(bytes) {
        assert_eq!(question.encode(), bytes);
    }
    let _ = Answer::decode(bytes);
}
