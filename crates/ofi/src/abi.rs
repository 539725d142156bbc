//! libfabric's structures, as of release 2.6: each release only appends to them. A program's
//! structures may be shorter, so only fields that release 1.17 has are read of them
//! (`crates/ofi/tests/it/layout.rs` compares with the installed headers). libfabric's manual pages
//! say what each field means.
#![allow(missing_docs)]

/// Structures with the layout of C.
macro_rules! structures {
    ($($(#[$about:meta])* struct $name:ident { $($field:ident: $type:ty),* $(,)? })+) => {$(
        $(#[$about])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub struct $name { $(pub $field: $type),* }
    )+};
}

pub mod domain;
pub mod endpoint;
pub mod fabric;
pub mod queues;

pub use domain::*;
pub use endpoint::*;
pub use fabric::*;
pub use queues::*;

/// `-errno`, or a count.
pub type Ssize = isize;
/// `fi_addr_t`.
pub type Addr = u64;

/// A declared function that is not implemented here: its arguments do not matter.
pub type Unused = unsafe extern "C" fn() -> std::ffi::c_int;
