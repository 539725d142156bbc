//! The protocol's packet input where peers come and go, behind the null seal; the property is in
//! `crates/properties`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| portolan_properties::peers_input(bytes));
