//! From what was measured to rows, claims and a table.

pub mod bsp_cache;
pub mod cost;
pub mod dimensions;
pub mod figure;
pub mod machine;
pub mod stats;
pub mod summary;
pub mod table;
