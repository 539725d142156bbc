//! Which of a host's addresses another host uses.

use std::net::IpAddr;

use portolan_sys::net::{NotASubnet, Subnet, interfaces, is_link_local};

use super::GuestError;

/// An address or a network, as a setting names it: `10.1.0.0/16`, `10.1.2.3`.
///
/// # Errors
/// [`GuestError::BadAddress`].
pub(super) fn parse(text: &str) -> Result<Subnet, GuestError> {
    text.parse()
        .map_err(|NotASubnet| GuestError::BadAddress(text.to_owned()))
}

/// This host's addresses that others may reach, IPv4 first; those within
/// `only`, if it is given.
///
/// # Errors
/// [`GuestError::NotOurs`]: none is within `only`.
pub(super) fn own(only: Option<&str>) -> Result<Vec<Subnet>, GuestError> {
    let all = interfaces().unwrap_or_default();
    let up = all.iter().filter(|it| it.up);
    let each = up.flat_map(|it| {
        it.addresses
            .iter()
            .filter_map(|(ip, n)| Subnet::new(*ip, *n))
    });
    let mut found: Vec<Subnet> = match only {
        None => each
            .filter(|own| !own.ip.is_loopback() && !is_link_local(&own.ip))
            .collect(),
        Some(text) => {
            let wanted = parse(text)?;
            each.filter(|own| wanted.contains(own.ip)).collect()
        }
    };
    if let (Some(text), true) = (only, found.is_empty()) {
        return Err(GuestError::NotOurs(text.to_owned()));
    }
    found.sort_by_key(|own| own.ip.is_ipv6());
    found.truncate(super::card::ADDRESSES_MAX);
    Ok(found)
}

/// The address of `theirs` by which somebody with `ours` reaches it: the
/// first in a network that both are in, else the first. One that both have
/// (a bridge of virtual machines, mostly) leads to oneself.
pub(super) fn choose(ours: &[Subnet], theirs: &[Subnet]) -> Option<IpAddr> {
    let is_own = |ip: IpAddr| ours.iter().any(|own| own.ip == ip);
    let foreign = || theirs.iter().filter(|it| !is_own(it.ip)).map(|it| it.ip);
    let near = foreign().find(|ip| ours.iter().any(|own| own.contains(*ip)));
    near.or_else(|| foreign().next())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(texts: &[&str]) -> Vec<Subnet> {
        texts.iter().map(|text| parse(text).unwrap()).collect()
    }

    #[test]
    fn a_network_has_its_addresses() {
        for (network, ip, within) in [
            ("10.1.2.3/24", "10.1.2.99", true),
            ("10.1.2.3/24", "10.1.3.3", false),
            ("10.1.2.3", "10.1.2.3", true),
            ("10.1.2.3", "10.1.2.4", false),
            ("0.0.0.0/0", "200.1.2.3", true),
            ("::/0", "200.1.2.3", false),
            ("::/0", "fd00::1", true),
            ("fd00::1/64", "fd00::ffff", true),
            ("fd00::1/64", "fd00:0:0:1::1", false),
        ] {
            let own = parse(network).unwrap();
            assert_eq!(own.contains(ip.parse().unwrap()), within, "{network} {ip}");
        }
    }

    #[test]
    fn what_is_no_address_is_told() {
        for text in [
            "",
            "h0",
            "10.1.2",
            "10.1.2.3/33",
            "10.1.2.3/",
            "fd00::/129",
            "/8",
        ] {
            assert!(
                matches!(parse(text), Err(GuestError::BadAddress(it)) if it == text),
                "{text}"
            );
        }
    }

    #[test]
    fn a_shared_network_is_preferred() {
        let ours = list(&["172.17.0.1/16", "10.0.0.1/24", "192.168.7.1/24"]);
        for (theirs, chosen) in [
            (
                &["172.17.0.1/16", "203.0.113.5/24", "192.168.7.2/24"][..],
                "192.168.7.2",
            ),
            (
                &["172.17.0.1/16", "203.0.113.5/24", "10.9.0.1/24"],
                "203.0.113.5",
            ),
            (&["10.0.0.2/24", "192.168.7.2/24"], "10.0.0.2"),
        ] {
            assert_eq!(choose(&ours, &list(theirs)), Some(chosen.parse().unwrap()));
        }
        assert_eq!(choose(&ours, &list(&["172.17.0.1/16"])), None);
        assert_eq!(choose(&ours, &[]), None);
    }

    #[test]
    fn this_host_has_addresses_within_what_is_asked_for() {
        assert_eq!(
            own(Some("127.0.0.0/8")).unwrap()[0].ip,
            IpAddr::from([127, 0, 0, 1])
        );
        assert!(own(None).unwrap().iter().all(|own| !own.ip.is_loopback()));
        assert!(matches!(
            own(Some("203.0.113.0/24")),
            Err(GuestError::NotOurs(_))
        ));
    }
}
