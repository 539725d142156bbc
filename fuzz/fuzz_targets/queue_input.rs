//! The rings of a queue; the property is in `crates/properties`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| portolan_properties::queue_input(bytes));
