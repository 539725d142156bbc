//! Host ports of endpoints without a launcher, between hosts of a lab. Needs root.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::common::{Said, TestLab, install, portolan, probe, read_until, signal, until};
use rustix::process::Signal;

const OWN: &str = env!("CARGO_BIN_EXE_portolan");
/// Of users of this machine that have nothing.
const USER: u32 = 4711;

type Set<'a> = &'a [(&'a str, &'a str)];

/// Runs the endpoint that is for these tests on a host, with settings.
fn alone(lab: &TestLab, host: &str, set: Set<'_>, words: &[&str]) -> Command {
    let program = probe().replace("probe", "alone");
    let mut command = portolan(&["lab", "exec", lab.0, host, "--"]);
    command.arg(program).args(words).env("PORTOLAN_AGENT", OWN);
    command
        .env("PORTOLAN_LOG", "info")
        .envs(set.iter().copied());
    command
}

/// One that others ask.
struct Server {
    process: Child,
    /// It ends when this does.
    _input: ChildStdin,
    address: String,
}

impl Server {
    fn begin(lab: &TestLab, set: Set<'_>) -> Self {
        Self::by(alone(lab, "h0", set, &["serve"]))
    }

    fn by(mut command: Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let input = process.stdin.take().unwrap();
        let said = read_until(&mut process, "address ", 1);
        let address = said[0].rsplit(' ').next().unwrap().to_owned();
        Self {
            process,
            _input: input,
            address,
        }
    }

    /// Asks it from the other host.
    fn ask(&self, lab: &TestLab, link: &str) -> Said {
        let set = [("PORTOLAN_LINK", link)];
        let asked = alone(lab, "h1", &set, &["ask", &self.address]).output();
        Said::from(asked.unwrap()).expect(0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Packets that the host port of who has asked has sent and received, by `link`.
fn packets(said: &Said, link: &str) -> [u64; 2] {
    let (_, counts) = said
        .out
        .split_once(&format!("all is right by {link}, "))
        .unwrap();
    let counts: Vec<u64> = counts
        .split_whitespace()
        .map(|it| it.parse().unwrap())
        .collect();
    counts.try_into().unwrap()
}

/// Host ports that the service of a host has given and that are held.
fn given(lab: &TestLab, host: &str) -> usize {
    let state = format!("/run/portolan/lab/{}/{host}.run/node/node.state", lab.0);
    let Ok(state) = fs::read(state) else {
        // The service has ended, and has left nothing.
        return 0;
    };
    let state: serde_json::Value = serde_json::from_slice(&state).unwrap();
    state["given"].as_array().unwrap().len()
}

/// The process of the service that was started on demand on a host.
fn service(lab: &TestLab, host: &str) -> u32 {
    let namespace = format!("ptl-{}-{host}", lab.0);
    let said = Command::new("ip")
        .args(["netns", "pids", &namespace])
        .output()
        .unwrap();
    let is_it = |pid: &u32| {
        let words = fs::read_to_string(format!("/proc/{pid}/cmdline"));
        words.is_ok_and(|words| words.contains("--on-demand"))
    };
    let pids = String::from_utf8(said.stdout).unwrap();
    let mut pids = pids.lines().map(|pid| pid.trim().parse().unwrap());
    pids.find(is_it).unwrap()
}

/// Waits until a service that was started on demand has left nothing.
fn await_end(lab: &TestLab, host: &str) {
    let socket = format!("/run/portolan/lab/{}/{host}.run/node/node.sock", lab.0);
    let link = || {
        lab.exec(host, &["ip", "link", "show", "eth0"])
            .expect(0)
            .out
    };
    let is_over = || !fs::exists(&socket).unwrap() && !link().contains("prog/xdp");
    until(|| format!("it goes on: {}", link()), is_over);
    assert_eq!(given(lab, host), 0);
}

#[test]
fn endpoints_without_a_launcher_have_host_ports() {
    let lab = TestLab::up(TestLab::own("t-sp-two"), "2");
    for link in ["xdp", "auto"] {
        let server = Server::begin(&lab, &[("PORTOLAN_LINK", link)]);
        let said = server.ask(&lab, link);
        said.complains(&["by xdp: host port on eth0"]);
        let [sent, received] = packets(&server.ask(&lab, link), "xdp");
        // Whatever is small, in both directions.
        assert!(sent > 200 && received > 200, "{sent} {received}");
        // Those with a socket only speak with it too, in either direction.
        assert_eq!(packets(&server.ask(&lab, "udp"), "udp"), [0, 0]);
        drop(server);
        let server = Server::begin(&lab, &[("PORTOLAN_LINK", "udp")]);
        let [sent, _] = packets(&server.ask(&lab, link), "xdp");
        assert!(sent > 200, "{sent}");
        await_end(&lab, "h0");
        await_end(&lab, "h1");
    }
}

#[test]
fn endpoints_of_a_group_share_a_queue_and_the_killed_leave_their_part() {
    let lab = TestLab::up(TestLab::own("t-sp-group"), "2");
    let xdp = ("PORTOLAN_LINK", "xdp");
    let stays = Server::begin(&lab, &[xdp]);
    let mut others: Vec<Server> = (0..3).map(|_| Server::begin(&lab, &[xdp])).collect();
    assert_eq!(given(&lab, "h0"), 4);
    // More often than the queue has parts.
    for round in 0..12 {
        let mut victim = others.remove(0);
        let mut asks = alone(&lab, "h1", &[xdp], &["ask", &victim.address]);
        asks.stdout(Stdio::null()).stderr(Stdio::null());
        let mut asks = asks.spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(10 * round));
        signal(victim.process.id(), Signal::KILL);
        victim.process.wait().unwrap();
        asks.kill().unwrap();
        asks.wait().unwrap();
        others.push(Server::begin(&lab, &[xdp]));
        for server in [&stays, &others[2]] {
            let [sent, received] = packets(&server.ask(&lab, "xdp"), "xdp");
            assert!(sent > 200 && received > 200, "{sent} {received}");
        }
    }
    until(|| "some are held".to_owned(), || given(&lab, "h0") == 4);
    // Other groups have no part.
    let why = "belongs to another job or group";
    for group in [("PORTOLAN_GROUP", "other"), ("PMI_JOBID", "7")] {
        let refused = alone(&lab, "h0", &[xdp, group], &["serve"]).output();
        let refused = Said::from(refused.unwrap()).expect(1);
        refused.complains(&[
            "link xdp: there is no host port",
            why,
            "link auto does without",
        ]);
        let server = Server::begin(&lab, &[group]);
        server.ask(&lab, "xdp");
    }
    // Who has one goes on without the service. Its successor knows no queue of theirs, so
    // that those who come next have none; and it ends as well.
    signal(service(&lab, "h0"), Signal::KILL);
    let [sent, received] = packets(&stays.ask(&lab, "xdp"), "xdp");
    assert!(sent > 200 && received > 200, "{sent} {received}");
    let refused = alone(&lab, "h0", &[xdp], &["serve"]).output().unwrap();
    Said::from(refused)
        .expect(1)
        .complains(&["is taken by another program"]);
    assert_eq!(given(&lab, "h0"), 4);
    drop((stays, others));
    await_end(&lab, "h0");
}

#[test]
fn who_gets_no_host_port_goes_on_by_udp_and_says_why() {
    let lab = TestLab::up(TestLab::own("t-sp-none"), "2");
    let refused = |set: Set<'_>, why: &[&str]| {
        let tried = |link| {
            let set = [&[("PORTOLAN_LINK", link)], set].concat();
            Said::from(alone(&lab, "h0", &set, &["serve"]).output().unwrap())
        };
        let begins = [&["link xdp: there is no host port"], why].concat();
        tried("xdp").expect(1).complains(&begins);
        let begins = [&["by udp: no host port"], why].concat();
        tried("auto").expect(0).complains(&begins);
    };
    let no_agent = ("PORTOLAN_AGENT", "");
    refused(
        &[no_agent],
        &["no node service runs here", "systemctl start"],
    );
    refused(
        &[("PORTOLAN_AGENT", "/nowhere/x")],
        &["/nowhere/x cannot be started as one"],
    );
    refused(
        &[("PORTOLAN_INTERFACE", "lo")],
        &["no Ethernet interface has the address 127.0.0.1"],
    );
    refused(&[("PORTOLAN_DISABLE", "xdp")], &["xdp is switched off"]);
    refused(&[("PORTOLAN_PORT", "4321")], &["the setting port is not 0"]);
    // A service that refuses, to root and to another user.
    let config = format!("/tmp/portolan-{}.conf", lab.0);
    fs::write(&config, format!("interfaces = eth7\nusers = {USER}\n")).unwrap();
    fs::set_permissions(&config, fs::Permissions::from_mode(0o644)).unwrap();
    let words = [
        "lab", "exec", lab.0, "h0", "--", OWN, "node", "--config", &config,
    ];
    let mut node = portolan(&words).stderr(Stdio::piped()).spawn().unwrap();
    let socket = format!("/run/portolan/lab/{}/h0.run/node/node.sock", lab.0);
    until(|| "no service".to_owned(), || fs::exists(&socket).unwrap());
    refused(&[no_agent], &["eth0 may not carry host ports"]);
    node.kill().unwrap();
    node.wait().unwrap();
    fs::remove_file(config).unwrap();
}

#[test]
fn another_user_has_no_part_of_a_group() {
    let lab = TestLab::up(TestLab::own("t-sp-user"), "2");
    let folder = format!("/tmp/portolan-{}", lab.0);
    fs::create_dir_all(&folder).unwrap();
    let program = format!("{folder}/alone");
    install(probe().replace("probe", "alone"), &program, 0o755);
    let config = format!("{folder}/node.conf");
    fs::write(&config, format!("users = {USER}\n")).unwrap();
    for path in [&folder, &config] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let (own, uid) = (("PORTOLAN_GROUP", "g"), USER.to_string());
    let user = |link: &str| {
        let becomes = [
            "setpriv",
            "--reuid",
            &uid,
            "--regid",
            &uid,
            "--clear-groups",
        ];
        let words = [&["lab", "exec", lab.0, "h0", "--"], &becomes[..]].concat();
        let mut command = portolan(&words);
        command.args([&program, "serve"]).current_dir("/");
        command.envs([own, ("PORTOLAN_LINK", link), ("PORTOLAN_LOG", "info")]);
        command
    };
    // Nobody starts a service for it.
    let alone_there = Said::from(user("auto").output().unwrap()).expect(0);
    alone_there.complains(&["by udp: no host port: no node service runs here"]);
    let words = [
        "lab", "exec", lab.0, "h0", "--", OWN, "node", "--config", &config,
    ];
    let mut node = portolan(&words).stderr(Stdio::null()).spawn().unwrap();
    let socket = format!("/run/portolan/lab/{}/h0.run/node/node.sock", lab.0);
    until(|| "no service".to_owned(), || fs::exists(&socket).unwrap());
    let first = Server::by(user("xdp"));
    let second = Server::by(user("xdp"));
    let [sent, received] = packets(&second.ask(&lab, "xdp"), "xdp");
    assert!(sent > 200 && received > 200, "{sent} {received}");
    let set = [own, ("PORTOLAN_LINK", "xdp")];
    let root = Said::from(alone(&lab, "h0", &set, &["serve"]).output().unwrap());
    root.expect(1)
        .complains(&["belongs to another job or group"]);
    drop((first, second));
    until(|| "some are held".to_owned(), || given(&lab, "h0") == 0);
    // A service that root has started does not end with the last host port.
    assert!(fs::exists(&socket).unwrap());
    node.kill().unwrap();
    node.wait().unwrap();
    fs::remove_dir_all(folder).unwrap();
}
