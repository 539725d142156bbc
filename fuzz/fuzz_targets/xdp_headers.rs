//! Headers of packets that come past the kernel; the property is in `crates/properties`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = portolan_properties::xdp_headers(bytes);
});
