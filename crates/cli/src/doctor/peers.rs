//! Which link would be used for whom.

use std::net::{IpAddr, ToSocketAddrs};

use portolan_hosts::node::way_to_queue;
use portolan_sys::features::Disabled;
use portolan_sys::net::{interfaces, route_to};

use super::Finding;
use super::networks::{addresses, plugged};
use super::ports::{Port, Ports, TRY};

/// This host, the subnets that it is on, and the hosts that were asked for.
pub fn look(hosts: &[String], disabled: Disabled, ports: &Ports) -> Vec<Finding> {
    let mut findings = vec![Finding::ok(
        "link-here",
        "shm between ranks of this host: they share memory",
    )];
    findings.extend(subnets(ports));
    findings.extend(hosts.iter().map(|host| {
        let port = |index| ports.on(index);
        towards(host, disabled, port)
    }));
    findings
}

/// The link to other hosts, by one interface or another, of jobs that this user
/// starts.
fn link(port: Port) -> String {
    match port {
        Port::Opens(_) => "xdp".to_owned(),
        Port::None(why) => format!("udp (no host port: {why})"),
        Port::Untried => format!("xdp if a host port opens (not tried: {TRY}), else udp,"),
    }
}

fn subnets(ports: &Ports) -> Vec<Finding> {
    let remedy = "jobs on this host alone need none; else bring an interface up (ip link set DEV \
                  up) and give it an address (ip address add)";
    let all = match interfaces() {
        Ok(all) => all,
        Err(errno) => {
            return vec![Finding::missing(
                "network",
                format!("cannot ask for interfaces: {errno}"),
                "allow netlink sockets",
            )];
        }
    };
    let found: Vec<Finding> = all
        .iter()
        .filter(|it| it.up && !it.loopback && !it.addresses.is_empty())
        .map(|it| {
            let queues = way_to_queue(&it.name).filter(|_| !matches!(ports.on(it.index), Port::None(_)));
            Finding::ok(
                &format!("link-{}", it.name),
                format!(
                    "{} to hosts of {} (MTU {}), congestion control by queueing delay; beyond its routers as TCP's{}",
                    link(ports.on(it.index)),
                    addresses(it),
                    it.mtu,
                    queues.map_or(String::new(), |it| format!("; {it}"))
                ),
            )
        })
        .collect();
    if found.is_empty() {
        return vec![Finding::missing(
            "network",
            "no interface but the loopback is up and has an address: no other host can be reached",
            remedy,
        )];
    }
    found
}

fn towards(host: &str, disabled: Disabled, port: impl Fn(u32) -> Port) -> Finding {
    let subject = format!("to-{host}");
    // In a list with slots an IPv6 address stands in brackets.
    let bare = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let host = bare.unwrap_or(host);
    let ips: Vec<IpAddr> = match (host, 0).to_socket_addrs() {
        Ok(all) => all.map(|at| at.ip()).collect(),
        Err(error) => {
            return Finding::missing(
                &subject,
                format!("the name does not resolve: {error}"),
                "check its spelling, /etc/hosts and DNS (getent hosts NAME)",
            );
        }
    };
    let usable = |ip: &&IpAddr| ip.is_ipv4() || !disabled.ipv6;
    let Some(ip) = ips.iter().find(usable) else {
        return Finding::missing(
            &subject,
            "it has no address of a family that can be used here",
            "give it an IPv4 address, or allow IPv6",
        );
    };
    let route = match route_to(*ip, 0) {
        Ok(route) => route,
        Err(errno) => {
            return Finding::missing(
                &subject,
                format!("no way leads to {ip}: {errno}"),
                format!("ip route get {ip}"),
            );
        }
    };
    if route.local {
        return Finding::ok(&subject, format!("shm: {ip} is this host's own address"));
    }
    let (why, sharing) = if route.routed {
        ("behind a router", "congestion control as TCP's")
    } else {
        (
            "on a subnet of ours",
            "congestion control by queueing delay",
        )
    };
    let source = route
        .source
        .map(|ip| format!(" from {ip}"))
        .unwrap_or_default();
    let found = format!(
        "{}{source} to {ip}: another host, {why}, MTU {}; {sharing}; nothing was sent there",
        link(port(route.interface)),
        route.mtu
    );
    let all = interfaces().unwrap_or_default();
    let by = all.iter().find(|it| it.index == route.interface);
    match by.filter(|it| !plugged(&it.name)) {
        Some(by) => Finding::missing(
            &subject,
            format!("{found}; {} has no carrier: nothing is at its end", by.name),
            format!("plug {} in, or look at what is at its other end", by.name),
        ),
        None => Finding::ok(&subject, found),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn each_host_gets_its_link_or_a_remedy() {
        let of = |host: &str| towards(host, Disabled::default(), |_| Port::Untried);
        let here = of("127.0.0.1");
        assert!(
            here.state == State::Ok && here.found.starts_with("shm"),
            "{here:?}"
        );
        let nobody = of("no-such-host.invalid");
        assert!(
            nobody.state == State::Missing && nobody.remedy.is_some(),
            "{nobody:?}"
        );
        let brackets = of("[::1]");
        assert!(
            brackets.state == State::Ok && brackets.found.starts_with("shm"),
            "{brackets:?}"
        );
        let six = towards("::1", Disabled::parse("ipv6").unwrap(), |_| Port::Untried);
        assert_eq!(six.state, State::Missing, "{six:?}");
    }
}
