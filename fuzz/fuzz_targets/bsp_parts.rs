//! Heads, logs and parts of other processes of BSPlib; the property is in `crates/bsp`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| portolan_properties::bsp_parts(bytes));
