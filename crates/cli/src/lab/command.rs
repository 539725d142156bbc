//! The `portolan lab` commands.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Subcommand;
use serde_json::json;

use super::build::{self, Up};
use super::impair::{self, Impairment};
use super::{Lab, LossCounters, MTU_DEFAULT, remove, store};
use crate::failure::Result;

#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build a lab; nothing happens if it is up already
    Up {
        /// Its name: a-z, A-Z, 0-9 and -
        name: String,
        /// Number of hosts, h0, h1, ...
        #[arg(long, value_name = "N", default_value_t = 2)]
        hosts: u32,
        /// MTU of its network, bytes
        #[arg(long, value_name = "BYTES", default_value_t = MTU_DEFAULT)]
        mtu: u32,
    },
    /// Run a command on a host of a lab
    Exec {
        /// The lab
        name: String,
        /// The host: h0, 0 or its address
        host: String,
        /// The command and its arguments
        #[arg(
            required = true,
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "CMD"
        )]
        command: Vec<OsString>,
    },
    /// Remove a lab; ends the processes in it
    Down {
        /// The lab
        name: String,
    },
    /// Lose packets at the switch's ports until told otherwise
    Impair {
        /// The lab
        name: String,
        /// Share of packets that are lost, percent; 0 ends it
        #[arg(long, value_name = "PERCENT")]
        loss: f64,
        /// Under the same seed the n-th packet to a host has the same fate
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// List labs
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the hosts of a lab
    Status {
        /// The lab
        name: String,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

/// Runs one of them.
pub fn command(arguments: Arguments) -> Result<ExitCode> {
    match arguments.command {
        Command::Up { name, hosts, mtu } => {
            let (lab, done) = build::up(&name, hosts, mtu)?;
            let what = match done {
                Up::Built => "is up",
                Up::Found => "was up already",
            };
            println!(
                "lab {name} {what}: h0 to h{}, {}/24, {}/64, MTU {mtu}",
                hosts - 1,
                lab.ipv4(0),
                lab.ipv6(0)
            );
        }
        Command::Exec {
            name,
            host,
            command,
        } => {
            let lab = Lab::open(&name)?;
            lab.enter(lab.find_host(&host)?)?;
            return Err(crate::run::execute(&command));
        }
        Command::Down { name } => remove::down(&name)?,
        Command::Impair { name, loss, seed } => {
            impair::impair(&Lab::open(&name)?, Impairment { loss, seed })?;
        }
        Command::List { json } => list(json)?,
        Command::Status { name, json } => status(&Lab::open(&name)?, json)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn list(json: bool) -> Result<()> {
    let labs = store::list()?;
    if json {
        let labs: Vec<_> = labs
            .iter()
            .map(|lab| json!({"name": lab.name, "hosts": lab.hosts, "mtu": lab.mtu, "ready": lab.ready}))
            .collect();
        println!("{}", json!({ "labs": labs }));
    } else {
        for lab in labs {
            let state = if lab.ready {
                ""
            } else {
                "  not built to the end"
            };
            println!(
                "{:<16} {:>3} hosts  MTU {:>5}{state}",
                lab.name, lab.hosts, lab.mtu
            );
        }
    }
    Ok(())
}

fn status(lab: &Lab, json: bool) -> Result<()> {
    let mut hosts = Vec::new();
    for host in 0..lab.hosts {
        let pids = remove::processes(&[lab.host_namespace(host)])?;
        let pids: Vec<i32> = pids.iter().map(|pid| pid.as_raw_nonzero().get()).collect();
        hosts.push((host, pids));
    }
    let impaired = impair::current(lab)?;
    if json {
        let hosts: Vec<_> = hosts
            .iter()
            .map(|(host, pids)| {
                json!({
                    "name": format!("h{host}"),
                    "namespace": lab.host_namespace(*host),
                    "ipv4": lab.ipv4(*host),
                    "ipv6": lab.ipv6(*host),
                    "mac": lab.mac(*host),
                    "processes": pids,
                })
            })
            .collect();
        let impaired = impaired.map(|(with, counted)| {
            json!({
                "loss": with.loss,
                "seed": with.seed,
                "dropped": counted.dropped,
                "passed": counted.passed,
            })
        });
        let about = json!({
            "name": lab.name,
            "mtu": lab.mtu,
            "hosts": hosts,
            "impaired": impaired,
        });
        println!("{about}");
    } else {
        println!("lab {}, MTU {}", lab.name, lab.mtu);
        for (host, pids) in hosts {
            let (v4, v6) = (lab.ipv4(host).to_string(), lab.ipv6(host).to_string());
            println!("h{host:<4} {v4:<15} {v6:<24} {:>3} processes", pids.len());
        }
        if let Some((with, counted)) = impaired {
            let LossCounters { dropped, passed } = counted;
            println!(
                "loss {} %, seed {}: {dropped} packets dropped, {passed} passed",
                with.loss, with.seed
            );
        }
    }
    Ok(())
}
