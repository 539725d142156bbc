//! What this host has.

use std::fs;

use portolan::SETTINGS;
use portolan_boot::Suite;
use portolan_boot::launch::DESCRIPTORS_PER_RANK;
use portolan_boot::node::NodeError;
use portolan_hosts::node::{self, CONFIG_FILE};
use portolan_hosts::ranks::{allowed_cores, check_program};
use portolan_link::udp::UdpConfig;
use portolan_sys::features::{DISABLE_VARIABLE, Disabled, FEATURES};
use portolan_sys::memory::SharedMemory;
use portolan_sys::net::UdpSocket;
use portolan_sys::process::{Pidfd, limits};
use portolan_sys::{barrier, calls, clock, futex, process};
use rustix::process::Resource;

use super::Finding;

/// Oldest kernel that Portolan has run on (docs/operations.md).
const KERNEL_RUN: (u32, u32) = (6, 1);

/// Names the program that guests run as their agent.
const AGENT_VARIABLE: &str = "PORTOLAN_AGENT";

/// Looks at processor, kernel, memory and limits.
pub fn look(disabled: Disabled) -> Vec<Finding> {
    let mut findings = vec![kernel(), processor(), cores(), memory(), files(), calls()];
    findings.extend(socket(disabled));
    findings.extend(features(disabled));
    findings.push(time(disabled));
    findings.push(copies(disabled));
    findings.push(agent());
    findings.push(labs());
    findings.push(node_service());
    findings
}

fn kernel() -> Finding {
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    let found = format!("Linux {release}");
    match version(&release) {
        Some(version) if version < KERNEL_RUN => Finding::slower(
            "kernel",
            format!(
                "{found}: Portolan has not run on kernels older than {}.{}",
                KERNEL_RUN.0, KERNEL_RUN.1
            ),
            "try a job, or upgrade the kernel (Debian 12 has 6.1)",
        ),
        _ => Finding::ok("kernel", found),
    }
}

/// Major and minor number of a kernel release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn processor() -> Finding {
    if Suite::Aegis128L.is_supported() {
        Finding::ok("aes", "the processor encrypts AES itself")
    } else {
        Finding::slower(
            "aes",
            "the processor has no AES instructions (aes and avx): jobs with this host use \
             ChaCha20-Poly1305, and endpoints outside of a job need suite=chacha20-poly1305",
            "start jobs on processors with AES instructions (in a virtual machine: pass the host's processor through)",
        )
    }
}

fn cores() -> Finding {
    match allowed_cores() {
        Ok(cores) if cores.len() == 1 => Finding::slower(
            "cores",
            "one core: ranks take turns on it",
            "allow more (taskset, cpuset, the container's CPU limit)",
        ),
        Ok(cores) => Finding::ok(
            "cores",
            format!("{} cores, a rank bound to each", cores.len()),
        ),
        Err(error) => Finding::slower(
            "cores",
            format!("cannot ask for the allowed cores: {error}"),
            "portolan run --bind none does without",
        ),
    }
}

fn memory() -> Finding {
    match SharedMemory::create("portolan-doctor", 1 << 20) {
        Ok(_) => Finding::ok(
            "shared-memory",
            "can be made (memfd): shm between ranks of this host",
        ),
        Err(error) => Finding::missing(
            "shared-memory",
            format!("cannot be made: {error}"),
            "allow memfd_create and more memory, or start jobs with --link udp",
        ),
    }
}

fn files() -> Finding {
    let files = limits(Resource::Nofile).ok().and_then(|it| it.maximum);
    let ranks = files.map(|files| files / DESCRIPTORS_PER_RANK);
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    match ranks {
        Some(ranks) if ranks < 4 * cores => Finding::missing(
            "open-files",
            format!("the limit is enough for {ranks} ranks from one launcher"),
            "raise it: ulimit -Hn 65536 (or LimitNOFILE= of the service)",
        ),
        Some(ranks) => Finding::ok(
            "open-files",
            format!("enough for {ranks} ranks from one launcher"),
        ),
        None => Finding::ok("open-files", "no limit"),
    }
}

fn calls() -> Finding {
    let name = "calls";
    let refused = calls::refused();
    if refused.is_empty() {
        return Finding::ok(name, "what every job asks of the kernel is allowed");
    }
    let each = |(call, errno): &(&str, _)| format!("{call} ({errno})");
    let each: Vec<String> = refused.iter().map(each).collect();
    let found = format!(
        "refused, and jobs or labs fail without: {}",
        each.join(", ")
    );
    Finding::missing(name, found, calls::remedy(&refused))
}

fn socket(disabled: Disabled) -> Vec<Finding> {
    let options = UdpConfig {
        disabled,
        ..UdpConfig::default()
    }
    .options();
    let wanted = options.receive_buffer;
    let socket = match UdpSocket::bind(&options) {
        Ok(socket) => socket,
        Err(error) => {
            return vec![Finding::missing(
                "udp",
                error.to_string(),
                "without it ranks of this host alone can talk (--link shm)",
            )];
        }
    };
    // The kernel doubles what was asked for.
    let granted = socket.receive_buffer().unwrap_or(0) / 2;
    let mut findings = vec![if granted < wanted {
        Finding::slower(
            "receive-buffer",
            format!("{granted} bytes of the {wanted} asked for: fewer packets can be on their way"),
            format!("sysctl -w net.core.rmem_max={wanted}"),
        )
    } else {
        Finding::ok(
            "receive-buffer",
            format!("{granted} bytes for a udp endpoint"),
        )
    }];
    let feature = |name: &str, works: bool, missing: &str, remedy: &str| {
        if disabled.get(name) == Some(true) {
            off(name)
        } else if works {
            Finding::ok(name, meaning(name))
        } else {
            Finding::slower(name, missing, remedy)
        }
    };
    findings.push(feature(
        "gso",
        socket.knows_gso(),
        "the kernel does not segment UDP: more calls for long messages",
        "a newer kernel (UDP_SEGMENT)",
    ));
    findings.push(feature(
        "gro",
        socket.set_gro(true).is_ok(),
        "the kernel does not coalesce UDP: more calls for long messages",
        "a newer kernel (UDP_GRO)",
    ));
    findings.push(feature(
        "mmsg",
        socket.knows_mmsg(),
        "a filter refuses sendmmsg or recvmmsg: more calls where packets are dense",
        "a container profile that allows both",
    ));
    if let Some((call, errno)) = socket.refused_receive() {
        findings.push(Finding::missing(
            "udp",
            format!("packets cannot be received: {call} is refused ({errno})"),
            format!("a container profile that allows {call}"),
        ));
    }
    findings.push(feature(
        "ecn",
        socket.marks_ecn(),
        "packets cannot be marked: congestion is told by loss and delay alone",
        "allow IP_TOS and IPV6_TCLASS on sockets",
    ));
    findings.push(feature(
        "ipv6",
        socket.is_v6(),
        "IPv6 is off: hosts are reached by IPv4 only",
        "sysctl -w net.ipv6.conf.all.disable_ipv6=0",
    ));
    findings
}

fn features(disabled: Disabled) -> Vec<Finding> {
    let probes: [(&str, bool, &str); 3] = [
        (
            "waitv",
            futex::waitv_available(),
            "a newer kernel, and a container profile that allows futex_waitv",
        ),
        (
            "membarrier",
            barrier::available(),
            "a container profile that allows membarrier",
        ),
        (
            "pidfd",
            Pidfd::open(process::own_pid()).is_ok(),
            "a container profile that allows pidfd_open",
        ),
    ];
    probes
        .into_iter()
        .map(|(name, works, remedy)| match disabled.get(name) {
            Some(true) => off(name),
            _ if works => Finding::ok(name, meaning(name)),
            // Ranks can do without; who starts them cannot.
            _ if name == "pidfd" => {
                let found = format!("missing: {}; no job can be started here", meaning(name));
                Finding::missing(name, found, remedy)
            }
            _ => Finding::slower(name, format!("missing: {}", meaning(name)), remedy),
        })
        .collect()
}

/// Where endpoints take the time from. What the kernel has chosen is no fault: another clocksource
/// may go wrong.
fn time(disabled: Disabled) -> Finding {
    let name = "tsc";
    if disabled.tsc {
        off(name)
    } else if clock::is_tsc() {
        Finding::ok(name, meaning(name))
    } else {
        let source = clock::source();
        let source = source.as_deref().unwrap_or("unknown");
        Finding::ok(
            name,
            format!("not used: the kernel's clocksource is {source}, so the time is read from it"),
        )
    }
}

/// Whether a rank may read the memory of another of the same user.
fn copies(disabled: Disabled) -> Finding {
    let name = "cma";
    if disabled.cma {
        return off(name);
    }
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let root = rustix::process::geteuid().is_root();
    if !process::cma_permitted(process::own_pid()) {
        return Finding::slower(
            name,
            "not permitted: long messages within this host are copied twice",
            "a container profile that allows process_vm_readv (docker: --cap-add SYS_PTRACE)",
        );
    }
    match scope.trim() {
        "" | "0" => Finding::ok(name, meaning(name)),
        _ if root => Finding::ok(name, format!("{}; root may", meaning(name))),
        scope => Finding::slower(
            name,
            format!("ptrace_scope is {scope}: long messages within this host are copied twice"),
            "sysctl -w kernel.yama.ptrace_scope=0",
        ),
    }
}

/// Whether processes that another launcher starts here find their agent.
fn agent() -> Finding {
    let set = std::env::var_os(AGENT_VARIABLE);
    let default = || SETTINGS.iter().find(|row| row.name == "agent");
    let program = set.or_else(|| default().map(|row| row.default.into()));
    let program = program.unwrap_or_default();
    let path = std::env::var_os("PATH");
    let why = match check_program(&program, path.as_deref()) {
        _ if program.is_empty() => format!("{AGENT_VARIABLE} is empty"),
        Ok(()) => {
            let program = program.display();
            let found = format!("{program} watches processes that mpiexec or srun start here");
            return Finding::ok("agent", found);
        }
        Err(why) => why.to_string(),
    };
    let found = format!(
        "jobs of mpiexec or srun find none here, so other hosts notice a death after 3 s only \
         ({why}); put portolan in their PATH, or its path in {AGENT_VARIABLE}; portolan run needs none"
    );
    Finding::ok("agent", found)
}

fn labs() -> Finding {
    if rustix::process::geteuid().is_root() {
        Finding::ok("labs", "virtual clusters can be made (portolan lab up)")
    } else {
        // Nothing that a job needs.
        Finding::ok(
            "labs",
            "virtual clusters need root (sudo portolan lab up); jobs do not",
        )
    }
}

fn node_service() -> Finding {
    let name = "node-service";
    match node::service() {
        Ok(bounds) => Finding::ok(name, format!("runs; this user may have {bounds}")),
        Err(NodeError::Absent(_)) => Finding::ok(
            name,
            "does not run: only root has host ports (xdp), in its jobs and outside of them",
        ),
        Err(NodeError::Unserved(why)) => Finding::slower(
            name,
            format!("runs, and opens none: {why}"),
            "a newer kernel",
        ),
        Err(NodeError::Refused(why)) => Finding::slower(
            name,
            format!("runs, and {why}"),
            format!("name the user in {CONFIG_FILE}, then systemctl restart portolan-node"),
        ),
        Err(error) => Finding::slower(
            name,
            error.to_string(),
            "systemctl status portolan-node; journalctl -u portolan-node",
        ),
    }
}

/// What a feature is good for. (The list's own words say what leaving it off
/// does.)
fn meaning(name: &str) -> &'static str {
    match name {
        "ipv6" => return "IPv6 and IPv4",
        "membarrier" => return "one process's memory barrier in the place of many (membarrier)",
        _ => {}
    }
    FEATURES
        .iter()
        .find(|(known, _)| *known == name)
        .map_or("", |(_, meaning)| meaning)
}

fn off(name: &str) -> Finding {
    Finding::slower(
        name,
        format!("switched off: {}", meaning(name)),
        format!("take {name} out of {DISABLE_VARIABLE}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_as_numbers() {
        assert_eq!(version("6.1.0-28-amd64"), Some((6, 1)));
        assert_eq!(version("5.9"), Some((5, 9)));
        assert!(version("5.15.9") < Some(KERNEL_RUN) && version("6.1.0") >= Some(KERNEL_RUN));
        assert_eq!(version("unknown"), None);
    }

    #[test]
    fn what_is_switched_off_says_how_to_switch_it_on() {
        let disabled = Disabled::parse("gso,cma,pidfd,tsc").unwrap();
        let findings = look(disabled);
        for name in ["gso", "cma", "pidfd", "tsc"] {
            let it = findings.iter().find(|it| it.subject == name).unwrap();
            assert_eq!(it.state, super::super::State::Slower);
            assert!(
                it.remedy.as_deref().unwrap().contains(DISABLE_VARIABLE),
                "{it:?}"
            );
        }
    }
}
