//! What the fuzz targets check. `fuzz/` runs these functions under libFuzzer
//! with nightly Rust, `tests/corpus.rs` over the corpora with the stable one.
#![forbid(unsafe_code)]

mod exchange_input;
mod formats;
mod input;
mod matching;
mod open_seal;
mod proto_input;
mod queue_input;
mod record;

pub use bsp::properties::{bsp_head, bsp_parts};
pub use exchange_input::exchange_input;
pub use formats::xdp_headers;
pub use matching::{MatchStep, matching, matching_steps};
pub use portolan_boot::properties::{agent_frames, node_questions, pmi_values};
pub use proto_input::{peers_input, proto_input};
pub use queue_input::queue_input;
