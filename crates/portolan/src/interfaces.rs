//! The networks that messages use (setting `interface`), and the address of this host
//! that is announced to others.

mod own;

use std::net::IpAddr;

use portolan_runtime as engine;
use portolan_sys::net::{Interface, Subnet, interfaces, is_link_local};

use crate::open::OpenError;
use crate::settings::Settings;

pub use own::{Told, told};

/// Maximum number of networks that an endpoint uses at once.
const MOST: usize = 4;

/// Longest name of an interface, bytes (IFNAMSIZ without the end).
const NAME_BYTES_MAX: usize = 15;

/// Whether a word is a number, or several with points between, in any notation
/// that C knows: an address that was cut short.
fn is_number(word: &str) -> bool {
    word.split('.').all(|part| {
        let hex = part.strip_prefix("0x").or_else(|| part.strip_prefix("0X"));
        let (digits, radix) = hex.map_or((part, 10), |hex| (hex, 16));
        !digits.is_empty() && digits.chars().all(|it| it.is_digit(radix))
    })
}

/// An address of this host on a network that the setting names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The interface's index.
    pub index: u32,
    /// The address.
    pub ip: IpAddr,
    /// Length of the network's prefix, bits.
    pub prefix: u8,
}

/// The networks that the setting names, in its order.
///
/// # Errors
/// A part of the setting names no network of this host, or the setting names more
/// than four. The text names that part and this host's networks.
pub fn chosen(setting: &str) -> Result<Vec<Chosen>, String> {
    among(setting, &interfaces().unwrap_or_default())
}

/// Checks whether a value of the setting could name networks on some host.
///
/// # Errors
/// A part of the setting is empty, or looks like a network and is none. The text
/// names that part.
pub fn check(setting: &str) -> Result<(), String> {
    for word in setting.split(',').map(str::trim) {
        if word.is_empty() {
            return Err("a name is missing: give interfaces or networks, as in \
                        eth0,10.2.0.0/16, or all"
                .to_owned());
        }
        if word.parse::<Subnet>().is_ok() {
            continue;
        }
        if word.contains('/') || is_number(word) {
            return Err(format!(
                "{word:?} is no network: give an address and how many of its bits count, as in \
                 10.2.0.0/16"
            ));
        }
        if word.len() > NAME_BYTES_MAX || word.contains([':', '=']) {
            return Err(format!(
                "{word:?} is no name of an interface and no network: give those, as in \
                 eth0,10.2.0.0/16, or all"
            ));
        }
    }
    Ok(())
}

fn among(setting: &str, all: &[Interface]) -> Result<Vec<Chosen>, String> {
    let mut found: Vec<Chosen> = Vec::new();
    let up = || all.iter().filter(|it| it.up);
    for word in setting.split(',').map(str::trim) {
        let before = found.len();
        for interface in up() {
            let wanted = match word {
                "all" if !interface.loopback => first(interface, |_| true),
                word if word == interface.name => first(interface, |_| true),
                word => word
                    .parse()
                    .ok()
                    .and_then(|wanted: Subnet| first(interface, |ip| wanted.contains(ip))),
            };
            found.extend(wanted.filter(|it| !found.iter().any(|other| other.ip == it.ip)));
            if word != "all" && found.len() > before {
                break;
            }
        }
        if found.len() == before {
            return Err(format!(
                "{word:?} names no {}network of this host, which has {}",
                if before == 0 { "" } else { "other " },
                there(all)
            ));
        }
    }
    if found.len() > MOST {
        return Err(format!(
            "it names {} networks, {MOST} can be used at once",
            found.len()
        ));
    }
    Ok(found)
}

/// Returns the networks that the setting `interface` names, and the announced address,
/// and enters both in `config`. Both are empty if the job needs no network.
/// `chosen_here`: the setting `address` counts, since no `portolan run` assigns each
/// host its address.
pub(crate) fn enter(
    settings: &Settings,
    chosen_here: bool,
    config: &mut engine::Config,
) -> Result<(Vec<Chosen>, Option<Told>), OpenError> {
    if !config.network {
        return Ok((Vec::new(), None));
    }
    let text = settings.text("interface");
    let chosen = text.map(chosen).transpose();
    let chosen = chosen.map_err(|why| OpenError::Interface { why })?;
    let chosen = chosen.unwrap_or_default();
    if let Some(first) = chosen.first() {
        config.udp.address = Some(first.ip);
        config.prefix = first.prefix;
    }
    let further = chosen.iter().skip(1);
    config.further = further.map(|it| (it.ip, it.prefix)).collect();
    let own = match config.reached_at.filter(|_| text.is_none()) {
        Some(ip) => Told::by_launcher(ip),
        None => told(text, settings.text("address").filter(|_| chosen_here))?,
    };
    match config.proto.introduces {
        true => log::info!("others are told {own}"),
        false => log::info!("rank {}: others are told {own}", config.rank),
    }
    config.reached_at = Some(own.ip);
    Ok((chosen, Some(own)))
}

/// A readable list of this host's networks.
fn there(all: &[Interface]) -> String {
    let list = |it: &Interface| {
        let Chosen { ip, prefix, .. } = first(it, |_| true)?;
        Some(format!("{} ({ip}/{prefix})", it.name))
    };
    let there = all.iter().filter(|it| it.up).filter_map(list);
    there.collect::<Vec<_>>().join(", ")
}

/// An interface's address to use: IPv4 first, never a link-local one.
fn first(interface: &Interface, wanted: impl Fn(IpAddr) -> bool) -> Option<Chosen> {
    let usable = interface.addresses.iter();
    let usable = usable.filter(|(ip, _)| !is_link_local(ip) && wanted(*ip));
    usable
        .min_by_key(|(ip, _)| ip.is_ipv6())
        .map(|&(ip, prefix)| Chosen {
            index: interface.index,
            ip,
            prefix,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(index: u32, name: &str, addresses: &[(&str, u8)]) -> Interface {
        Interface {
            index,
            name: name.to_owned(),
            mtu: 1500,
            up: name != "down",
            loopback: name == "lo",
            addresses: addresses
                .iter()
                .map(|(ip, prefix)| (ip.parse().unwrap(), *prefix))
                .collect(),
            ..Interface::default()
        }
    }

    fn host() -> Vec<Interface> {
        vec![
            interface(1, "lo", &[("127.0.0.1", 8)]),
            interface(2, "eth0", &[("fd00::1", 64), ("10.1.0.1", 24)]),
            interface(3, "eth1", &[("fe80::2", 64), ("10.2.0.1", 24)]),
            interface(4, "v6", &[("fd01::1", 64)]),
            interface(5, "down", &[("10.3.0.1", 24)]),
        ]
    }

    fn ips(setting: &str) -> Result<Vec<String>, String> {
        let found = among(setting, &host())?;
        Ok(found
            .iter()
            .map(|it| format!("{}/{}", it.ip, it.prefix))
            .collect())
    }

    #[test]
    fn names_and_networks_are_found_in_their_order() {
        for (setting, expected) in [
            ("eth0", &["10.1.0.1/24"][..]),
            ("eth1, eth0", &["10.2.0.1/24", "10.1.0.1/24"]),
            ("10.2.0.0/16,fd00::/64", &["10.2.0.1/24", "fd00::1/64"]),
            ("10.1.0.1", &["10.1.0.1/24"]),
            ("lo", &["127.0.0.1/8"]),
            ("all", &["10.1.0.1/24", "10.2.0.1/24", "fd01::1/64"]),
            ("eth1,all", &["10.2.0.1/24", "10.1.0.1/24", "fd01::1/64"]),
        ] {
            assert_eq!(ips(setting).unwrap(), expected, "{setting}");
        }
    }

    #[test]
    fn what_can_name_nothing_anywhere_is_refused() {
        for setting in ["eth0", "eth7, 10.9.0.0/16", "fd00::/64,all", "10.1.2.3"] {
            assert_eq!(check(setting), Ok(()), "{setting}");
        }
        for (setting, part) in [
            ("10.0.0.0/99", "\"10.0.0.0/99\""),
            ("eth0,fd00::/x", "\"fd00::/x\""),
            ("eth0/1", "no network"),
            ("0x10", "\"0x10\" is no network"),
            ("eth0,10.1", "\"10.1\" is no network"),
            ("=", "no name of an interface"),
            ("fd00::1:", "no name of an interface"),
            ("averylonginterface", "no name of an interface"),
            (",,,", "missing"),
            ("", "missing"),
            ("eth0,", "missing"),
        ] {
            let why = check(setting).unwrap_err();
            assert!(why.contains(part), "{setting}: {why}");
        }
    }

    #[test]
    fn what_names_nothing_is_told() {
        for (setting, part) in [
            ("eth7", "\"eth7\""),
            ("eth0,10.9.0.0/16", "\"10.9.0.0/16\""),
            ("10.1.0.0/33", "\"10.1.0.0/33\""),
            ("down", "\"down\""),
            ("eth0,10.1.0.0/16", "\"10.1.0.0/16\""),
            ("", "\"\""),
        ] {
            let why = ips(setting).unwrap_err();
            assert!(
                why.contains(part) && why.contains("eth1 (10.2.0.1/24)"),
                "{why}"
            );
        }
    }
}
