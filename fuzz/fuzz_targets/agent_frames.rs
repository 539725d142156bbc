//! What agents and launchers say to each other; the property is in `crates/properties`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = portolan_properties::agent_frames(bytes);
});
