//! `lab up`: builds a lab, or finds that it is there.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use portolan_sys::calls;
use portolan_sys::children::Start;
use rustix::mount::mount_bind;

use super::cable::Cable;
use super::store::{self, Lock};
use super::tool::{ip_batch, run};
use super::{HOST_COMMAND, Lab, Offload, Shape, check_name, namespace_file, remove, wires};
use crate::failure::{Failure, Result};

/// Seconds after which the switch forgets an address: never, in practice.
const FOREVER: u32 = 10_000_000;

/// Up to this many hosts know each other's Ethernet addresses from the start,
/// so that no lost ARP packet delays anything.
const STATIC_NEIGHBOURS_MAX: u32 = 64;

/// What `up` did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Up {
    /// Built the lab.
    Built,
    /// Found it as asked for.
    Found,
}

/// Makes sure that lab `name` is up as asked for. Clears what a crash left.
///
/// # Errors
/// A lab of that name with other numbers; not root; what the kernel says.
pub fn up(name: &str, shape: Shape) -> Result<(Lab, Up)> {
    check_name(name)?;
    shape.check()?;
    // Without one of them a lab would be built in part, or the programs that
    // build it wait for ever.
    let refused = calls::refused();
    if !refused.is_empty() {
        return Err(Failure::new(calls::remedy(&refused)));
    }
    let lock = Lock::take()?;
    if let Some(lab) = store::read(name)?
        && lab.ready
        && is_whole(&lab)?
    {
        if lab.shape == shape {
            Offload::repair_after_crash(&lab)?;
            return Ok((lab, Up::Found));
        }
        return Err(Failure::usage(format!(
            "lab {name} is up with {}: use it as it is, or remove it first \
             with `portolan lab down {name}`",
            lab.shape
        )));
    }
    remove::clear(name)?;
    lock.make_place()?;
    let mut taken: Vec<[u8; 2]> = store::list()?.iter().flat_map(Lab::networks).collect();
    let network = free_network(name, &taken)?;
    taken.push(network);
    let second = (shape.switches > 1).then(|| free_network(name, &taken));
    let mut lab = Lab {
        name: name.to_owned(),
        shape,
        network,
        second: second.transpose()?,
        ready: false,
    };
    store::write(&lab)?;
    let built = build(&lab).and_then(|()| {
        lab.ready = true;
        store::write(&lab)
    });
    if let Err(failure) = built {
        let cleared = remove::clear(name).and_then(|()| lock.remove_place());
        return Err(match cleared {
            Ok(()) => failure,
            Err(also) => Failure::new(format!("{failure}; clearing up: {also}")),
        });
    }
    Ok((lab, Up::Built))
}

/// Whether every namespace of a lab is still held.
fn is_whole(lab: &Lab) -> Result<bool> {
    let mut files: Vec<_> = lab
        .namespaces()
        .iter()
        .map(|name| namespace_file(name))
        .collect();
    for host in 0..lab.shape.hosts {
        files.extend([lab.mount_file(host), lab.uts_file(host)]);
    }
    for file in files {
        if !store::is_mounted(&file)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A network that no other lab uses, found from the lab's name so that it is
/// mostly the same each time.
fn free_network(name: &str, taken: &[[u8; 2]]) -> Result<[u8; 2]> {
    let hash = name.bytes().fold(0x811c_u16, |hash, byte| {
        (hash ^ u16::from(byte)).wrapping_mul(0x0193).rotate_left(5)
    });
    (0..=u16::MAX)
        .map(|step| hash.wrapping_add(step).to_be_bytes())
        .find(|network| !taken.contains(network))
        .ok_or_else(|| {
            Failure::new("all networks are taken: remove a lab with `portolan lab down`")
        })
}

fn build(lab: &Lab) -> Result<()> {
    let add: Vec<String> = lab
        .namespaces()
        .iter()
        .map(|name| format!("netns add {name}"))
        .collect();
    run("ip", &["-batch", "-"], &add)?;
    if lab.shape.cable {
        join(lab)?;
    } else {
        build_switch(lab)?;
    }
    fs::write(lab.folder().join("hosts"), lab.hosts_file())
        .map_err(Failure::io("writing the lab's hosts file"))?;
    keep_hosts(lab)?;
    for host in 0..lab.shape.hosts {
        ip_batch(&lab.host_namespace(host), &host_lines(lab, host))?;
    }
    if lab.shape.cable {
        return Ok(());
    }
    let port = lab.shape.line.map_or('h', |_| 'p');
    let known = |cable: Cable| {
        let (mac, device) = (lab.mac_of(cable), cable.device(port));
        format!("fdb replace {mac} dev {device} master static")
    };
    let known: Vec<String> = lab.cables().map(known).collect();
    run(
        "bridge",
        &["-n", &lab.switch_namespace(), "-batch", "-"],
        &known,
    )?;
    Ok(())
}

/// Queues of a device, for `ip`. Without a number each core has one that may be
/// switched on later.
fn queues(lab: &Lab) -> String {
    match lab.shape.queues {
        1 => String::new(),
        n => format!("numtxqueues {n} numrxqueues {n}"),
    }
}

/// Joins both hosts by a cable.
fn join(lab: &Lab) -> Result<()> {
    let (mtu, queues) = (lab.shape.mtu, queues(lab));
    let [(here, at), (there, to)] = [0, 1].map(|host| {
        let cable = Cable { host, switch: 0 };
        let (mac, interface) = (lab.mac_of(cable), cable.interface());
        let end = format!("{interface} mtu {mtu} {queues} address {mac}");
        (end, lab.host_namespace(host))
    });
    let line = format!("link add {here} type veth peer name {there} netns {to}");
    ip_batch(&at, &[line])
}

fn build_switch(lab: &Lab) -> Result<()> {
    let mtu = lab.shape.mtu;
    let mut lines = vec!["link set lo up".to_owned()];
    for switch in lab.switches() {
        lines.push(format!(
            "link add br{switch} type bridge stp_state 0 forward_delay 0 mcast_snooping 0 \
             ageing_time {FOREVER}"
        ));
    }
    let queues = queues(lab);
    for cable in lab.cables() {
        let (mac, namespace) = (lab.mac_of(cable), lab.host_namespace(cable.host));
        let (outer, inner) = (cable.device('h'), cable.interface());
        lines.push(format!(
            "link add {outer} mtu {mtu} {queues} type veth \
             peer name {inner} mtu {mtu} {queues} address {mac} netns {namespace}"
        ));
        if lab.shape.line.is_some() {
            lines.push(format!("link set {outer} up"));
            lines.extend(wires::links(lab, cable));
        } else {
            lines.push(format!("link set {outer} master {} up", cable.bridge()));
        }
    }
    for switch in lab.switches() {
        lines.push(format!("link set br{switch} mtu {mtu} up"));
    }
    let namespace = lab.switch_namespace();
    enter_and_quieten(&namespace)?;
    ip_batch(&namespace, &lines)?;
    match &lab.shape.line {
        Some(line) => lab.in_switch(|| wires::build(lab, line)),
        None => Ok(()),
    }
}

/// The switch is no host: it has no addresses, and no filter looks at what it
/// passes on.
fn enter_and_quieten(namespace: &str) -> Result<()> {
    super::enter::in_namespace(namespace, || {
        for (file, value) in [
            ("net/ipv6/conf/all/disable_ipv6", "1"),
            ("net/ipv6/conf/default/disable_ipv6", "1"),
            ("net/bridge/bridge-nf-call-iptables", "0"),
            ("net/bridge/bridge-nf-call-ip6tables", "0"),
            ("net/bridge/bridge-nf-call-arptables", "0"),
        ] {
            super::host::set_kernel_value(file, value)?;
        }
        Ok(())
    })
}

fn host_lines(lab: &Lab, host: u32) -> Vec<String> {
    let has_ipv6 = Path::new("/proc/sys/net/ipv6").exists();
    let mut lines = vec!["link set lo up".to_owned()];
    for own in lab.cables().filter(|cable| cable.host == host) {
        let device = own.interface();
        lines.push(format!("addr add {}/24 dev {device}", lab.ipv4_of(own)));
        lines.push(format!("link set {device} up"));
        if has_ipv6 {
            let address = lab.ipv6_of(own);
            lines.push(format!("addr add {address}/64 dev {device} nodad"));
        }
        if lab.shape.hosts > STATIC_NEIGHBOURS_MAX {
            continue;
        }
        let is_other = |other: &Cable| other.switch == own.switch && other.host != host;
        for other in lab.cables().filter(is_other) {
            let mac = lab.mac_of(other);
            let mut known = |address: String| {
                lines.push(format!(
                    "neigh add {address} lladdr {mac} dev {device} nud permanent"
                ));
            };
            known(lab.ipv4_of(other).to_string());
            if has_ipv6 {
                known(lab.ipv6_of(other).to_string());
            }
        }
    }
    lines
}

/// Gives each host its UTS and mount namespace and keeps them by bind mounts.
fn keep_hosts(lab: &Lab) -> Result<()> {
    let own = std::env::current_exe().map_err(Failure::io("finding the portolan command"))?;
    for host in 0..lab.shape.hosts {
        let mut child = Command::new(&own)
            .args([
                HOST_COMMAND,
                "--lab",
                &lab.name,
                "--host",
                &host.to_string(),
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .start()
            .map_err(Failure::io("starting the command that sets up a host"))?;
        let kept = keep(lab, host, &mut child);
        // Its input ends, and so does it.
        drop(child.stdin.take());
        let _ = child.wait();
        kept?;
    }
    Ok(())
}

fn keep(lab: &Lab, host: u32, child: &mut Child) -> Result<()> {
    let mut line = String::new();
    let said = child
        .stdout
        .take()
        .map(|out| BufReader::new(out).read_line(&mut line));
    if !matches!(said, Some(Ok(n)) if n > 0) {
        return Err(Failure::new(format!("host h{host} could not be set up")));
    }
    for (kind, file) in [("uts", lab.uts_file(host)), ("mnt", lab.mount_file(host))] {
        let namespace = format!("/proc/{}/ns/{kind}", child.id());
        let doing = format!("keeping {namespace} as {}", file.display());
        File::create(&file).map_err(Failure::io(&doing))?;
        mount_bind(&namespace, &file).map_err(Failure::os(&doing))?;
    }
    Ok(())
}
