//! Compiles the BPF programs: those of the lab, and the steering of
//! packets.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    let compiler = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    compile(&compiler, "line");
    compile(&compiler, "impair");
    compile(&compiler, "steer");
    compile(&compiler, "wire");
}

fn compile(compiler: &str, name: &str) {
    let source = &format!("bpf/{name}.bpf.c");
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    let object = folder.join(format!("{name}.bpf.o"));
    // v3 has the atomic operations that the program uses (kernel 5.12).
    let status = Command::new(compiler)
        .args([
            "-O2", "-g", "-Wall", "-Werror", "-target", "bpf", "-mcpu=v3", "-c", source, "-o",
        ])
        .arg(&object)
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{compiler} could not compile {source} ({status}); see above"),
        Err(error) => panic!(
            "{compiler} is needed to compile {source} and could not be run ({error}): \
             install clang (Debian: apt install clang), or name it in the variable CLANG"
        ),
    }
}
