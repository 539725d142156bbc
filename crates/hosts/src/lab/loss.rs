//! Loss and repetition at the switch's ports.

use std::borrow::Borrow;
use std::error::Error;

use aya::maps::{Array, HashMap, MapData};
use aya::programs::tc::{self, NlOptions, SchedClassifierLinkId, TcAttachOptions, TcError};
use aya::programs::{SchedClassifier, TcAttachType};
use aya::util::KernelVersion;
use aya::{Ebpf, include_bytes_aligned};

use portolan_sys::features::Disabled;

use super::impairment::{Burst, Choice, Impairment, threshold};
use super::{Lab, tool, wires};
use crate::failure::{Failure, Result};

const EEXIST: i32 = rustix::io::Errno::EXIST.raw_os_error();

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/impair.bpf.o"));

/// Priorities of the lab's programs at a device where they are filters: the lowest number
/// runs first. Links run in the order in which they were attached.
pub(super) const LASTING: u16 = 10;
pub(super) const WIRE: u16 = 20;
const PASSING: u16 = 30;

/// A port in the program's map (`struct port` of `impair.bpf.c`): seed, the
/// host's byte, packets judged, dropped and repeated, the end of a burst.
pub(super) type Port = [u64; 6];
/// What is done, in the program's map (`struct rule`).
type Rule = [u64; 8];

/// What was done to packets, at all ports together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossCounters {
    /// Packets taken away.
    pub dropped: u64,
    /// Packets let through.
    pub passed: u64,
    /// Packets let through twice.
    pub repeated: u64,
}

/// Loss at every port of a lab's switch towards a host, so that a packet
/// between two hosts is judged once. Dropping it ends the loss; so does the
/// end of the process, however it comes, from Linux 6.6.
pub struct Loss {
    lab: Lab,
    program: Option<Ebpf>,
}

impl Loss {
    /// Begins, with 0 percent. Under the same `seed` the n-th packet through
    /// a port always has the same fate.
    ///
    /// # Errors
    /// Not root, or the kernel refused the program.
    pub fn attach(lab: &Lab, seed: u64) -> Result<Self> {
        lab.need_switch("packets are lost")?;
        let program = lab.in_switch(|| attach(lab, seed))?;
        Ok(Self {
            lab: lab.clone(),
            program: Some(program),
        })
    }

    /// Changes the share of packets that are lost, percent of 0 to 100, and the
    /// lengths of the bursts in which they are.
    ///
    /// # Errors
    /// The share is not between 0 and 100.
    pub fn set(&mut self, percent: f64, burst: Burst) -> Result<()> {
        let share = threshold("loss", percent)?;
        let bpf = self.program.as_mut().expect("held until drop");
        set(bpf, rule(Choice::default(), share, burst, false, 0))
    }

    /// What happened since it began.
    ///
    /// # Errors
    /// The kernel's.
    pub fn counters(&self) -> Result<LossCounters> {
        let map = self
            .program
            .as_ref()
            .and_then(|program| program.map("ports"));
        let map: HashMap<_, u32, Port> = map
            .ok_or_else(bad_object)?
            .try_into()
            .map_err(failed("opening a map"))?;
        count(&map)
    }
}

impl Drop for Loss {
    fn drop(&mut self) {
        let program = self.program.take();
        // The older kind of link is found by its device, in this namespace.
        let _ = self.lab.in_switch(|| {
            drop(program);
            if !has_links() {
                remove_filters(&self.lab, PASSING);
            }
            Ok(())
        });
    }
}

/// Whether the kernel has links for this kind of program, which vanish with
/// their descriptor. Before, a filter is attached to a queue of the device.
pub(super) fn has_links() -> bool {
    !Disabled::from_env().is_ok_and(|disabled| disabled.tcx)
        && KernelVersion::current().is_ok_and(|version| version >= KernelVersion::new(6, 6, 0))
}

fn attach(lab: &Lab, seed: u64) -> Result<Ebpf> {
    attach_where(lab, seed, PASSING, |_, _, _| Ok(()))
}

/// Attaches within the switch's network, and shows the link of each port.
pub(super) fn attach_where(
    lab: &Lab,
    seed: u64,
    place: u16,
    mut each: impl FnMut(&mut SchedClassifier, &str, SchedClassifierLinkId) -> Result<()>,
) -> Result<Ebpf> {
    let mut bpf = Ebpf::load(OBJECT).map_err(failed("loading the loss program"))?;
    let map = bpf.map_mut("ports").ok_or_else(bad_object)?;
    let mut map: HashMap<_, u32, Port> = map.try_into().map_err(failed("opening a map"))?;
    for cable in lab.cables() {
        let index = wires::index(&cable.device('h'))?;
        let port = [
            port_seed(seed, lab.place_of(cable)),
            super::last_byte(cable.host).into(),
            0,
            0,
            0,
            0,
        ];
        map.insert(index, port, 0)
            .map_err(failed("filling a map"))?;
    }
    if !has_links() {
        remove_filters(lab, place);
    }
    let program = loaded(&mut bpf, "impair")?;
    for cable in lab.cables() {
        let port = cable.device('h');
        let link = attach_at(program, &port, TcAttachType::Egress, place)?;
        each(program, &port, link)?;
    }
    Ok(bpf)
}

/// Attaches a program to a device, as a link or as a filter.
pub(super) fn attach_at(
    program: &mut SchedClassifier,
    device: &str,
    at: TcAttachType,
    place: u16,
) -> Result<SchedClassifierLinkId> {
    let attaching = failed("attaching a program of the lab");
    if has_links() {
        return program.attach(device, at).map_err(attaching);
    }
    match tc::qdisc_add_clsact(device) {
        // A line has that queue, and so have earlier programs.
        Err(TcError::NetlinkError(error)) if error.raw_os_error() == Some(EEXIST) => {}
        added => added.map_err(failed("adding a clsact queue"))?,
    }
    let filter = TcAttachOptions::Netlink(NlOptions {
        priority: place,
        ..NlOptions::default()
    });
    program
        .attach_with_options(device, at, filter)
        .map_err(attaching)
}

/// Removes the filters of that priority, which outlive the process that attached them.
pub(super) fn remove_filters(lab: &Lab, place: u16) {
    for cable in lab.cables() {
        let (device, place) = (cable.device('h'), place.to_string());
        let filter = ["filter", "del", "dev", &device, "egress", "pref", &place];
        // Mostly there is none.
        let _ = tool::run("tc", &filter, &[]);
    }
}

/// Ports of one seed draw differently.
pub(super) fn port_seed(seed: u64, place: u32) -> u64 {
    seed ^ u64::from(place + 1).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// As the program has it; shares in parts of 2^32.
fn rule(choice: Choice, loss: u64, burst: Burst, acks_only: bool, repeat: u64) -> Rule {
    let [from, to, either] = choice.words();
    let begins = burst.begins(loss);
    let acks_only = u64::from(acks_only);
    [
        from, to, either, begins, burst.min, burst.max, acks_only, repeat,
    ]
}

/// Sets what is done from now on.
pub(super) fn impair(bpf: &mut Ebpf, with: &Impairment) -> Result<()> {
    let loss = threshold("loss", with.loss)?;
    let repeat = threshold("repeat", with.repeat)?;
    let burst = with.burst.unwrap_or(Burst::SINGLE);
    set(bpf, rule(with.choice, loss, burst, with.acks_only, repeat))
}

fn set(bpf: &mut Ebpf, rule: Rule) -> Result<()> {
    let map = bpf.map_mut("rules").ok_or_else(bad_object)?;
    let mut map: Array<_, Rule> = map.try_into().map_err(failed("opening a map"))?;
    map.set(0, rule, 0).map_err(failed("setting the loss"))
}

pub(super) fn count<M: Borrow<MapData>>(map: &HashMap<M, u32, Port>) -> Result<LossCounters> {
    let mut sum = LossCounters::default();
    for entry in map.iter() {
        let (_, [_, _, judged, dropped, repeated, _]) = entry.map_err(failed("reading a map"))?;
        sum.dropped += dropped;
        sum.repeated += repeated;
        // Read while packets pass: the two counts are not of one moment.
        sum.passed += judged.saturating_sub(dropped);
    }
    Ok(sum)
}

/// A program that attaches to devices.
pub(super) fn loaded<'a>(bpf: &'a mut Ebpf, name: &str) -> Result<&'a mut SchedClassifier> {
    let program = bpf.program_mut(name).ok_or_else(bad_object)?;
    let opening = failed("opening a program of the lab");
    let program: &mut SchedClassifier = program.try_into().map_err(opening)?;
    let loading = failed("loading a program of the lab");
    program.load().map_err(loading)?;
    Ok(program)
}

pub(super) fn bad_object() -> Failure {
    Failure::new("a built-in program of the lab lacks a part: build portolan again")
}

/// Tells a failure and all that caused it. For `map_err`.
pub(super) fn failed<E: Error>(doing: &'static str) -> impl FnOnce(E) -> Failure {
    move |error| {
        let mut text = format!("{doing}: {error}");
        let mut cause = error.source();
        while let Some(error) = cause {
            text.push_str(&format!(": {error}"));
            cause = error.source();
        }
        Failure::new(text)
    }
}
