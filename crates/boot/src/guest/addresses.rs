//! Which of a host's addresses another host uses.

use std::net::IpAddr;

use portolan_sys::net::Subnet;

/// Returns the address of `theirs` by which a host with `ours` reaches it: the
/// first in a network that both are in, else the first. An address that both
/// have (mostly a bridge of virtual machines) leads to the host itself and is
/// skipped.
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
        texts.iter().map(|text| text.parse().unwrap()).collect()
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
}
