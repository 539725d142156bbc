//! `portolan run --mpi`: becomes the launcher of that MPI, with what has its programs use
//! Portolan.

use std::process::ExitCode;

use portolan_hosts::choices::Link;
use portolan_hosts::failure::{Context, Failure, Result};
use portolan_hosts::lab::{Lab, RemoteShell};
use portolan_hosts::mpi::{Job, Mpi, Variable, provider_folder};
use portolan_hosts::print::tell;
use portolan_hosts::ranks::{check_program, execute_with};

use super::arguments::Arguments;
use super::hosts::{self, HostPlace};
use super::{check_values, given_settings};

/// Our settings that programs of this job take, by their variables.
fn settings(arguments: &Arguments) -> Result<Vec<Variable>> {
    let network = &arguments.network;
    let mut all = network.standalone_settings(network.link == Link::Shm);
    let given = given_settings(arguments)?;
    check_values(&given)?;
    all.extend(given);
    let variable = |(name, value): (String, String)| {
        let name = format!("PORTOLAN_{}", name.to_uppercase());
        (name.into(), value.into())
    };
    Ok(all.into_iter().map(variable).collect())
}

/// Takes the user's value of a variable with which Portolan is used in any case. Of the others
/// ours count, or the program would run over something else without a word; a line names them.
fn heed_environment(variables: &mut [Variable], given: &[Variable]) {
    for (name, value) in variables {
        let users = std::env::var_os(&*name).filter(|it| it != value);
        let Some(users) = users.filter(|_| given.iter().all(|(known, _)| known != name)) else {
            continue;
        };
        if name == "OMPI_MCA_osc" {
            *value = users;
            continue;
        }
        let name = name.display();
        tell(format_args!(
            "portolan: {name} does not count here: use -x {name}"
        ));
    }
}

/// Runs the program under the MPI's launcher, which this process becomes; returns only if
/// that fails.
pub fn run(mpi: Mpi, arguments: &Arguments) -> Result<ExitCode> {
    let blocks = arguments.blocks()?;
    let [block] = &blocks[..] else {
        return Err(Failure::usage(
            "--mpi takes one program: leave out what stands after `:`",
        ));
    };
    let lab = arguments.lab.as_deref().map(Lab::open).transpose()?;
    let hosts = hosts::choose(arguments, lab.as_ref(), &blocks)?;
    if arguments.network.link == Link::Shm && hosts.len() > 1 {
        return Err(Failure::usage(
            "--link shm needs all ranks on one host: use --link auto or --link udp",
        ));
    }
    let here = hosts.iter().any(|host| host.place != HostPlace::Remote);
    if here {
        check_program(&block.program[0], std::env::var_os("PATH").as_deref())?;
    }
    let own = std::env::current_exe().context("finding the portolan command")?;
    let given = arguments.variables()?;
    let mut variables = mpi.over_portolan(&provider_folder(&own)?, false);
    heed_environment(&mut variables, &given);
    variables.extend(settings(arguments)?);
    if hosts.iter().all(|host| host.place != HostPlace::Remote) {
        // By the command's name it is found only where it is installed.
        variables.push(("PORTOLAN_AGENT".into(), own.into()));
    }
    for (name, value) in given {
        variables.retain(|(known, _)| *known != name);
        variables.push((name, value));
    }
    let shell = match &lab {
        None => None,
        Some(lab) => {
            Lab::check_entry()?;
            Some(RemoteShell::new(lab)?)
        }
    };
    for (name, option) in [("LINK", "link"), ("SECURITY", "security")] {
        if std::env::var_os(format!("PORTOLAN_{name}")).is_some() {
            tell(format_args!(
                "portolan: PORTOLAN_{name} does not count here: use --{option}"
            ));
        }
    }
    let launcher = mpi.launcher_for_portolan()?;
    let alone = matches!(&hosts[..], [host] if host.place == HostPlace::Here);
    let first = match hosts[0].place {
        HostPlace::Lab(host) => Some(host),
        _ => None,
    };
    let job = Job {
        mpi,
        ranks: hosts.iter().map(|host| host.ranks).sum(),
        hosts: match alone {
            true => Vec::new(),
            false => hosts.into_iter().map(|it| (it.name, it.ranks)).collect(),
        },
        shell: shell.as_ref().map(RemoteShell::path),
        unbound: lab.is_some(),
        variables,
        program: &block.program,
    };
    let mut words = vec![launcher.into_os_string()];
    let machines = job.machine_file()?;
    words.extend(job.arguments(machines.as_ref()));
    if arguments.verbose {
        for (name, value) in &job.variables {
            tell(format_args!(
                "portolan: {}={}",
                name.display(),
                value.display()
            ));
        }
        let shown: Vec<_> = words.iter().map(|it| it.to_string_lossy()).collect();
        tell(format_args!("portolan: {}", shown.join(" ")));
    }
    if let Some(machines) = &machines {
        machines.keep()?;
    }
    if let (Some(lab), Some(host), Some(shell)) = (&lab, first, &shell) {
        shell.keep()?;
        lab.enter(host)?;
    }
    Err(execute_with(&words, &job.environment()))
}
