//! What peers of an exchange say, and what its program does; the property is
//! in `crates/properties`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| portolan_properties::exchange_input(bytes));
