//! From what was measured to rows, claims and a table.

pub mod cost;
pub mod dimensions;
pub mod figure;
pub mod machine;
pub mod stats;
pub mod summary;
pub mod table;
