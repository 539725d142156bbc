//! The networks of this host: which of them `--interface all` takes, and where
//! a rank may have a host port.

use std::fs;

use portolan::networks;
use portolan_sys::features::Disabled;
use portolan_sys::net::{Interface, interfaces};

use super::Finding;
use crate::node::{ONE_BUFFER_MAX, carries, reachable, service, try_out};

/// A line for each interface with an address, one for all where they are too many,
/// and one for what host ports need. Where there is none the subnets' lines say so.
pub fn look(disabled: &Disabled) -> Vec<Finding> {
    let all = interfaces().unwrap_or_default();
    let taken = networks("all");
    let indices: Vec<u32> = match &taken {
        Ok(chosen) => chosen.iter().map(|it| it.index).collect(),
        Err(_) => Vec::new(),
    };
    let (works, line) = tried(disabled);
    let fast = reachable(disabled).and(works);
    let served = service().is_ok();
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
            about.finding(it, &host_port(it, &fast, served, !disabled.multibuffer))
        })
        .collect();
    if let (Err(why), false) = (taken, findings.is_empty()) {
        findings.push(Finding::slower(
            "networks",
            format!("--interface all takes none: {why}"),
            "name up to four: --interface NAME,NAME (or 10.1.0.0/16,...)",
        ));
    }
    findings.extend(line);
    findings
}

/// What of host ports can be tried without an interface, where root looks; and
/// the line about it.
fn tried(disabled: &Disabled) -> (Result<(), String>, Option<Finding>) {
    let name = "host-ports";
    if !rustix::process::geteuid().is_root() || disabled.xdp {
        return (Ok(()), None);
    }
    match try_out(disabled) {
        Ok(found) => (Ok(()), Some(Finding::well(name, found))),
        Err(why) => {
            let found = format!("none, so that udp is used between hosts: {why}");
            let remedy = "a kernel that has run them (docs/operations.md)";
            (Err(why), Some(Finding::slower(name, found, remedy)))
        }
    }
}

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

impl About {
    fn finding(&self, it: &Interface, host_port: &str) -> Finding {
        let subject = format!("network-{}", it.name);
        let addresses: Vec<String> = it
            .addresses
            .iter()
            .map(|(ip, bits)| format!("{ip}/{bits}"))
            .collect();
        let rate = self.speed.map_or("rate unknown".to_owned(), rate);
        let found = format!(
            "{}, MTU {}, {rate}; {host_port}; ",
            addresses.join(", "),
            it.mtu
        );
        if !it.up {
            return Finding::well(&subject, format!("{found}not used: it is down"));
        }
        if !self.counted {
            return Finding::well(&subject, format!("{found}used where it is named"));
        }
        if !self.taken {
            let why = "not taken by --interface all: its addresses count on this link only";
            return Finding::well(&subject, format!("{found}{why}"));
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
        Finding::well(&subject, format!("{found}taken by --interface all"))
    }
}

/// Whether a rank of this user may have a host port there.
fn host_port(
    it: &Interface,
    fast: &Result<(), String>,
    served: bool,
    multi_buffer: bool,
) -> String {
    let no = |why: &str| format!("no host port: {why}");
    match fast {
        Err(why) => no(why),
        Ok(()) if it.mac.is_none() => no("it is no Ethernet"),
        Ok(()) if !carries(it) => no("it is down"),
        // The service's own program serves all.
        Ok(()) if it.xdp && !served => no("another XDP program, or a running job, has it"),
        Ok(()) if it.mtu > ONE_BUFFER_MAX && multi_buffer => format!(
            "a host port where its driver runs XDP programs (packets of up to {ONE_BUFFER_MAX} \
             bytes where kernel or driver take none in several buffers)"
        ),
        Ok(()) if it.mtu > ONE_BUFFER_MAX => format!(
            "a host port, with packets of up to {ONE_BUFFER_MAX} bytes, where its driver runs \
             XDP programs"
        ),
        Ok(()) => "a host port where its driver runs XDP programs".to_owned(),
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

fn plugged(name: &str) -> bool {
    read(name, "carrier") != Some(0)
}

fn rate(mbit: u32) -> String {
    match mbit {
        1_000.. if mbit.is_multiple_of(1_000) => format!("{} Gbit/s", mbit / 1_000),
        _ => format!("{mbit} Mbit/s"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    fn eth() -> Interface {
        Interface {
            index: 2,
            name: "eth0".to_owned(),
            mtu: 1500,
            up: true,
            loopback: false,
            mac: Some([2; 6]),
            xdp: false,
            addresses: vec![("10.1.0.1".parse().unwrap(), 24)],
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
        let it = TAKEN.finding(&eth(), &host_port(&eth(), &Ok(()), false, true));
        assert_eq!(it.state, State::Well);
        assert_eq!(
            it.found,
            "10.1.0.1/24, MTU 1500, 10 Gbit/s; a host port where its driver runs XDP programs; \
             taken by --interface all"
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

    #[test]
    fn why_there_is_no_host_port_is_said() {
        let ok = Ok(());
        for (it, fast, served, part) in [
            (eth(), &Err("xdp is switched off".to_owned()), false, "off"),
            (Interface { mac: None, ..eth() }, &ok, false, "no Ethernet"),
            (Interface { up: false, ..eth() }, &ok, false, "down"),
            (Interface { xdp: true, ..eth() }, &ok, false, "another XDP"),
            (Interface { xdp: true, ..eth() }, &ok, true, "a host port"),
        ] {
            let said = host_port(&it, fast, served, true);
            assert!(said.contains(part), "{said}");
        }
        let jumbo = Interface { mtu: 9000, ..eth() };
        for (multi_buffer, part) in [
            (true, "programs (packets of up to 3826"),
            (false, "port, with packets of up to 3826"),
        ] {
            let said = host_port(&jumbo, &ok, false, multi_buffer);
            assert!(said.contains(part), "{said}");
        }
    }
}
