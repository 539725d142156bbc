//! The process that does to packets what the kernel cannot here: holds them
//! back, changes their bytes.
//!
//! It lives in the switch's network, and with it live the devices that it
//! reads and the programs that send packets there: when it ends, however that
//! comes, packets go their straight way again. It ends with its file.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};

use aya::maps::{Array, HashMap};
use aya::programs::TcAttachType;
use aya::{Ebpf, include_bytes_aligned};
use portolan_sys::children::Start;
use portolan_sys::clock::now_ns;
use portolan_sys::epoll::Epoll;
use portolan_sys::raw::Errno;
use portolan_sys::tap::Tap;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, set_parent_process_death_signal, setsid,
};
use serde::{Deserialize, Serialize};

use super::impairment::{ALL, Impairment, threshold};
use super::late::{Late, LateCounters};
use super::loss::{self, bad_object, failed, loaded, port_seed};
use super::{Lab, enter, remove, store, tool, wires};
use crate::failure::{Failure, Result};
use crate::print::print;

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/wire.bpf.o"));

/// The hidden command that holds packets back.
pub const WIRE_COMMAND: &str = "internal-lab-wire";

/// Packets that a device keeps while the process is busy; more are dropped.
const QUEUE_PACKETS: u32 = 4096;
/// Packets taken from one device before those that are due go on.
const BURST_PACKETS: usize = 64;
/// Longest that counters in the file are behind, and that the process
/// outlives its file, nanoseconds.
const LOOK_NS: u64 = 100_000_000;
/// How long the process has to end: the kernel removes one device after the
/// other, of which there may be 500.
const END_SECONDS: i64 = 60;

/// A port in the program's map (`struct port` of `wire.bpf.c`): seed, the
/// host's byte, the other end, packets judged.
type Port = [u64; 4];
/// Which packets take the detour (`struct rule`).
type Rule = [u64; 4];

/// Of the hidden command that holds packets back.
#[derive(clap::Args)]
pub struct WireArguments {
    #[arg(long)]
    lab: String,
}

/// What the process says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    pid: i32,
    #[serde(flatten)]
    counters: LateCounters,
    /// Packets lost because the process was too slow.
    overrun: u64,
}

fn place(lab: &Lab) -> PathBuf {
    lab.folder().join("wire.json")
}

/// Starts the process; when this returns, packets go by it.
pub(super) fn start(lab: &Lab, with: &Impairment) -> Result<()> {
    let own = std::env::current_exe().map_err(Failure::io("finding the portolan command"))?;
    let mut child = Command::new(own)
        .args([WIRE_COMMAND, "--lab", &lab.name])
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .start()
        .map_err(Failure::io("starting the process that holds packets back"))?;
    let bytes = serde_json::to_vec(with).expect("plain data in memory");
    // What it does not read, it says itself.
    let _ = child.stdin.take().map(|mut input| input.write_all(&bytes));
    await_ready(&mut child)
}

fn await_ready(child: &mut Child) -> Result<()> {
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        let _ = BufReader::new(out).read_line(&mut line);
    }
    if line == "ready\n" {
        return Ok(());
    }
    let mut said = String::new();
    if let Some(mut errors) = child.stderr.take() {
        let _ = errors.read_to_string(&mut said);
    }
    let _ = child.wait();
    Err(Failure::new(format!(
        "packets cannot be held back: {}",
        said.trim().trim_start_matches("portolan: ")
    )))
}

/// Ends the process, if there is one.
pub(super) fn stop(lab: &Lab) -> Result<()> {
    let note = read(lab);
    let _ = fs::remove_file(place(lab));
    let Some(pid) = note.and_then(|note| Pid::from_raw(note.pid)) else {
        return Ok(());
    };
    // Its number may be another's by now, but none of the switch's network.
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else {
        return Ok(());
    };
    if !lives(lab, pid)? || pidfd_send_signal(&process, Signal::KILL).is_err() {
        return Ok(());
    }
    let limit = Timespec {
        tv_sec: END_SECONDS,
        tv_nsec: 0,
    };
    // Its devices are gone by then.
    match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit)) {
        Ok(1) => Ok(()),
        _ => Err(Failure::new(format!(
            "process {pid}, which holds packets back, does not end"
        ))),
    }
}

/// What it did so far, and how many packets were lost because it was too slow;
/// none if no process holds packets back.
pub(super) fn current(lab: &Lab) -> Result<Option<(LateCounters, u64)>> {
    let Some(note) = read(lab) else {
        return Ok(None);
    };
    match Pid::from_raw(note.pid) {
        Some(pid) if lives(lab, pid)? => Ok(Some((note.counters, note.overrun))),
        _ => Ok(None),
    }
}

fn read(lab: &Lab) -> Option<Note> {
    let bytes = fs::read(place(lab)).ok()?;
    serde_json::from_slice(&bytes).ok()
}

fn lives(lab: &Lab, pid: Pid) -> Result<bool> {
    Ok(remove::processes(&[lab.switch_namespace()])?.contains(&pid))
}

/// Holds packets back until its file is gone.
pub fn become_wire(arguments: &WireArguments) -> Result<ExitCode> {
    // Until its note is there nobody else could end it: then it goes with whoever started it.
    let tie = |signal| {
        set_parent_process_death_signal(signal).map_err(Failure::os("following the parent"))
    };
    tie(Some(Signal::KILL))?;
    // A parent that had gone before sends no signal, but its end of the pipe is closed.
    if has_no_reader(&std::io::stdout()) {
        return Err(Failure::new("who started this process has gone"));
    }
    let lab = store::read(&arguments.lab)?
        .ok_or_else(|| Failure::new(format!("lab {} is gone", arguments.lab)))?;
    let mut text = Vec::new();
    std::io::stdin()
        .read_to_end(&mut text)
        .map_err(Failure::io("reading what to do"))?;
    let with: Impairment = serde_json::from_slice(&text)
        .map_err(|error| Failure::new(format!("reading what to do: {error}")))?;
    setsid().map_err(Failure::os("leaving the terminal"))?;
    enter::enter_network(&lab.switch_namespace())?;
    let mut wire = Wire::make(&lab, &with)?;
    // A wire waits for no core: beside ranks that poll on all of them it would
    // hold packets for most of a second. Where that is not allowed, it is so.
    let _ = portolan_sys::process::go_first();
    wire.write(&lab)?;
    tie(None)?;
    print("ready\n")?;
    wire.carry(&lab)?;
    Ok(ExitCode::SUCCESS)
}

/// Whether the other end of a pipe is closed.
fn has_no_reader(pipe: &impl AsFd) -> bool {
    // An error is told without being asked for.
    let mut polled = [PollFd::new(pipe, PollFlags::empty())];
    let answer = poll(&mut polled, Some(&Timespec::default()));
    answer.is_ok() && polled[0].revents().contains(PollFlags::ERR)
}

struct Wire {
    /// One for each cable.
    taps: Vec<Tap>,
    ready: Epoll,
    late: Late,
    note: Note,
    /// Attached as long as it is held.
    _programs: Ebpf,
}

impl Wire {
    fn make(lab: &Lab, with: &Impairment) -> Result<Self> {
        let (mut taps, mut lines) = (Vec::new(), Vec::new());
        let ready = Epoll::new().map_err(Failure::os("making an epoll set"))?;
        for cable in lab.cables() {
            let name = cable.device('w');
            let tap = Tap::make(&name).map_err(Failure::os(format!(
                "making the TAP device {name} (modprobe tun)"
            )))?;
            ready
                .add(tap.as_fd(), lab.place_of(cable).into())
                .map_err(Failure::os("watching a device"))?;
            taps.push(tap);
            let mtu = lab.shape.mtu;
            lines.push(format!(
                "link set {name} mtu {mtu} txqueuelen {QUEUE_PACKETS} up"
            ));
        }
        // The calling thread's network is the switch's.
        tool::run("ip", &["-batch", "-"], &lines)?;
        Ok(Self {
            taps,
            ready,
            late: Late::new(with, lab.cables().count())?,
            note: Note {
                pid: rustix::process::getpid().as_raw_nonzero().get(),
                counters: LateCounters::default(),
                overrun: 0,
            },
            _programs: attach(lab, with)?,
        })
    }

    fn carry(&mut self, lab: &Lab) -> Result<()> {
        let mut bytes = vec![0; 1 << 17];
        let mut look_ns = now_ns() + LOOK_NS;
        loop {
            let now = now_ns();
            if now >= look_ns {
                look_ns = now + LOOK_NS;
                // Another's file, or none: the lab has no use for this one.
                if read(lab).is_none_or(|note| note.pid != self.note.pid) {
                    return Ok(());
                }
                self.write(lab)?;
            }
            let taps = &self.taps;
            // What cannot come in, since its port is down, is lost.
            self.late.release(now, |port, packet| {
                let _ = taps[port].send(packet);
            });
            let next = self.late.next_ns().unwrap_or(look_ns).min(look_ns);
            let wait = next.saturating_sub(now_ns());
            let mut readable = Vec::new();
            self.ready
                .wait(Some(wait), |port| readable.push(port as usize))
                .map_err(Failure::os("waiting for packets"))?;
            let now = now_ns();
            for port in readable {
                for _ in 0..BURST_PACKETS {
                    match self.taps[port].receive(&mut bytes) {
                        Ok(len) => self.late.take(now, port, &bytes[..len]),
                        Err(Errno::AGAIN) => break,
                        Err(error) => return Err(Failure::os("reading packets")(error)),
                    }
                }
            }
        }
    }

    /// Writes the file; readers see the old or the new one.
    fn write(&mut self, lab: &Lab) -> Result<()> {
        let new = Note {
            counters: self.late.counters(),
            overrun: overrun()?,
            ..self.note
        };
        if new == self.note && place(lab).exists() {
            return Ok(());
        }
        self.note = new;
        let bytes = serde_json::to_vec(&new).expect("plain data in memory");
        let aside = lab.folder().join("wire.json.new");
        fs::write(&aside, bytes)
            .and_then(|()| fs::rename(&aside, place(lab)))
            .map_err(Failure::io("writing what was done to packets"))
    }
}

/// Packets that the devices have dropped since they were made.
fn overrun() -> Result<u64> {
    let text = fs::read_to_string("/proc/thread-self/net/dev")
        .map_err(Failure::io("reading what devices have dropped"))?;
    let dropped = text.lines().filter_map(|line| {
        let (name, counts) = line.split_once(':')?;
        // Eight numbers of what came in, then bytes, packets, errors, drops.
        name.trim().strip_prefix('w')?;
        counts.split_ascii_whitespace().nth(11)?.parse::<u64>().ok()
    });
    Ok(dropped.sum())
}

/// Sends packets here, within the switch's network.
fn attach(lab: &Lab, with: &Impairment) -> Result<Ebpf> {
    let mut bpf = Ebpf::load(OBJECT).map_err(failed("loading the wire's programs"))?;
    let map = bpf.map_mut("rules").ok_or_else(bad_object)?;
    let mut rules: Array<_, Rule> = map.try_into().map_err(failed("opening a map"))?;
    let share = if with.holds_back() {
        ALL
    } else {
        threshold("corruption", with.corrupt)?
    };
    let [from, to, either] = with.choice.words();
    rules
        .set(0, [from, to, either, share], 0)
        .map_err(failed("filling a map"))?;
    let map = bpf.map_mut("ports").ok_or_else(bad_object)?;
    let mut ports: HashMap<_, u32, Port> = map.try_into().map_err(failed("opening a map"))?;
    for cable in lab.cables() {
        let port = wires::index(&cable.device('h'))?;
        let tap = wires::index(&cable.device('w'))?;
        let seed = port_seed(with.seed, lab.place_of(cable));
        let own = super::last_byte(cable.host).into();
        for (index, other) in [(port, tap), (tap, port)] {
            ports
                .insert(index, [seed, own, other.into(), 0], 0)
                .map_err(failed("filling a map"))?;
        }
    }
    for (name, kind, at) in [
        ("back", 'w', TcAttachType::Ingress),
        ("detour", 'h', TcAttachType::Egress),
    ] {
        let program = loaded(&mut bpf, name)?;
        for cable in lab.cables() {
            loss::attach_at(program, &cable.device(kind), at, loss::WIRE)?;
        }
    }
    Ok(bpf)
}
