//! All interfaces for C in one library. Two Rust libraries in one program would be two
//! engines, of which a process can have one; so `libportolan.a` and `libportolan.so.0` are
//! made of this crate, and each interface has a version node of its own in the latter
//! (`portolan.map`). `docs/architecture.md` says how a new interface comes in.

pub use {atoll, bsp, portolan};
