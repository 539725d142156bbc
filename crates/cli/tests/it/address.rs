//! Which of a host's addresses others are told: in a lab's host, by the interfaces and
//! default routes that it has. Needs root, and hydra for jobs of other launchers.

use std::process::Command;

use crate::common::{Said, TestLab, example};
use portolan_sys::tap::Tap;

/// Its host with interfaces of several kinds.
struct Host {
    lab: TestLab,
    eth0: String,
    /// The tunnel is there as long as this.
    tunnel: Option<Tap>,
}

impl Host {
    fn up(name: &'static str) -> Self {
        let lab = TestLab::up(name, "1");
        let eth0 = lab.address(0, "ipv4").to_string();
        Self {
            lab,
            eth0,
            tunnel: None,
        }
    }

    fn script(&self, script: &str) {
        let said = self.lab.exec("h0", &["sh", "-ec", script]);
        said.expect(0);
    }

    /// A bridge to a container and a tunnel.
    fn add_others(&mut self) {
        self.script(
            "ip link add docker0 type bridge; ip link add port0 type veth peer name far0; \
             ip link set port0 master docker0; ip link set far0 up; ip link set port0 up; \
             ip link set docker0 up; ip addr add 172.17.0.1/16 dev docker0",
        );
        self.tunnel = Some(self.lab.within("h0", || Tap::make("tun0").unwrap()));
        self.script("ip addr add 10.8.0.1/24 dev tun0; ip link set tun0 up");
    }

    /// What `portolan doctor` says of its address.
    fn says(&self, settings: &[&str]) -> String {
        let doctor = [env!("CARGO_BIN_EXE_portolan"), "doctor"];
        let said = self.lab.exec("h0", &[&["env"], settings, &doctor].concat());
        let mut lines = said.out.lines();
        let line = lines.find(|line| line.split_whitespace().nth(1) == Some("own-address"));
        let line = line.unwrap_or_else(|| panic!("{said:#?}"));
        let (state, found) = line.split_once("own-address").unwrap();
        [state.trim(), found.trim()].join(" ")
    }
}

#[test]
fn the_default_route_and_the_kind_of_interface_decide() {
    let mut host = Host::up("t-adr");
    let eth0 = host.eth0.clone();
    let told = |ip: &str, why: &str| format!("ok others are told {ip}: {why}");
    assert_eq!(host.says(&[]), told(&eth0, "eth0 is the only network"));
    host.add_others();
    let passed = "passed over: 172.17.0.1 (docker0 is a bridge), 10.8.0.1 (tun0 is a tunnel)";
    assert_eq!(
        host.says(&[]),
        told(
            &eth0,
            &format!("eth0: docker0 is a bridge, tun0 is a tunnel; {passed}")
        )
    );
    host.script("ip route add default dev eth0");
    assert_eq!(
        host.says(&[]),
        told(&eth0, &format!("eth0 leads to the default route; {passed}"))
    );
    // The others have it, and are still no better.
    host.script("ip route replace default via 172.17.0.2");
    let line = host.says(&[]);
    assert!(
        line.starts_with(&told(
            &eth0,
            "eth0: docker0, which leads to the default route, is a bridge"
        )),
        "{line}"
    );
    host.script("ip route replace default dev tun0");
    let line = host.says(&[]);
    assert!(
        line.starts_with(&told(&eth0, "eth0: docker0 is a bridge, tun0, which")),
        "{line}"
    );
    // One of its own kind has it, and loses it to one of a lower metric.
    host.script(
        "ip link add eth1 type veth peer name far1; ip link set far1 up; ip link set eth1 up; \
         ip addr add 203.0.113.9/24 dev eth1; ip route replace default via 203.0.113.1 metric 10; \
         ip route del default dev tun0",
    );
    let line = host.says(&[]);
    assert!(
        line.starts_with(&told("203.0.113.9", "eth1 leads to the default route")),
        "{line}"
    );
    assert!(
        line.contains("(eth0 does not lead to the default route)"),
        "{line}"
    );
    host.script("ip route add default dev eth0 metric 5");
    let line = host.says(&[]);
    assert!(
        line.contains("(the default route by eth1 comes later)"),
        "{line}"
    );
    // IPv6, where IPv4 has none.
    host.script("ip route del default; ip route del default; ip -6 route add default dev eth0");
    let six = host.lab.address(0, "ipv6").to_string();
    let line = host.says(&[]);
    assert!(line.starts_with(&told(&six, "eth0 leads")), "{line}");
    // What is left when the better ones go.
    host.script("ip link del eth1; ip link set eth0 down");
    let line = host.says(&[]);
    assert!(
        line.starts_with(&told("172.17.0.1", "docker0: tun0 is a tunnel")),
        "{line}"
    );
    host.script("ip link set far0 down");
    let line = host.says(&[]);
    assert!(
        line.starts_with(&told("10.8.0.1", "tun0: docker0 has no carrier")),
        "{line}"
    );
    host.script("ip link del docker0");
    assert_eq!(host.says(&[]), told("10.8.0.1", "tun0 is the only network"));
    host.tunnel = None;
    assert_eq!(
        host.says(&[]),
        told("127.0.0.1", "there is no other network")
    );
}

#[test]
fn jobs_tell_their_address_and_why() {
    let mut host = Host::up("t-adj");
    host.add_others();
    host.script("ip route add default dev tun0");
    let why = "eth0: docker0 is a bridge, tun0, which leads to the default route, is a tunnel";
    let ring = example("ring");
    let portolan = env!("CARGO_BIN_EXE_portolan");
    let run = |more: &[&str]| {
        let words = [portolan, "run", "-n", "2", "--link", "udp", "-v"];
        let words = [
            &["env", "PORTOLAN_LOG=info"],
            &words[..],
            more,
            &[&ring, "5"],
        ]
        .concat();
        host.lab.exec("h0", &words).expect(0)
    };
    let eth0 = &host.eth0;
    run(&[]).complains(&[
        &format!("rank 1: others are told {eth0}: {why}"),
        &format!("; others are told {eth0} ({why})"),
    ]);
    run(&["--interface", "docker0"])
        .complains(&["; others are told 172.17.0.1 (docker0: the setting interface is docker0)"]);
    let hydra = |setting: &str| -> Said {
        let words = [
            "env",
            "PORTOLAN_LOG=info",
            "PORTOLAN_LINK=udp",
            "PORTOLAN_AGENT=",
            setting,
        ];
        let launcher = ["timeout", "60", "mpiexec.hydra", "-n", "2"];
        host.lab
            .exec("h0", &[&words[..], &launcher, &[&ring, "5"]].concat())
    };
    hydra("PORTOLAN_ADDRESS=")
        .expect(0)
        .complains(&[&format!("told {eth0}: {why}")]);
    hydra("PORTOLAN_ADDRESS=10.8.0.0/24")
        .expect(0)
        .complains(&["told 10.8.0.1: tun0: the setting address is 10.8.0.0/24"]);
    // What this host does not have, in the job and before it.
    for (setting, part) in [
        ("PORTOLAN_ADDRESS=203.0.113.7", "such an address: it has"),
        ("PORTOLAN_ADDRESS=eth0", "the setting interface takes names"),
    ] {
        assert!(hydra(setting).code != 0);
        let line = host.says(&[setting]);
        assert!(line.starts_with("missing setting address is"), "{line}");
        assert!(line.contains(part), "{line}");
    }
    let line = host.says(&["PORTOLAN_ADDRESS=10.8.0.1"]);
    assert!(
        line.starts_with("ok jobs that mpiexec or srun start tell others 10.8.0.1"),
        "{line}"
    );
}

#[test]
fn programs_find_it_in_the_findings() {
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("own-address.json");
    let mut doctor: Command =
        crate::common::portolan(&["doctor", "--json", file.to_str().unwrap()]);
    doctor.output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let all = json["findings"].as_array().unwrap();
    let own = all.iter().find(|it| it["subject"] == "own-address");
    let found = own.unwrap()["found"].as_str().unwrap();
    assert!(found.starts_with("others are told "), "{found}");
}
