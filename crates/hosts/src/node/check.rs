//! `portolan node --check`: what the service would do, and whether it could.

use std::fs;
use std::process::ExitCode;

use portolan_boot::node::{NODE_CONFIG, NodeError, NodeService};
use portolan_sys::features::Disabled;
use portolan_sys::net::{Interface, interfaces};

use super::config::Config;
use super::pins;
use super::ports::{served, try_out};
use super::queue::queue_bytes;
use super::rules::way_to_queue;
use super::state::Files;
use crate::print::print;
use crate::table::table;

/// One line of what was found; `Err`: something is missing.
type Found = (String, Result<String, String>);

/// Says all of it.
pub fn run(
    config: &Config,
    files: &Files,
    disabled: &Disabled,
) -> crate::failure::Result<ExitCode> {
    let mut all = vec![users(config), bounds(config), one_sided(config)];
    let kernel = try_out(disabled).and_then(|found| served(disabled).map(|()| found));
    all.push(("kernel".to_owned(), kernel));
    all.push((
        "pins".to_owned(),
        Ok(if pins::is_mounted() {
            "the kernel's file system for BPF is mounted".to_owned()
        } else {
            "the kernel's file system for BPF is not mounted: the service will do it".to_owned()
        }),
    ));
    all.extend(carriers(config));
    all.push(("service".to_owned(), Ok(service(files))));
    let code = match all.iter().all(|(_, found)| found.is_ok()) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    };
    let line = |(subject, found): Found| {
        let (state, text) = match found {
            Ok(text) => ("ok     ", text),
            Err(text) => ("missing", text),
        };
        vec![state.to_owned(), subject, text]
    };
    print(table("l", 2, &[], all.into_iter().map(line).collect()))?;
    Ok(code)
}

fn users(config: &Config) -> Found {
    let names: Vec<String> = config.users.keys().map(|uid| config.name(*uid)).collect();
    let text = match names.as_slice() {
        [root] => format!(
            "{root} alone may have host ports: others are named in {}",
            config.file.display()
        ),
        _ => format!(
            "{} may have host ports, and so write any frame on these interfaces, past every \
             filter of the host",
            names.join(", ")
        ),
    };
    ("users".to_owned(), Ok(text))
}

fn one_sided(config: &Config) -> Found {
    let text = format!(
        "forbidden to programs of {}, which read this in {NODE_CONFIG} when they start",
        config.no_one_sided
    );
    ("one-sided".to_owned(), Ok(text))
}

fn bounds(config: &Config) -> Found {
    let Config {
        ports,
        user_ports,
        user_memory_mib,
        user_connections,
        user_requests,
        ..
    } = config;
    let text = format!(
        "{ports} host ports in all; each user {user_ports} with {user_memory_mib} MiB of packet \
         memory, {user_connections} connections, {user_requests} requests a second"
    );
    ("bounds".to_owned(), Ok(text))
}

fn carriers(config: &Config) -> Vec<Found> {
    let all = match interfaces() {
        Ok(all) => all,
        Err(errno) => {
            let why = format!("cannot ask for interfaces: {errno}");
            return vec![("interfaces".to_owned(), Err(why))];
        }
    };
    let mut found: Vec<Found> = all
        .iter()
        .filter(|it| it.carries_host_ports() && config.allows(&it.name))
        .map(|it| (it.name.clone(), Ok(about(it))))
        .collect();
    let named = config.interfaces.iter().flatten();
    for name in named.filter(|name| {
        !all.iter()
            .any(|it| it.carries_host_ports() && it.name == **name)
    }) {
        let why = "is not there, or down, or without an address".to_owned();
        found.push((name.clone(), Err(why)));
    }
    if found.is_empty() {
        let why = "none may carry host ports: configure one (ip address), or name it".to_owned();
        found.push(("interfaces".to_owned(), Err(why)));
    }
    found
}

fn about(interface: &Interface) -> String {
    let folder = format!("/sys/class/net/{}", interface.name);
    let driver = fs::read_link(format!("{folder}/device/driver")).ok();
    let driver = driver.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let queues = way_to_queue(&interface.name);
    let queues = queues.map_or(String::new(), |it| format!("; {it}"));
    format!(
        "may carry host ports of {} MiB: driver {}, MTU {}{queues}",
        queue_bytes(interface, 1).0 >> 20,
        driver.as_deref().unwrap_or("without a device"),
        interface.mtu
    )
}

fn service(files: &Files) -> String {
    match NodeService::connect(&files.socket).and_then(|it| it.may()) {
        Ok(bounds) => format!("runs; this user may have {bounds}"),
        Err(NodeError::Absent(path)) => format!("does not run ({})", path.display()),
        Err(NodeError::Refused(why)) => format!("runs: {why}"),
        Err(error) => error.to_string(),
    }
}
