//! Compiles the one function that takes any arguments, which stable Rust cannot define.

fn main() {
    println!("cargo::rerun-if-changed=src/abort.c");
    let mut build = cc::Build::new();
    build
        .file("src/abort.c")
        .std("c99")
        .warnings_into_errors(true);
    build.compile("portolan_bsp_abort");
}
