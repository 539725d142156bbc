//! Programs that use Portolan are clean under valgrind's memcheck, with the
//! suppressions that are installed.

mod common;

use common::{LIMIT, example, say};

/// Nothing is lost, written beyond its end, read or sent uninitialised.
fn is_clean(link: &str, security: &str) {
    let suppressions = concat!(
        "--suppressions=",
        env!("CARGO_MANIFEST_DIR"),
        "/../../etc/valgrind.supp"
    );
    let program = example("ring");
    let words = [
        "run",
        "-n",
        "3",
        "--timeout",
        LIMIT,
        "--link",
        link,
        "--security",
        security,
        "--",
        "valgrind",
        "--quiet",
        "--leak-check=full",
        "--error-exitcode=9",
        suppressions,
        &program,
        "200",
    ];
    let said = say(&words).expect(0);
    assert!(said.out.contains("the sum is right"), "{said:#?}");
    assert!(!said.err.contains("=="), "{said:#?}");
}

#[test]
fn ranks_are_clean_by_shared_memory() {
    is_clean("shm", "encrypt");
}

/// Without encryption: of its tags memcheck says what is not so, see
/// `docs/troubleshooting.md`.
#[test]
fn ranks_are_clean_by_the_network() {
    is_clean("udp", "none");
}
