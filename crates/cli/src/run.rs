//! `portolan run`: starts a job on this host, on the hosts of a lab, or on
//! hosts that ssh reaches.

mod agent;
mod arguments;
mod guard;
mod hosts;
mod mpi;
mod output;
mod program;
mod ssh;
mod trace;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use portolan::{Origin, SettingError, Settings};
use portolan_boot::LinkChoice;
use portolan_boot::launch::{Event, HostFailure, JobSpec, LaunchError, OnDeath, Running};
use portolan_hosts::failure::{Failure, Result};
use portolan_hosts::lab::Lab;
use portolan_hosts::print::{counted, tell};
use portolan_hosts::ranks::{Teller, allowed_cores, check_program, stops};

pub use agent::{AgentArguments, agent};
pub use arguments::Arguments;
use arguments::{Bind, Death};
pub use guard::guard;
use hosts::{Host, HostPlace};
use output::Output;
use program::Program;
use ssh::Ssh;
use trace::Traces;

/// The hidden command that outlives a killed launcher.
pub const GUARD_COMMAND: &str = "internal-guard";
/// The hidden command that plays the launcher's part on another host.
pub const AGENT_COMMAND: &str = portolan_boot::GUEST_AGENT_WORDS[0];

/// An agent has so much longer to greet than ssh has to connect.
const GREETING_GRACE: Duration = Duration::from_secs(1);

/// Runs a job; gives its exit code.
pub fn run(arguments: Arguments) -> Result<ExitCode> {
    if let Some(mpi) = arguments.mpi {
        return mpi::run(mpi, &arguments);
    }
    let blocks = arguments.blocks()?;
    let lab = match &arguments.lab {
        None => None,
        Some(name) => Some(Lab::open(name)?),
    };
    let hosts = hosts::choose(&arguments, lab.as_ref(), &blocks)?;
    let mut spec = spec(&arguments, &hosts)?;
    if lab.is_some() {
        Lab::check_entry()?;
    }
    if hosts.iter().any(|host| host.place != HostPlace::Remote) {
        for block in &blocks {
            check_program(&block.program[0], std::env::var_os("PATH").as_deref())?;
        }
    }
    let traces = match &arguments.trace {
        None => None,
        Some(folder) => Some(Traces::new(folder, spec.size(), spec.respawn)?),
    };
    if let Some(traces) = &traces {
        spec.settings.insert("trace".to_owned(), traces.setting());
    }
    let used = spec.hosts.iter().filter(|ranks| **ranks > 0).count();
    let places = (spec.size(), used);
    spec.names = hosts.iter().map(|host| host.name.clone()).collect();
    let teller = Teller {
        hosts: spec.names.clone(),
        verbose: arguments.verbose,
        bindings: arguments.report_bindings,
    };
    let mut stops = stops()?;
    let mut starter = Program::new(&arguments, blocks, hosts, lab)?;
    let (output, output_stops) = Output::start(arguments.output.as_deref(), !arguments.no_prefix)?;
    stops.extend(output_stops);
    let say = |event: &Event| {
        if let Some(line) = teller.line(event) {
            output.print(line);
        }
    };
    let mut told = |event: Event| say(&event);
    let running = Running::start(spec, &mut starter, stops, &mut told)
        .map_err(|error| explain(error, &starter.ssh, &teller.hosts))?;
    let mut ended = 0_u32;
    let mut lanes = BTreeMap::new();
    let ssh = starter.ssh.clone();
    let code = running
        .wait(&mut starter, &mut |event| {
            ended += u32::from(matches!(event, Event::Ended { .. }));
            ended -= u32::from(matches!(event, Event::Restarting { .. }));
            match event {
                Event::Output(chunk) => output.write(chunk),
                Event::Lanes { rank, lanes: told } => drop(lanes.insert(rank, told)),
                Event::HostLost {
                    host_index,
                    via,
                    why,
                } => {
                    let text = lost(&ssh, &teller.hosts, (host_index, via), &why);
                    output.print(format!("portolan: {text}"));
                }
                event => say(&event),
            }
        })
        .map_err(Failure::io("watching the ranks"))?;
    drop(output);
    starter.guard.dismiss();
    if let Some(traces) = &traces {
        traces.merge()?;
    }
    if arguments.verbose && output::is_heard() {
        let (ranks, hosts) = places;
        for (rank, lanes) in lanes.iter().filter(|(_, lanes)| !lanes.is_empty()) {
            let lanes: Vec<String> = lanes.iter().map(ToString::to_string).collect();
            tell(format_args!(
                "portolan: lanes of rank {rank}: {}",
                lanes.join("; ")
            ));
        }
        let hosts = counted(hosts, "host");
        tell(format_args!(
            "portolan: {ended} of {ranks} ranks on {hosts} ended, exit code {code}"
        ));
    }
    Ok(u8::try_from(code).unwrap_or(1).into())
}

fn explain(error: LaunchError, ssh: &Ssh, names: &[String]) -> Failure {
    match error {
        LaunchError::Size(_) | LaunchError::ShmAcrossHosts => Failure::usage(error.to_string()),
        LaunchError::Stopped { code, why } => {
            let code = u8::try_from(code).unwrap_or(1);
            Failure::with_code(code, format!("{why}, before all hosts had answered"))
        }
        LaunchError::Host {
            host_index,
            via,
            failure,
        } => {
            let code = match &failure {
                HostFailure::Start { code, .. } => *code,
                _ => 1,
            };
            Failure::with_code(code, lost(ssh, names, (host_index, via), &failure))
        }
        LaunchError::Io(why) => Failure::io("cannot start the job")(why),
        error => Failure::new(error.to_string()),
    }
}

/// Why a host, reached through another or not, takes no part, and what to do.
fn lost(ssh: &Ssh, names: &[String], (host, via): (u16, Option<u16>), why: &HostFailure) -> String {
    let name = |host: u16| names.get(usize::from(host)).map_or("?", String::as_str);
    let text = ssh.explain(name(host), why);
    match via {
        Some(via) => format!(
            "from host {} (a larger --fan-out reaches more hosts from here): {text}",
            name(via)
        ),
        None => text,
    }
}

/// Refuses what can name no network anywhere.
pub fn check_interface(networks: &str) -> Result<()> {
    portolan::check_networks(networks)
        .map_err(|why| Failure::usage(format!("--interface {networks}: {why}")))
}

fn spec(arguments: &Arguments, hosts: &[Host]) -> Result<JobSpec> {
    if let Some(networks) = &arguments.network.interface {
        check_interface(networks)?;
    }
    let ranks = hosts.iter().map(|host| host.ranks).collect();
    let mut spec = arguments.network.spec(ranks);
    spec.slots = hosts.iter().map(|host| host.slots).collect();
    spec.respawn = arguments.respawn;
    if spec.respawn > 0 && spec.link == LinkChoice::Shm {
        return Err(Failure::usage(
            "--respawn starts ranks on other hosts, which shared memory does not reach: use --link \
             auto or --link udp",
        ));
    }
    spec.on_death = match arguments.on_death {
        Death::End => OnDeath::End,
        Death::Notify => OnDeath::Notify,
    };
    spec.connect_timeout = Duration::from_secs(arguments.connect_timeout) + GREETING_GRACE;
    spec.partitions = hosts::partitions(&arguments.partitions, hosts)?;
    spec.host_silence = Duration::from_millis(arguments.host_silence);
    spec.stopped_limit = arguments.stopped_limit.map(Duration::from_secs);
    spec.fan_out = arguments.fan_out;
    spec.timeout = arguments.timeout.map(Duration::from_secs);
    spec.join_timeout =
        (arguments.join_timeout > 0).then(|| Duration::from_secs(arguments.join_timeout));
    // What has joined may still be out of reach.
    let join_ms = spec
        .join_timeout
        .map_or(u64::MAX, |limit| limit.as_millis() as u64);
    spec.settings
        .insert("join_ms".to_owned(), join_ms.to_string());
    spec.settings.extend(given_settings(arguments)?);
    check_settings(&spec.settings)?;
    if arguments.bind == Bind::Core {
        spec.cores = cores(hosts)?;
    }
    Ok(spec)
}

/// What `--set` says.
fn given_settings(arguments: &Arguments) -> Result<BTreeMap<String, String>> {
    let pair = |setting: &String| {
        let pair = setting.split_once('=');
        let (name, value) =
            pair.ok_or_else(|| Failure::usage(format!("--set {setting}: give it as NAME=VALUE")))?;
        Ok((name.to_owned(), value.to_owned()))
    };
    arguments.settings.iter().map(pair).collect()
}

/// Settings that do nothing here, and what does.
const OF_OTHER_LAUNCHERS: [(&str, &str); 8] = [
    ("security", "use --security"),
    ("congestion", "use --congestion"),
    ("link", "use --link"),
    ("suite", "use --suite"),
    ("address", "use --interface"),
    ("agent", "the launcher has its own"),
    ("group", "a job's ranks share a queue as they are"),
    ("job_secret_file", "the launcher draws the secret"),
];

/// Whether only jobs that another launcher starts have the setting `name`.
pub fn is_of_other_launchers(name: &str) -> bool {
    OF_OTHER_LAUNCHERS.iter().any(|(known, _)| *known == name)
}

/// Refuses what each rank would refuse, and what does nothing here.
fn check_settings(given: &BTreeMap<String, String>) -> Result<()> {
    for (name, instead) in OF_OTHER_LAUNCHERS {
        if given.contains_key(name) {
            return Err(Failure::usage(format!(
                "--set {name}: the setting is for other launchers; {instead}"
            )));
        }
    }
    check_values(given)
}

/// Refuses what each rank would refuse.
fn check_values(given: &BTreeMap<String, String>) -> Result<()> {
    let pairs = given.iter().map(|(name, value)| (&name[..], &value[..]));
    let wrong = match Settings::gather([], pairs) {
        Ok(settings) => settings.wrong(),
        Err(error) => vec![error],
    };
    // The ranks tell what is wrong with their environment.
    let ours = |error: &&SettingError| {
        matches!(
            error,
            SettingError::Unknown { origin, .. } | SettingError::Value { origin, .. }
                if *origin == Origin::Launcher
        )
    };
    match wrong.iter().find(ours) {
        Some(error) => Err(Failure::usage(error.to_string())),
        None => Ok(()),
    }
}

/// The core of each rank that runs on this machine, in turn.
fn cores(hosts: &[Host]) -> Result<Vec<Option<u32>>> {
    let allowed = allowed_cores().map_err(Failure::io("asking for the allowed cores"))?;
    let mut turn = allowed.iter().cycle();
    let mut cores = Vec::new();
    for host in hosts {
        let here = host.place != HostPlace::Remote;
        for _ in 0..host.ranks {
            cores.push(if here { turn.next().copied() } else { None });
        }
    }
    Ok(cores)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::values::tried;

    fn job() -> Arguments {
        use clap::{Args, FromArgMatches};
        let command = Arguments::augment_args(clap::Command::new("run"));
        let words = ["run", "-n", "2", "--bind", "none", "--", "true"];
        let matches = command.try_get_matches_from(words).unwrap();
        Arguments::from_arg_matches(&matches).unwrap()
    }

    fn hosts() -> Vec<Host> {
        let (name, place) = ("h0".to_owned(), HostPlace::Here);
        let (ranks, slots) = (2, 0);
        vec![Host {
            name,
            place,
            ranks,
            slots,
        }]
    }

    #[test]
    fn random_networks_and_settings_are_taken_or_refused_in_a_sentence() {
        let hosts = hosts();
        let words = ["eth0", "eth0,", "10.2.0.0/16", "fd00::/64", "10.0.0.0/99"];
        tried(&words, |value| {
            let mut arguments = job();
            arguments.network.interface = Some(value.to_owned());
            spec(&arguments, &hosts)
        });
        let words = [
            "frames=64",
            "frames=",
            "port=7",
            "helper=on",
            "helper=",
            "trace=x",
            "close_ms=5",
            "security=none",
            "agent=",
            "interface=eth0",
            "=x",
        ];
        tried(&words, |value| {
            let mut arguments = job();
            arguments.settings = vec![value.to_owned()];
            spec(&arguments, &hosts)
        });
    }

    #[test]
    fn settings_of_other_launchers_are_those_of_which_the_table_says_so() {
        for row in portolan::SETTINGS {
            let said = ["under another launcher: ", "without portolan run: "];
            let told = said.iter().any(|it| row.help.starts_with(it));
            assert_eq!(is_of_other_launchers(row.name), told, "{}", row.name);
        }
    }
}
