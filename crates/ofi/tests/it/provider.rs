//! The provider as libfabric loads it: C programs in `tests/c`, and one that runs over an MPI.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// What a command prints; it must succeed.
fn succeeds(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn crate_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn temporary() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// The static library that was built along with this test.
fn archive() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let built = |path: &PathBuf| fs::metadata(path).unwrap().modified().unwrap();
    fs::read_dir(exe.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.starts_with("libportolan_fi-") && name.ends_with(".a")
        })
        .max_by_key(built)
        .expect("cargo builds the static library with the crate")
}

/// The folder that the provider is in, linked once.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = temporary().join("provider");
    fs::create_dir_all(&folder).unwrap();
    let mut make = Command::new("make");
    succeeds(
        make.arg("-C")
            .arg(crate_dir())
            .arg(format!("ARCHIVE={}", archive().display()))
            .arg(format!("LIBRARY={}/libportolan-fi.so", folder.display())),
    );
    folder
});

/// A command that finds the provider.
fn with_provider(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command
        .env("FI_PROVIDER_PATH", &*FOLDER)
        // On a busy machine a close may take long.
        .env("PORTOLAN_CLOSE_MS", "60000");
    command
}

/// Builds `tests/c/NAME.c`, with every warning an error.
fn build(name: &str) -> PathBuf {
    let program = temporary().join(name);
    succeeds(
        Command::new("cc")
            .args(["-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"])
            .arg(crate_dir().join(format!("tests/c/{name}.c")))
            .arg("-o")
            .arg(&program)
            .args(["-lfabric", "-lpthread"]),
    );
    program
}

/// Over shared memory and over the network.
fn runs(name: &str) {
    runs_with(name, []);
}

/// The same, with these settings.
fn runs_with<const N: usize>(name: &str, settings: [(&str, &str); N]) {
    let program = build(name);
    for link in ["auto", "udp"] {
        let mut command = with_provider(&program);
        command.envs(settings).env("PORTOLAN_LINK", link);
        let said = succeeds(&mut command);
        assert_eq!(said, format!("{name}: all is well\n"));
    }
}

#[test]
fn messages() {
    runs("messages");
}

#[test]
fn one_sided_memory() {
    runs("memory");
}

#[test]
fn completions_and_counters() {
    runs("waiting");
}

/// A put is seen by who only looks at memory, long before the helper thread would take over.
#[test]
fn puts_to_programs_that_call_nothing() {
    runs_with("spin", [("PORTOLAN_TAKEOVER_US", "200000")]);
}

#[test]
fn counters_of_what_others_do() {
    runs("events");
}

#[test]
fn threads_that_wait_together() {
    runs("waiters");
}

/// Whoever was removed goes on, also where strangers are refused.
#[test]
fn removed_peers() {
    runs("removal");
    runs_with("removal", [("PORTOLAN_UNKNOWN_PEERS", "refuse")]);
}

/// Who was never inserted reaches no memory, unless the setting lifts that.
#[test]
fn memory_is_for_peers_that_were_inserted() {
    runs("strangers");
    runs_with("strangers", [("PORTOLAN_REGION_PEERS", "any")]);
}

#[test]
fn what_other_programs_than_mpis_ask_for() {
    runs("late");
}

#[test]
fn names_and_descriptors_of_endpoints() {
    runs("names");
}

#[test]
fn what_is_refused() {
    runs("misuse");
}

#[test]
fn what_a_closing_endpoint_has_accepted() {
    runs("closing");
}

#[test]
fn libfabric_lists_it() {
    let said = succeeds(with_provider("fi_info").args(["-p", "portolan"]));
    assert!(said.contains("provider: portolan"), "{said}");
    assert!(said.contains("type: FI_EP_RDM"), "{said}");
}

/// Programs that link with `libportolan.so` keep an engine of their own.
#[test]
fn it_exports_one_function() {
    let library = FOLDER.join("libportolan-fi.so");
    let said = succeeds(
        Command::new("nm")
            .args(["-D", "--defined-only"])
            .arg(library),
    );
    let names: Vec<_> = said.lines().filter_map(|it| it.split(' ').nth(2)).collect();
    assert_eq!(names, ["fi_prov_ini"]);
}

/// Debian's Open MPI, which uses libfabric for matched messages.
#[test]
fn an_mpi_program() {
    let program = crate_dir().join("tests/mpi.py");
    for (ranks, link) in [("1", "auto"), ("4", "auto"), ("3", "udp")] {
        let mut command = with_provider("mpirun");
        command
            .args(["--allow-run-as-root", "--oversubscribe", "-n", ranks])
            .args(["--mca", "pml", "cm", "--mca", "mtl", "ofi"])
            .args(["--mca", "mtl_ofi_provider_include", "portolan"])
            // One-sided communication by the provider's, for mpi4py asks for all threads.
            .args(["--mca", "osc", "^ucx", "--mca", "btl", "^uct,openib"])
            // Python of Debian, which has mpi4py.
            .arg("/usr/bin/python3")
            .args([program.as_os_str(), "one-sided".as_ref()])
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("FI_PROVIDER", "portolan")
            .env("PORTOLAN_LINK", link);
        let said = succeeds(&mut command);
        assert_eq!(said, format!("{ranks} ranks: all is well\n"));
    }
}
