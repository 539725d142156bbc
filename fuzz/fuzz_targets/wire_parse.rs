//! Arbitrary bytes as every format of the wire: nothing panics, and what
//! parses is written back as the same bytes.
#![no_main]

#[path = "../../crates/wire/tests/it/common/reencode.rs"]
mod reencode;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = reencode::all(bytes);
});
