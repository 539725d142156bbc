//! `portolan doctor`. The part in a lab needs root.

use crate::common::{TestLab, executable, portolan, say};

#[test]
fn what_could_be_better_is_said_with_its_remedy() {
    let output = portolan(&["doctor"])
        .env("PORTOLAN_DISABLE", "gso,cma")
        .output()
        .unwrap();
    let said = crate::common::Said::from(output).expect(1);
    for line in [
        "slower   gso",
        "slower   cma",
        "take gso out of PORTOLAN_DISABLE",
    ] {
        assert!(said.out.contains(line), "{line}: {said:#?}");
    }
    let output = portolan(&["doctor"])
        .env("PORTOLAN_DISABLE", "gso,nonsense")
        .output()
        .unwrap();
    crate::common::Said::from(output).complains(&["nonsense", "membarrier"]);
    let output = portolan(&["doctor"])
        .env("PORTOLAN_FRAMES", "abc")
        .output()
        .unwrap();
    let said = crate::common::Said::from(output).expect(1);
    for part in [
        "missing  setting-frames",
        "(environment) is \"abc\": give 32 to",
    ] {
        assert!(said.out.contains(part), "{part}: {said:#?}");
    }
}

/// The lines about a subject, of which there may be none.
fn about(subject: &str, options: &[&str], variables: &[(&str, &str)]) -> String {
    let words = [&["doctor"], options].concat();
    let output = portolan(&words).envs(variables.iter().copied()).output();
    let said = crate::common::Said::from(output.unwrap());
    let mut lines = said.out.lines();
    let first = lines.find(|line| line.split_whitespace().nth(1) == Some(subject));
    let remedy = lines.next().filter(|line| line.starts_with("  "));
    [first.unwrap_or_default(), remedy.unwrap_or_default()].concat()
}

#[test]
fn default_settings_are_shown_to_who_asks_for_them() {
    let frames = |options: &[&str]| about("setting-frames", options, &[("PORTOLAN_FRAMES", "")]);
    assert_eq!(frames(&[]), "", "an empty one is not set");
    let line = frames(&["--settings"]);
    assert!(
        line.starts_with("ok ") && line.contains("2048 frames (default)"),
        "{line}"
    );
}

#[test]
fn wrong_settings_are_found_and_whose_jobs_they_concern_is_said() {
    let with = |name: &str, value| {
        let subject = format!("setting-{}", name.to_lowercase());
        about(&subject, &[], &[(&format!("PORTOLAN_{name}"), value)])
    };
    for name in ["SECURITY", "SUITE", "LINK", "CONGESTION", "JOIN_MS"] {
        let line = with(name, "x");
        assert!(line.starts_with("missing"), "{line}");
        assert!(
            line.contains("`portolan run` does not look at it"),
            "{line}"
        );
    }
    let line = with("FRAMES", "x");
    assert!(line.contains("no job can be joined"), "{line}");
    let line = with("INTERFACE", "nonsense");
    for part in [
        "missing",
        "(environment)",
        "\"nonsense\" names no network",
        "no job with other hosts, or with --link udp, can be joined",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(with("INTERFACE", "lo").starts_with("ok "));
}

#[test]
fn findings_are_there_for_programs_too() {
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("doctor.json");
    let name = file.to_str().unwrap();
    say(&[
        "doctor",
        "--json",
        name,
        "--to",
        "127.0.0.1,no-such-host.invalid",
    ])
    .expect(1);
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let of = |subject: &str| {
        let all = json["findings"].as_array().unwrap();
        let found = all.iter().find(|it| it["subject"] == subject);
        found
            .unwrap_or_else(|| panic!("no {subject} in {json}"))
            .clone()
    };
    assert_eq!(of("shared-memory")["state"], "ok");
    assert!(
        of("to-127.0.0.1")["found"]
            .as_str()
            .unwrap()
            .starts_with("shm")
    );
    let nobody = of("to-no-such-host.invalid");
    assert_eq!(nobody["state"], "missing");
    assert!(nobody["remedy"].is_string(), "{nobody}");
}

#[test]
fn whether_guests_find_an_agent_is_said() {
    let with = |agent: &str| {
        let output = portolan(&["doctor"]).env("PORTOLAN_AGENT", agent).output();
        let said = crate::common::Said::from(output.unwrap());
        let line = said.out.lines().find(|line| line.contains(" agent "));
        line.unwrap_or_else(|| panic!("{said:#?}")).to_owned()
    };
    let found = with(env!("CARGO_BIN_EXE_portolan"));
    assert!(found.contains("watches processes that mpiexec"), "{found}");
    for (agent, why) in [("", "PORTOLAN_AGENT is empty"), ("/no/such", "not found")] {
        let found = with(agent);
        assert!(found.contains("3 s") && found.contains(why), "{found}");
    }
}

#[test]
fn mpis_that_would_load_the_provider_are_named() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("doctor-mpi");
    std::fs::create_dir_all(&folder).unwrap();
    let says = |name: &str, text: &str| executable(folder.join(name), &format!("echo '{text}'"));
    let line = |mpi: &str| {
        about(
            &format!("mpi-{mpi}"),
            &[],
            &[("PATH", folder.to_str().unwrap())],
        )
    };
    says("mpirun", "mpirun (Open MPI) 5.0.0");
    says("mpiexec.hydra", "HYDRA build details:");
    says("ompi_info", "mca:mtl:ofi:version:5.0.0");
    says("mpichversion", "MPICH Device: ch4:ucx");
    let openmpi = line("openmpi");
    assert!(
        openmpi.starts_with("ok ") && openmpi.contains("mpirun"),
        "{openmpi}"
    );
    assert!(!openmpi.contains("cannot load"), "{openmpi}");
    assert!(line("mpich").contains("built without libfabric"));
    assert_eq!(line("intel"), "");
    says("ompi_info", "mca:pml:ob1:version:5.0.0");
    says("mpichversion", "MPICH Device: ch4:ofi");
    assert!(line("openmpi").contains("built without libfabric"));
    assert!(!line("mpich").contains("cannot load"));
    assert!(!line("mpich").contains("unknown"));
    std::fs::remove_file(folder.join("mpichversion")).unwrap();
    assert!(line("mpich").contains("mpichversion does not run"));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn it_is_said_how_packets_find_the_queue_of_a_host_port() {
    let lab = TestLab::with("doctor-queues", &["--hosts", "1", "--queues", "4"]);
    let own = env!("CARGO_BIN_EXE_portolan");
    let how = "of 4 receive queues queue 0 is used; the card takes no rules (ethtool -N): \
               source ports are tried";
    for words in [&["doctor"][..], &["node", "--check"]] {
        let said = lab.exec("h0", &[&[own][..], words].concat());
        assert!(said.out.contains(how), "{said:#?}");
    }
    // One queue needs nothing.
    let lab = TestLab::with("doctor-queue", &["--hosts", "1"]);
    let said = lab.exec("h0", &[own, "node", "--check"]);
    assert!(!said.out.contains("queue 0"), "{said:#?}");
}

#[test]
fn another_host_of_a_lab_is_reached_by_a_host_port_or_udp() {
    let lab = TestLab::up("doctor", "2");
    let own = env!("CARGO_BIN_EXE_portolan");
    let doctor = |off: &str| {
        let off = format!("PORTOLAN_DISABLE={off}");
        lab.exec("h0", &["env", &off, own, "doctor", "--to", "h1,h0"])
    };
    let said = doctor("xdp");
    let line = said
        .out
        .lines()
        .find(|line| line.contains("to-h1"))
        .unwrap();
    assert!(
        line.contains("udp (no host port: xdp is switched off)"),
        "{line}"
    );
    assert!(line.ends_with("nothing was sent there"), "{line}");
    let said = doctor("");
    let line = |host: &str| {
        let mut lines = said.out.lines();
        let found = lines.find(|line| line.contains(&format!("to-{host}")));
        found.unwrap_or_else(|| panic!("no {host}: {said:#?}"))
    };
    assert!(line("h1").contains(" xdp from ") && line("h1").contains("on a subnet of ours"));
    assert!(line("h0").contains("shm"), "{}", line("h0"));
    say(&["lab", "link", lab.0, "h0", "down"]).expect(0);
    let said = doctor("xdp").expect(1).out;
    let line = said.lines().find(|line| line.contains("to-h1")).unwrap();
    assert!(
        line.starts_with("missing") && line.contains("has no carrier"),
        "{line}"
    );
}

#[test]
fn each_network_of_a_host_is_told_of() {
    let lab = TestLab::with("doctor-networks", &["--hosts", "1", "--switches", "2"]);
    let own = env!("CARGO_BIN_EXE_portolan");
    let off = |what: &str| {
        let off = format!("PORTOLAN_DISABLE={what}");
        let said = lab.exec("h0", &["env", &off, own, "doctor"]);
        move |name: &str| {
            let mut lines = said.out.lines();
            let subject = format!(" network-{name} ");
            let found = lines.find(|line| line.contains(&subject));
            found
                .unwrap_or_else(|| panic!("no {name}: {said:#?}"))
                .to_owned()
        }
    };
    let line = off("");
    for name in ["eth0", "eth1"] {
        let said = line(name);
        assert!(said.starts_with("ok "), "{said}");
        for part in [
            "MTU 1500",
            "bit/s",
            "; a host port;",
            "taken by --interface all",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
    assert!(off("xdp")("eth1").contains("no host port: xdp is switched off"));
    lab.exec("h0", &["ip", "link", "set", "eth1", "down"]);
    assert!(off("")("eth1").contains("not used: it is down"));
}

/// A file of /proc may be an ordinary one and never end.
#[test]
fn settings_that_never_end_are_none() {
    crate::common::need_root();
    let output = std::process::Command::new("timeout")
        .args([
            crate::common::LIMIT,
            env!("CARGO_BIN_EXE_portolan"),
            "doctor",
        ])
        .env("PORTOLAN_CONFIG", "/proc/kmsg")
        .output();
    let said = crate::common::Said::from(output.unwrap()).expect(1);
    let mut lines = said.out.lines();
    let line = lines.find(|line| line.contains("PORTOLAN_CONFIG"));
    assert!(line.unwrap().starts_with("missing"), "{said:#?}");
}
