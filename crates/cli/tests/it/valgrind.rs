//! Programs that use Portolan are clean under valgrind's memcheck, with the
//! suppressions that are installed.

use std::collections::HashMap;

use crate::common::{LIMIT, Said, example, say};

/// What ranks under memcheck say, of which one finding makes the job fail with
/// `code`.
fn checked(link: &str, security: &str, code: &str) -> Said {
    let code = format!("--error-exitcode={code}");
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
        &code,
        suppressions,
        &program,
        "200",
    ];
    let said = say(&words).expect(0);
    assert!(said.out.contains("the sum is right"), "{said:#?}");
    said
}

/// Nothing is lost, written beyond its end, read or sent uninitialised.
fn is_clean(link: &str, security: &str) {
    let said = checked(link, security, "9");
    assert!(!said.err.contains("=="), "{said:#?}");
}

#[test]
fn ranks_are_clean_by_shared_memory() {
    is_clean("shm", "encrypt");
}

/// What memcheck reports, each with the lines about where. Lines of several ranks
/// come mixed.
fn findings(said: &Said) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut last_of: HashMap<&str, usize> = HashMap::new();
    for line in said.err.lines() {
        // Behind the rank and valgrind's own number.
        let Some((rank, text)) = line.split_once("== ") else {
            continue;
        };
        match last_of.get(rank) {
            Some(&at) if text.starts_with(' ') || text.is_empty() => {
                all[at].push_str(&format!("\n{text}"));
            }
            // Which thread the findings that follow are of.
            _ if text.starts_with("Thread ") => drop(last_of.remove(rank)),
            _ => {
                last_of.insert(rank, all.len());
                all.push(text.to_owned());
            }
        }
    }
    all
}

/// Of the tags of encrypted packets memcheck reports what is not so, see
/// `docs/troubleshooting.md`: that they are sent, and compared.
#[test]
fn of_encrypted_packets_nothing_is_said_but_what_is_known() {
    let said = checked("udp", "encrypt", "0");
    for finding in findings(&said) {
        let sent = finding.starts_with("Syscall param send")
            && finding.contains("points to uninitialised byte(s)");
        let compared = finding.starts_with("Conditional jump or move depends on uninitialised")
            && finding.contains("ring::aead");
        assert!(sent || compared, "{finding}");
    }
}

/// Without encryption, so that there is nothing to know.
#[test]
fn ranks_are_clean_by_the_network() {
    is_clean("udp", "none");
}
