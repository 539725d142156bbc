//! What other processes and the server say by PMI; the property is in `crates/properties`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = portolan_properties::pmi_values(bytes);
});
