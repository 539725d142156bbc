//! Questions to the node service, and its answers; the property is in `crates/properties`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = portolan_properties::node_questions(bytes);
});
