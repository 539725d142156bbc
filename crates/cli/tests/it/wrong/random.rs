//! Random ones.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::*;

/// Numbers below a limit that look random, the same in each run.
fn random() -> impl FnMut(usize) -> usize {
    let mut seed = 1_u32;
    move |limit| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 8) as usize % limit
    }
}

/// Random calls that cannot be right, as there is a word that nothing knows.
#[test]
fn random_calls_with_an_unknown_word_are_refused() {
    let files = Files::new("random");
    let commands = [
        "run",
        "lab",
        "lab up",
        "lab exec",
        "lab down",
        "lab status",
        "bench",
        "bench latency",
        "bench incast",
        "doctor",
        "tune",
        "node",
        "report",
        "top",
        "job",
        "man",
        "completions",
    ];
    let values: [&[u8]; 12] = [
        b"-n",
        b"2",
        b"--hosts",
        b"a:2,b",
        b"--link",
        b"\xff\xfe",
        b"",
        b"--",
        b"=",
        b"--set=a=b",
        b"\x1b[2J",
        b"a\nb",
    ];
    let variables = [
        ("PORTOLAN_LOG", "nonsense=x/y/z"),
        ("PORTOLAN_NOSUCH", "1"),
        ("PORTOLAN_DISABLE", "everything"),
        ("PORTOLAN_CONFIG", "/dev/null/x"),
    ];
    let mut below = random();
    for round in 0..400 {
        let line = format!("portolan {} --zzyzx", commands[below(commands.len())]);
        let mut command = bounded(&line, &files);
        for _ in 0..below(6) {
            command.arg(OsStr::from_bytes(values[below(values.len())]));
        }
        let (name, value) = variables[below(variables.len())];
        command.env(name, value);
        command.stdout(match round % 4 {
            0 => without_reader(false),
            1 => without_reader(true),
            _ => Stdio::piped(),
        });
        let said = command.stderr(Stdio::piped()).spawn().unwrap();
        let said = Said::from(said.wait_with_output().unwrap());
        assert!(is_good(&said), "{line}: {said:#?}");
        assert_eq!(said.code, 2, "{line}: {said:#?}");
        assert!(said.err.lines().count() == 1, "{line}: {said:#?}");
        assert!(said.err.contains("--help"), "{line}: {said:#?}");
    }
}

/// Calls whose options are right, each with one random value among good ones that
/// is wrong.
#[test]
fn random_wrong_values_are_refused_in_a_sentence() {
    let files = Files::new("values");
    // `%` is the value, which is wrong in each place, as there is a `!` in it.
    let lines = [
        "run --hosts % -- true",
        "run --hosts a,%,b -- true",
        "run --hostfile @/% -- true",
        "run -n 2 --interface 10.0.0.0/% -- true",
        "run -n 2 --interface eth0,%, -- true",
        "run -n 2 --set frames=% -- true",
        "run -n 2 --set % -- true",
        "run -n 2 --set helper=% -- true",
        "run --hosts a,b --partition % -- true",
        "run --hosts a --exclude % -- true",
        "run -n 2 -- @/%",
        "run -n 2 -- true : -n % true",
        "lab up x% --rate 1",
        "lab up t --rate 1mbit --buffer %",
        "node --check --config @/%",
        "report @/%",
        "top %",
        "job % exclude h0",
        "bench latency --slices 2 --json /no/%/x",
        "tune --json /no/%/x",
    ];
    let parts: [&[u8]; 14] = [
        b"99",
        b"-",
        b"4097",
        b"/",
        b",",
        b"[",
        b":",
        b"=",
        b"\xff\xfe",
        b"\x1b[2J",
        b"\n",
        b"q",
        "\u{202e}".as_bytes(),
        b"1e9",
    ];
    let mut below = random();
    for round in 0..300 {
        let mut value = b"zq!".to_vec();
        for _ in 0..=below(4) {
            value.extend(parts[below(parts.len())]);
        }
        let line = lines[round % lines.len()];
        let mut command = bounded("portolan", &files);
        for word in words(line, &files) {
            let mut bytes = Vec::new();
            for (at, piece) in word.split('%').enumerate() {
                bytes.extend(if at > 0 { &value[..] } else { b"" });
                bytes.extend(piece.as_bytes());
            }
            command.arg(OsStr::from_bytes(&bytes));
        }
        if round % 5 == 0 {
            let code = command
                .stdout(without_reader(false))
                .stderr(without_reader(true));
            let code = code.status().unwrap().code().unwrap_or(-1);
            assert!(code > 0 && code != 101, "{line} {value:?}: {code}");
            continue;
        }
        let said = Said::from(command.output().unwrap());
        assert!(
            is_good(&said),
            "{line} {:?}: {said:#?}",
            value.escape_ascii()
        );
        assert_eq!(said.err.lines().count(), 1, "{line}: {said:#?}");
        assert!(said.err.starts_with("portolan: "), "{line}: {said:#?}");
        let rest = said.err.trim_end();
        let steers = |c: char| c.is_control() || c == '\u{202e}';
        assert!(!rest.contains(steers), "{line}: {rest:?}");
    }
}
