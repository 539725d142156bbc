//! The `portolan lab` commands.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use serde_json::json;

use super::build::{self, Up};
use super::impair::{self, Impairment};
use super::line::{Line, Rate};
use super::status::{self, Form};
use super::{Lab, MTU_DEFAULT, Shape, remove, store};
use crate::choices::Bytes;
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
        /// Rate of every host's line, both ways: 64kbit to 40gbit
        #[arg(long, value_name = "RATE")]
        rate: Option<Rate>,
        /// What the switch's port towards a host holds before it drops, bytes, or with K or M [default: 64K]
        #[arg(long, value_name = "BYTES")]
        buffer: Option<Bytes>,
        /// Mark packets (ECN) while a port holds more than this, bytes, or with K or M
        #[arg(long, value_name = "BYTES")]
        ecn: Option<Bytes>,
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
    /// Show hosts, lines, what ports dropped, and how busy the machine is
    Status {
        /// The lab; all of them without
        name: Option<String>,
        /// As JSON, into this file if one is named
        #[arg(long, value_name = "FILE", num_args = 0..=1)]
        json: Option<Option<PathBuf>>,
    },
}

/// Runs one of them.
pub fn command(arguments: Arguments) -> Result<ExitCode> {
    match arguments.command {
        Command::Up {
            name,
            hosts,
            mtu,
            rate,
            buffer,
            ecn,
        } => {
            let (buffer, ecn) = (buffer.map(|bytes| bytes.0), ecn.map(|bytes| bytes.0));
            let line = Line::check(rate, buffer, ecn, mtu)?;
            let (lab, done) = build::up(&name, Shape { hosts, mtu, line })?;
            let what = match done {
                Up::Built => "is up",
                Up::Found => "was up already",
            };
            let line = line.map_or(String::new(), |line| format!(", {line}"));
            println!(
                "lab {name} {what}: h0 to h{}, {}/24, {}/64, MTU {mtu}{line}",
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
        Command::Status { name, json } => {
            let form = match json {
                None => Form::Text,
                Some(None) => Form::Json,
                Some(Some(file)) => Form::File(file),
            };
            status::status(name.as_deref(), &form)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn list(json: bool) -> Result<()> {
    let labs = store::list()?;
    if json {
        let labs: Vec<_> = labs
            .iter()
            .map(|lab| json!({"name": lab.name, "hosts": lab.shape.hosts, "mtu": lab.shape.mtu, "ready": lab.ready}))
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
                lab.name, lab.shape.hosts, lab.shape.mtu
            );
        }
    }
    Ok(())
}
