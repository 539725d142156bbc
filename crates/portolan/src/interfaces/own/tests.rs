use super::*;

/// An interface. `lo` is the loopback; a name that ends with `-` is down, one with `~`
/// has no carrier. The kind of hardware is empty.
fn interface(name: &str, kind: &str, addresses: &[&str]) -> Interface {
    let loopback = name == "lo";
    let network = |text: &&str| {
        let it: Subnet = text.parse().unwrap();
        (it.ip, it.prefix)
    };
    Interface {
        name: name.trim_end_matches(['-', '~']).to_owned(),
        up: !name.ends_with('-'),
        carrier: !name.ends_with('~'),
        loopback,
        kind: kind.to_owned(),
        hardware: match kind {
            _ if loopback => 772,
            "tun" | "wireguard" => 65_534,
            "ppp" => 512,
            "ipoib" => 32,
            _ => 1,
        },
        addresses: addresses.iter().map(network).collect(),
        ..Interface::default()
    }
}

/// Interfaces numbered from 1; the first is the loopback.
fn host(others: &[(&str, &str, &[&str])]) -> Vec<Interface> {
    let mut all = vec![interface("lo", "", &["127.0.0.1/8", "::1/128"])];
    all.extend(
        others
            .iter()
            .map(|(name, kind, at)| interface(name, kind, at)),
    );
    for (index, it) in (1..).zip(&mut all) {
        it.index = index;
    }
    all
}

/// Default routes by interfaces, the most preferred first. A 6 in front means IPv6;
/// `@` begins the router's address, `=` the source.
fn routes(all: &[Interface], by: &[&str]) -> [Vec<Route>; 2] {
    let mut found = [Vec::new(), Vec::new()];
    for text in by {
        let (text, source) = text.split_once('=').unwrap_or((text, ""));
        let (text, gateway) = text.split_once('@').unwrap_or((text, ""));
        let (v6, name) = match text.strip_prefix('6') {
            Some(name) => (1, name),
            None => (0, text),
        };
        found[v6].push(Route {
            interface: all.iter().find(|it| it.name == name).unwrap().index,
            mtu: 0,
            routed: true,
            gateway: gateway.parse().ok(),
            local: false,
            source: source.parse().ok(),
        });
    }
    found
}

fn chosen(others: &[(&str, &str, &[&str])], by: &[&str]) -> String {
    let all = host(others);
    among(&all, &routes(&all, by), None, None)
        .unwrap()
        .to_string()
}

const ETH0: (&str, &str, &[&str]) = ("eth0", "", &["fe80::1/64", "10.1.0.1/24", "fd01::1/64"]);
const ETH1: (&str, &str, &[&str]) = ("eth1", "", &["10.2.0.1/24", "10.2.0.9/24"]);
const VETH: (&str, &str, &[&str]) = ("veth0", "veth", &["10.3.0.1/24"]);
const DOCKER: (&str, &str, &[&str]) = ("docker0", "bridge", &["172.17.0.1/16"]);
const TUN: (&str, &str, &[&str]) = ("tun0", "tun", &["10.8.0.1/24"]);
const WG: (&str, &str, &[&str]) = ("wg0", "wireguard", &["10.9.0.1/24"]);
const DUMMY: (&str, &str, &[&str]) = ("dummy0", "dummy", &["192.0.2.1/32"]);

#[test]
fn the_default_route_decides_between_equals() {
    for (others, by, expected) in [
        (&[ETH0][..], &[][..], "10.1.0.1: eth0 is the only network"),
        (&[ETH0], &["eth0"], "10.1.0.1: eth0 is the only network"),
        (
            &[ETH0, ETH1],
            &["eth1"],
            "10.2.0.1: eth1 leads to the default route",
        ),
        (
            &[ETH0, ETH1],
            &["eth1@10.2.0.254", "eth0"],
            "10.2.0.1: eth1 leads to the default route",
        ),
        (&[ETH0, ETH1], &[], "10.1.0.1: eth0: eth1 comes later"),
        // A route of IPv6 counts if there is none of IPv4, else after it.
        (
            &[ETH1, ETH0],
            &["6eth0"],
            "fd01::1: eth0 leads to the default route",
        ),
        (
            &[ETH1, ETH0],
            &["6eth0", "eth1"],
            "10.2.0.1: eth1 leads to the default route",
        ),
        // The source that the route names, here or on the loopback.
        (
            &[ETH0, ETH1],
            &["eth1=10.2.0.9"],
            "10.2.0.9: eth1 leads to the default route",
        ),
        (
            &[ETH0, DUMMY],
            &["eth0=192.0.2.1"],
            "192.0.2.1: eth0 leads to the default route",
        ),
        // The only network of a container.
        (&[VETH], &["veth0"], "10.3.0.1: veth0 is the only network"),
    ] {
        assert_eq!(chosen(others, by), expected);
    }
}

#[test]
fn the_source_is_of_the_routers_network() {
    let two: (&str, &str, &[&str]) = ("eth0", "", &["10.1.0.1/24", "10.2.0.1/24"]);
    for (by, ip) in [
        ("eth0@10.2.0.254", "10.2.0.1"),
        ("eth0@10.9.0.254", "10.1.0.1"),
        ("eth0", "10.1.0.1"),
    ] {
        assert!(chosen(&[two], &[by]).starts_with(ip), "{by}");
    }
}

#[test]
fn a_worse_kind_is_not_taken_beside_a_better_one() {
    for (others, by, expected) in [
        (
            &[DOCKER, TUN, ETH0][..],
            &["eth0"][..],
            "10.1.0.1: eth0 leads to the default route",
        ),
        (
            &[DOCKER, TUN, ETH0],
            &[],
            "10.1.0.1: eth0: docker0 is a bridge, tun0 is a tunnel",
        ),
        (
            &[TUN, ETH0],
            &["tun0", "eth0"],
            "10.1.0.1: eth0: tun0, which leads to the default route, is a tunnel",
        ),
        (
            &[ETH0, ETH1, WG],
            &["wg0", "eth1"],
            "10.2.0.1: eth1: eth0 does not lead to the default route, wg0, which leads to the \
             default route, is a tunnel",
        ),
        (
            &[DOCKER, VETH],
            &["docker0"],
            "10.3.0.1: veth0: docker0, which leads to the default route, is a bridge",
        ),
        (&[WG, DOCKER], &[], "172.17.0.1: docker0: wg0 is a tunnel"),
        (
            &[DUMMY, WG],
            &["dummy0"],
            "10.9.0.1: wg0: dummy0, which leads to the default route, is a dummy",
        ),
        (&[DUMMY], &[], "192.0.2.1: dummy0 is the only network"),
        (
            &[
                ("ppp0", "ppp", &["10.64.0.1/32"]),
                ("ib0", "ipoib", &["10.5.0.1/24"]),
            ],
            &["ppp0"],
            "10.5.0.1: ib0: ppp0, which leads to the default route, is a tunnel",
        ),
        // Down, without a carrier, with addresses of its own link only.
        (
            &[("eth0-", "", &["10.1.0.1/24"]), TUN],
            &[],
            "10.8.0.1: tun0 is the only network",
        ),
        (
            &[("eth0~", "", &["10.1.0.1/24"]), TUN],
            &["eth0"],
            "10.8.0.1: tun0: eth0 has no carrier",
        ),
        (
            &[("eth0~", "", &["10.1.0.1/24"]), DUMMY],
            &[],
            "10.1.0.1: eth0: dummy0 is a dummy",
        ),
        (
            &[("eth0", "", &["169.254.3.3/16", "fe80::3/64"])],
            &["eth0"],
            "127.0.0.1: there is no other network",
        ),
        (&[], &[], "127.0.0.1: there is no other network"),
    ] {
        assert_eq!(chosen(others, by), expected);
    }
}

#[test]
fn a_bridge_with_a_card_in_it_is_as_good_as_the_card() {
    let mut all = host(&[
        DOCKER,
        VETH,
        ("br0", "bridge", &["10.4.0.1/24"]),
        ("eth0", "", &[]),
    ]);
    let by = routes(&all, &["br0"]);
    assert_eq!(among(&all, &by, None, None).unwrap().interface, "veth0");
    all[4].master = all[3].index;
    let told = among(&all, &by, None, None).unwrap();
    assert_eq!(told.to_string(), "10.4.0.1: br0 leads to the default route");
    // A bridge that is its own port, which the kernel does not permit.
    all[3].master = all[3].index;
    all[4].master = 0;
    assert_eq!(among(&all, &by, None, None).unwrap().interface, "veth0");
}

#[test]
fn all_addresses_are_listed_the_best_first() {
    let all = host(&[DOCKER, ETH1, TUN, ETH0]);
    let told = among(&all, &routes(&all, &["eth0"]), None, None).unwrap();
    let ips: Vec<String> = told.addresses.iter().map(|it| it.ip.to_string()).collect();
    assert_eq!(
        ips,
        [
            "10.1.0.1",
            "10.2.0.1",
            "10.2.0.9",
            "fd01::1",
            "172.17.0.1",
            "10.8.0.1"
        ]
    );
    let passed: Vec<String> = told.passed.iter().map(|it| it.1.clone()).collect();
    assert_eq!(
        passed,
        [
            "eth1 does not lead to the default route",
            "docker0 is a bridge",
            "tun0 is a tunnel"
        ]
    );
    // The loopback's address is not announced.
    let none = among(&host(&[]), &Default::default(), None, None).unwrap();
    assert_eq!((none.addresses.len(), &none.interface[..]), (0, "lo"));
}

#[test]
fn a_host_with_many_bridges_has_a_short_reason() {
    let names: Vec<String> = (0..20).map(|n| format!("br-{n}")).collect();
    let mut others = vec![ETH0];
    others.extend(names.iter().map(|it| (&it[..], "bridge", DOCKER.2)));
    let told = chosen(&others, &[]);
    assert_eq!(
        told,
        "10.1.0.1: eth0: br-0 is a bridge, br-1 is a bridge, br-2 is a bridge, and 17 more"
    );
}

#[test]
fn settings_come_first() {
    let all = host(&[ETH0, ETH1, TUN, DOCKER]);
    let by = routes(&all, &["eth0"]);
    for (interface, address, expected) in [
        (
            Some("tun0"),
            None,
            "10.8.0.1: tun0: the setting interface is tun0",
        ),
        (
            Some("eth1,eth0"),
            None,
            "10.2.0.1: eth1: the setting interface is eth1,eth0",
        ),
        (
            None,
            Some("10.2.0.9"),
            "10.2.0.9: eth1: the setting address is 10.2.0.9",
        ),
        // Among several the best counts.
        (
            None,
            Some("0.0.0.0/0"),
            "10.1.0.1: eth0: the setting address is 0.0.0.0/0",
        ),
        (
            None,
            Some("10.2.0.0/16"),
            "10.2.0.1: eth1: the setting address is 10.2.0.0/16",
        ),
        (
            None,
            Some("127.0.0.0/8"),
            "127.0.0.1: lo: the setting address is 127.0.0.0/8",
        ),
        (
            None,
            Some("fe80::/10"),
            "fe80::1: eth0: the setting address is fe80::/10",
        ),
        (
            Some("eth1"),
            Some("10.2.0.0/16"),
            "10.2.0.1: eth1: the setting address is 10.2.0.0/16",
        ),
    ] {
        let told = among(&all, &by, interface, address).unwrap();
        assert_eq!(told.to_string(), expected);
    }
    let told = among(&all, &by, None, Some("127.0.0.0/8")).unwrap();
    assert_eq!(told.addresses.len(), 1);
}

#[test]
fn what_this_host_does_not_have_is_told_with_what_it_has() {
    let all = host(&[ETH0, ETH1, ("eth2-", "", &["10.6.0.1/24"])]);
    for (interface, address, parts) in [
        (
            None,
            Some("203.0.113.7"),
            &["203.0.113.7, and no", "eth1 (10.2.0.1/24)"][..],
        ),
        (
            None,
            Some("10.6.0.0/16"),
            &["that is up", "eth0 (10.1.0.1/24)"],
        ),
        (
            None,
            Some("eth0"),
            &["\"eth0\"", "the setting interface takes names"],
        ),
        (
            None,
            Some("10.1"),
            &["setting address is \"10.1\"", "10.1.0.0/16"],
        ),
        (None, Some("10.1.0.1/33"), &["\"10.1.0.1/33\""]),
        (
            Some("eth7"),
            None,
            &["setting interface: \"eth7\"", "eth1 (10.2.0.1/24)"],
        ),
        (
            Some("eth1"),
            Some("10.1.0.1"),
            &["10.2.0.1 first", "one of the two"],
        ),
    ] {
        let why = among(&all, &Default::default(), interface, address);
        let why = why.unwrap_err().to_string();
        for part in parts {
            assert!(why.contains(part), "{part}: {why}");
        }
    }
}

#[test]
fn this_host_has_an_address() {
    let own = told(None, None).unwrap();
    assert!(own.addresses.iter().all(|it| !it.ip.is_loopback()));
    let lo = told(None, Some("127.0.0.0/8")).unwrap();
    assert_eq!(lo.ip, IpAddr::from(Ipv4Addr::LOCALHOST));
    let why = told(None, Some("203.0.113.0/24")).unwrap_err();
    assert!(matches!(why, OpenError::Address { .. }), "{why}");
}
