//! The networks of this host: which of them `--interface all` takes, and where
//! a rank may have a host port.

use std::fs;
use std::net::IpAddr;

use portolan::{OpenError, Settings, Told, networks, own_address};
use portolan_sys::net::{Interface, interfaces};

use super::ports::{Port, Ports, TRY};
use super::{Finding, settings};

/// A line for each interface with an address, and one for all where they are too
/// many. Where there is none the subnets' lines say so.
pub fn look(ports: &Ports) -> Vec<Finding> {
    let all = interfaces().unwrap_or_default();
    let taken = networks("all");
    let indices: Vec<u32> = match &taken {
        Ok(chosen) => chosen.iter().map(|it| it.index).collect(),
        Err(_) => Vec::new(),
    };
    let down = all.iter().find(|it| it.loopback && !it.up);
    let down = down.map(|it| {
        let name = &it.name;
        let found = format!("{name} is down: ranks of this host do not reach each other by udp");
        Finding::missing("loopback", found, format!("ip link set {name} up"))
    });
    let there = all.iter().filter(|it| !it.loopback);
    let there = there.filter(|it| !it.addresses.is_empty());
    let mut findings: Vec<Finding> = there
        .map(|it| {
            let about = About {
                speed: speed(&it.name),
                plugged: plugged(&it.name),
                taken: indices.contains(&it.index),
                counted: taken.is_ok(),
            };
            let port = match ports.on(it.index) {
                Port::Opens(what) => what,
                Port::None(why) => format!("no host port: {why}"),
                Port::Untried => format!("a host port was not tried ({TRY})"),
            };
            about.finding(it, &port)
        })
        .collect();
    if let (Err(why), false) = (taken, findings.is_empty()) {
        findings.push(Finding::slower(
            "networks",
            format!("--interface all takes none: {why}"),
            "name up to four: --interface NAME,NAME (or 10.1.0.0/16,...)",
        ));
    }
    findings.extend(down);
    findings
}

/// The address that others would be told, with what was passed over; none where another
/// line says what is wrong.
pub fn own() -> Option<Finding> {
    let name = "own-address";
    let settings = Settings::gather([], []).ok()?;
    let value = |name: &str| {
        let row = settings.iter().find(|(known, ..)| *known == name);
        row.map(|(_, value, _)| value)
            .filter(|value| !value.is_empty())
    };
    match own_address(value("interface"), value("address")) {
        Ok(told) => Some(Finding::ok(name, said(&told, value("address").is_some()))),
        Err(OpenError::Interface { .. }) => None,
        Err(error) => Some(settings::wrong_elsewhere(name, &error)),
    }
}

fn said(told: &Told, elsewhere: bool) -> String {
    let whose = if elsewhere {
        "jobs that mpiexec or srun start tell others"
    } else {
        "others are told"
    };
    let passed: Vec<String> = (told.passed.iter())
        .map(|(ip, why)| format!("{ip} ({why})"))
        .collect();
    match &passed[..] {
        [] => format!("{whose} {told}"),
        passed => format!("{whose} {told}; passed over: {}", passed.join(", ")),
    }
}

/// Least MTU: 1,232 bytes, and the headers of UDP and IPv6.
const MTU_LEAST: usize = 1_280;

/// What is known of an interface beside what the kernel tells of all.
struct About {
    /// Mbit/s, if the driver says.
    speed: Option<u32>,
    /// A cable is in it and something is at its end, as far as can be told.
    plugged: bool,
    /// `--interface all` takes it.
    taken: bool,
    /// It takes any at all.
    counted: bool,
}

/// An interface's addresses, with the bits of their networks.
pub fn addresses(it: &Interface) -> String {
    let address = |(ip, bits): &(IpAddr, u8)| format!("{ip}/{bits}");
    let all: Vec<String> = it.addresses.iter().map(address).collect();
    all.join(", ")
}

impl About {
    fn finding(&self, it: &Interface, host_port: &str) -> Finding {
        let subject = format!("network-{}", it.name);
        let rate = self.speed.map_or("rate unknown".to_owned(), rate);
        let found = format!("{}, MTU {}, {rate}; {host_port}; ", addresses(it), it.mtu);
        if !it.up {
            return Finding::ok(&subject, format!("{found}not used: it is down"));
        }
        if it.mtu < MTU_LEAST {
            return Finding::missing(
                &subject,
                format!("{found}packets of 1,232 bytes do not pass, and no less is used"),
                format!("ip link set {} mtu 1500", it.name),
            );
        }
        if !self.counted {
            return Finding::ok(&subject, format!("{found}used where it is named"));
        }
        if !self.taken {
            let why = "not taken by --interface all: its addresses count on this link only";
            return Finding::ok(&subject, format!("{found}{why}"));
        }
        if !self.plugged {
            return Finding::slower(
                &subject,
                format!("{found}taken by --interface all, and no carrier: nothing is at its end"),
                format!(
                    "plug it in, leave it out of --interface, or ip link set {} down",
                    it.name
                ),
            );
        }
        Finding::ok(&subject, format!("{found}taken by --interface all"))
    }
}

fn read(name: &str, what: &str) -> Option<i64> {
    let text = fs::read_to_string(format!("/sys/class/net/{name}/{what}")).ok()?;
    text.trim().parse().ok()
}

/// Mbit/s. Some drivers say -1, which is unknown.
fn speed(name: &str) -> Option<u32> {
    u32::try_from(read(name, "speed")?)
        .ok()
        .filter(|it| *it > 0)
}

/// Whether something is at the other end, as far as the driver says.
pub fn plugged(name: &str) -> bool {
    read(name, "carrier") != Some(0)
}

fn rate(mbit: u32) -> String {
    match mbit {
        1_000.. if mbit.is_multiple_of(1_000) => format!("{} Gbit/s", mbit / 1_000),
        _ => format!("{mbit} Mbit/s"),
    }
}

#[cfg(test)]
pub mod tests {
    use super::super::State;
    use super::*;

    pub fn eth() -> Interface {
        Interface {
            index: 2,
            name: "eth0".to_owned(),
            mtu: 1500,
            up: true,
            mac: Some([2; 6]),
            addresses: vec![("10.1.0.1".parse().unwrap(), 24)],
            ..Interface::default()
        }
    }

    const TAKEN: About = About {
        speed: Some(10_000),
        plugged: true,
        taken: true,
        counted: true,
    };

    #[test]
    fn a_network_is_one_line() {
        let it = TAKEN.finding(&eth(), "a host port");
        assert_eq!(it.state, State::Ok);
        assert_eq!(
            it.found,
            "10.1.0.1/24, MTU 1500, 10 Gbit/s; a host port; taken by --interface all"
        );
        assert_eq!(rate(2_500), "2500 Mbit/s");
    }

    #[test]
    fn what_is_not_taken_says_why() {
        let say = |about: About, it: &Interface| about.finding(it, "").found;
        let link = About {
            taken: false,
            ..TAKEN
        };
        assert!(say(link, &eth()).ends_with("count on this link only"));
        let short = TAKEN.finding(
            &Interface {
                mtu: 1_279,
                ..eth()
            },
            "",
        );
        assert!(
            short.state == State::Missing && short.remedy.is_some(),
            "{short:?}"
        );
        let down = Interface { up: false, ..eth() };
        assert!(say(TAKEN, &down).ends_with("it is down"));
        let many = About {
            taken: false,
            counted: false,
            ..TAKEN
        };
        assert!(say(many, &eth()).ends_with("used where it is named"));
        let loose = About {
            plugged: false,
            speed: None,
            ..TAKEN
        };
        let it = loose.finding(&eth(), "");
        assert!(it.state == State::Slower && it.remedy.is_some(), "{it:?}");
        assert!(it.found.contains("rate unknown"), "{it:?}");
    }
}
