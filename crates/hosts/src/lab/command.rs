//! The `portolan lab` commands.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgGroup, Subcommand, ValueEnum};
use serde_json::json;

use super::build::{self, Up};
use super::impair;
use super::impairment::{Burst, Choice, Impairment, Late};
use super::line::{LabLink, Rate};
use super::status::{self, Form};
use super::{Lab, MTU_DEFAULT, PLAIN_XDP_MTU_MAX, Shape, plug, remove, store};
use crate::choices::Bytes;
use crate::failure::Result;
use crate::print::{counted, print};
use crate::table::table;

/// Of `portolan lab`.
#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build a lab; does nothing if it is up already with the same options
    Up {
        /// Name of the lab: a-z, A-Z, 0-9 and -
        name: String,
        /// Number of hosts, h0, h1, ...
        #[arg(long, value_name = "N", default_value_t = 2)]
        hosts: u32,
        /// MTU of its network, bytes
        #[arg(long, value_name = "BYTES", default_value_t = MTU_DEFAULT)]
        mtu: u32,
        /// Queues of every interface
        #[arg(long, value_name = "N", default_value_t = 1)]
        queues: u32,
        /// Switches; with 2 each host has a second interface, eth1, in a network of its own
        #[arg(long, value_name = "N", default_value_t = 1)]
        switches: u32,
        /// Join two hosts directly, without a switch, so that the link alone is measured
        #[arg(long, conflicts_with_all = ["switches", "rate", "buffer", "ecn"])]
        cable: bool,
        /// Rate of every host's line in both directions, 64kbit to 40gbit
        #[arg(long, value_name = "RATE")]
        rate: Option<Rate>,
        /// Buffer of the switch's port towards a host, bytes, or with K or M; needs --rate [default: 64K]
        #[arg(long, value_name = "BYTES")]
        buffer: Option<Bytes>,
        /// Mark packets (ECN) while a port's buffer holds more than this, bytes, or with K or M; needs --rate
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
        #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
        command: Vec<OsString>,
    },
    /// Remove a lab, and end the processes in it
    Down {
        /// The lab
        name: String,
    },
    /// Unplug a host's cable, or plug it in; addresses, routes and neighbours stay
    Link {
        /// The lab
        name: String,
        /// The host
        host: String,
        /// State of the cable
        #[arg(value_enum)]
        state: State,
        /// Only the cable to this switch: 0 is that of eth0, 1 that of eth1
        #[arg(long, value_name = "N")]
        switch: Option<u32>,
    },
    /// Inject faults: packet loss, repeats, corruption, reordering and delay at the switch's ports
    Impair(Box<Harm>),
    /// List labs
    List {
        /// Print JSON, or write it to FILE
        #[arg(long, value_name = "FILE", num_args = 0..=1)]
        json: Option<Option<PathBuf>>,
    },
    /// Show hosts, lines, drops at the switch's ports, and how busy the machine is
    Status {
        /// The lab [default: all labs]
        name: Option<String>,
        /// Print JSON, or write it to FILE
        #[arg(long, value_name = "FILE", num_args = 0..=1)]
        json: Option<Option<PathBuf>>,
    },
}

/// How a cable is.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum State {
    /// Unplugged
    Down,
    /// Plugged in
    Up,
}

/// The faults that `lab impair` injects. They replace those of before.
#[derive(clap::Args)]
#[command(group = ArgGroup::new("harm").required(true).multiple(true))]
struct Harm {
    /// The lab
    name: String,
    /// Packets that are lost, percent; 0 alone ends all faults
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = 0.0,
        group = "harm",
        allow_negative_numbers = true
    )]
    loss: f64,
    /// Lose as many, in bursts with lengths drawn from MIN to MAX (3 to 64 packets)
    #[arg(long, value_name = "MIN-MAX", requires = "loss")]
    burst: Option<Burst>,
    /// Lose or repeat only Portolan's packets that carry an acknowledgement and no message
    #[arg(long)]
    acks_only: bool,
    /// Packets that arrive twice, percent
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = 0.0,
        group = "harm",
        allow_negative_numbers = true
    )]
    repeat: f64,
    /// Packets in which a byte is changed, percent: 0.1 to 30
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = 0.0,
        group = "harm",
        allow_negative_numbers = true
    )]
    corrupt: f64,
    /// Packets that later ones overtake, percent
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = 0.0,
        group = "harm",
        allow_negative_numbers = true
    )]
    reorder: f64,
    /// Largest number of packets that overtake one: 1 to 256
    #[arg(long, value_name = "PACKETS", default_value_t = 16)]
    reorder_by: u32,
    /// Delay of each packet, milliseconds: up to 10
    #[arg(long, value_name = "MS", default_value_t, group = "harm")]
    delay: Late,
    /// Largest further delay, drawn for each packet, milliseconds: up to 10
    #[arg(long, value_name = "MS", default_value_t, group = "harm")]
    jitter: Late,
    /// Only packets from this host
    #[arg(long, value_name = "HOST")]
    from: Option<String>,
    /// Only packets to this host
    #[arg(long, value_name = "HOST")]
    to: Option<String>,
    /// Only packets from or to this host
    #[arg(long, value_name = "HOST", conflicts_with_all = ["from", "to"])]
    host: Option<String>,
    /// Seed: with the same one, the n-th packet to a host has the same fate
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Harm {
    fn impairment(&self, lab: &Lab) -> Result<Impairment> {
        let find = |host: &Option<String>| {
            let host = host.as_deref().map(|text| lab.find_host(text));
            host.transpose()
        };
        let choice = match find(&self.host)? {
            Some(host) => Choice {
                from: Some(host),
                to: Some(host),
                either: true,
            },
            None => Choice {
                from: find(&self.from)?,
                to: find(&self.to)?,
                either: false,
            },
        };
        Ok(Impairment {
            choice,
            seed: self.seed,
            loss: self.loss,
            burst: self.burst,
            acks_only: self.acks_only,
            repeat: self.repeat,
            corrupt: self.corrupt,
            reorder: self.reorder,
            overtakers: self.reorder_by,
            delay: self.delay,
            jitter: self.jitter,
        })
    }
}

/// Runs one of them.
pub fn command(arguments: Arguments) -> Result<ExitCode> {
    match arguments.command {
        Command::Up {
            name,
            hosts,
            mtu,
            queues,
            switches,
            cable,
            rate,
            buffer,
            ecn,
        } => {
            let (buffer, ecn) = (buffer.map(|bytes| bytes.0), ecn.map(|bytes| bytes.0));
            let line = LabLink::check(rate, buffer, ecn, mtu)?;
            let shape = Shape {
                hosts,
                mtu,
                line,
                queues,
                switches,
                cable,
            };
            let (lab, done) = build::up(&name, shape)?;
            let what = match done {
                Up::Built => "is up",
                Up::Found => "was up already",
            };
            print(format_args!(
                "lab {name} {what}: {shape}; h0 to h{}, {}/24, {}/64\n",
                hosts - 1,
                lab.ipv4(0),
                lab.ipv6(0)
            ))?;
            if mtu > PLAIN_XDP_MTU_MAX {
                print(format_args!("{}\n", status::large_mtu()))?;
            }
        }
        Command::Exec {
            name,
            host,
            command,
        } => {
            let lab = Lab::open(&name)?;
            lab.enter(lab.find_host(&host)?)?;
            return Err(crate::ranks::execute(&command));
        }
        Command::Down { name } => remove::down(&name)?,
        Command::Link {
            name,
            host,
            state,
            switch,
        } => {
            let lab = Lab::open(&name)?;
            plug(&lab, lab.find_host(&host)?, switch, state == State::Up)?;
        }
        Command::Impair(harm) => {
            let lab = Lab::open(&harm.name)?;
            impair::impair(&lab, &harm.impairment(&lab)?)?;
        }
        Command::List { json } => list(&Form::new(json))?,
        Command::Status { name, json } => status::status(name.as_deref(), &Form::new(json))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn list(form: &Form) -> Result<()> {
    let labs = store::list()?;
    if form.is_json() {
        return form.write(&json!({ "labs": labs.iter().map(status::shape).collect::<Vec<_>>() }));
    }
    let line = |lab: &Lab| {
        let state = match lab.ready {
            true => "",
            false => "not built to the end",
        };
        vec![
            lab.name.clone(),
            counted(lab.shape.hosts as usize, "host"),
            format!("MTU {:>5}", lab.shape.mtu),
            state.to_owned(),
        ]
    };
    print(table("lrl", 2, &[], labs.iter().map(line).collect())).map(drop)
}
