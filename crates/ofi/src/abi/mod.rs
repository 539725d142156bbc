//! libfabric's structures, as release 2.6 has them: each release only appends to them. What a
//! program passes may be shorter, so of that no field is read that release 1.17 does not have
//! (`crates/ofi/tests/layout.rs` compares them with the installed headers). Its manual pages
//! say what each field means.
#![allow(missing_docs)]

/// Structures as C has them.
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

/// A function that libfabric declares and nobody may call here: its arguments do not matter.
pub type Unused = unsafe extern "C" fn() -> std::ffi::c_int;
