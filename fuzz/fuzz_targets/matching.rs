//! Calls of the matcher; the property is in `crates/properties`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| portolan_properties::matching(bytes));
