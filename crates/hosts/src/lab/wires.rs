//! Lines with a rate, within the switch's network.
//!
//! ```text
//! host: eth0 | h0 --join-- l0 | p0 : br0
//! ```
//!
//! `l0` has a bucket with the rate: the host's own line, after its device, so
//! that AF_XDP, which goes round the queue of its device, does not go round
//! it. `p0` has another, with the finite buffer: the switch's port.

use aya::maps::{HashMap, Map, MapData};
use aya::programs::tc::{NlOptions, TcAttachOptions};
use aya::programs::{TcAttachType, tc};
use aya::{Ebpf, include_bytes_aligned};
use rustix::mount::{MountFlags, mount};
use rustix::net::{AddressFamily, SocketType, netdevice::name_to_index, socket};

use super::cable::Cable;
use super::loss::{bad_object, failed, loaded};
use super::{Lab, LabLink, tool};
use crate::failure::{Failure, Result};

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/line.bpf.o"));

/// Bytes that wait before a host's own line. Its sockets hold less, so what a
/// host sends waits there and none is dropped.
const OWN_BUFFER: u64 = 64 << 20;

/// How many times the line's rate a bucket may empty itself while it catches up.
const PEAK: u64 = 10;

/// A port in the program's map (`struct port` of `line.bpf.c`): bits per
/// second, threshold and buffer in nanoseconds, the clock, packets marked.
type Port = [u64; 5];

/// Commands for `ip` that make a host's cable, its end in the host aside.
pub(super) fn links(lab: &Lab, cable: Cable) -> [String; 3] {
    let mtu = lab.shape.mtu;
    let (line, port, bridge) = (cable.device('l'), cable.device('p'), cable.bridge());
    [
        // What is segmented only as it leaves counts as one packet in a
        // bucket, and is lost as one.
        format!("link add {line} mtu {mtu} gso_max_segs 1 type veth peer name {port} mtu {mtu}"),
        format!("link set {line} up"),
        format!("link set {port} master {bridge} up"),
    ]
}

/// Gives every line its rate, within the switch's network.
pub(super) fn build(lab: &Lab, line: &LabLink) -> Result<()> {
    let (bits, mtu) = (line.rate.bits_per_s(), lab.shape.mtu);
    let (unit, own) = (line.burst(mtu), line.own_burst(mtu));
    let bucket = |device: String, burst: u64, limit: u64| {
        format!("qdisc add dev {device} root tbf rate {bits}bit burst {burst} limit {limit}")
    };
    // The second rate is there for its `mtu`: longer units are cut into packets.
    let peak = format!("peakrate {}bit mtu {unit}", bits * PEAK);
    let buckets: Vec<String> = lab
        .cables()
        .flat_map(|cable| {
            let own_line = bucket(cable.device('l'), own, OWN_BUFFER);
            let port = bucket(cable.device('p'), unit, line.buffer);
            [format!("{own_line} {peak}"), port]
        })
        .collect();
    tool::run("tc", &["-batch", "-"], &buckets)?;
    let mut bpf = Ebpf::load(OBJECT).map_err(failed("loading the programs of the lines"))?;
    join(lab, &mut bpf)?;
    match line.ecn {
        Some(threshold) => mark(lab, line, threshold, &mut bpf),
        None => Ok(()),
    }
}

fn join(lab: &Lab, bpf: &mut Ebpf) -> Result<()> {
    let map = bpf.map_mut("ends").ok_or_else(bad_object)?;
    let mut ends: HashMap<_, u32, u32> = map.try_into().map_err(failed("opening a map"))?;
    for cable in lab.cables() {
        let (outer, line) = (index(&cable.device('h'))?, index(&cable.device('l'))?);
        for (from, to) in [(outer, line), (line, outer)] {
            ends.insert(from, to, 0).map_err(failed("filling a map"))?;
        }
    }
    let devices = lab
        .cables()
        .flat_map(|cable| ['h', 'l'].map(|kind| cable.device(kind)));
    attach(bpf, "join", TcAttachType::Ingress, devices)
}

fn mark(lab: &Lab, line: &LabLink, threshold: u64, bpf: &mut Ebpf) -> Result<()> {
    let map = bpf.map_mut("ports").ok_or_else(bad_object)?;
    let mut ports: HashMap<_, u32, Port> = map.try_into().map_err(failed("opening a map"))?;
    let rate = line.rate;
    let port = [
        rate.bits_per_s(),
        rate.ns(threshold),
        rate.ns(line.buffer),
        0,
        0,
    ];
    for cable in lab.cables() {
        let index = index(&cable.device('p'))?;
        ports
            .insert(index, port, 0)
            .map_err(failed("filling a map"))?;
    }
    let devices = lab.cables().map(|cable| cable.device('p'));
    attach(bpf, "mark", TcAttachType::Egress, devices)?;
    let place = lab.folder().join("ecn");
    let doing = format!("mounting a BPF file system at {}", place.display());
    std::fs::create_dir_all(&place).map_err(Failure::io(&doing))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("bpf", &place, "bpf", flags, Some(c"mode=0700")).map_err(Failure::os(&doing))?;
    let ports = bpf.map("ports").ok_or_else(bad_object)?;
    ports
        .pin(place.join("ports"))
        .map_err(failed("pinning a map"))
}

/// Attaches a program for as long as the devices live.
fn attach(
    bpf: &mut Ebpf,
    name: &str,
    at: TcAttachType,
    devices: impl Iterator<Item = String>,
) -> Result<()> {
    let program = loaded(bpf, name)?;
    for device in devices {
        tc::qdisc_add_clsact(&device).map_err(failed("adding a clsact queue"))?;
        let options = TcAttachOptions::Netlink(NlOptions::default());
        let link = program
            .attach_with_options(&device, at, options)
            .and_then(|link| program.take_link(link))
            .map_err(failed("attaching a program to a line"))?;
        // The device holds it now; dropping the link would take it off.
        std::mem::forget(link);
    }
    Ok(())
}

/// How many packets the switch's port of each cable has marked, for root.
pub(super) fn marked(lab: &Lab) -> Result<Vec<u64>> {
    let map = MapData::from_pin(lab.folder().join("ecn/ports"))
        .and_then(Map::from_map_data)
        .map_err(failed("opening the pinned map"))?;
    let ports: HashMap<_, u32, Port> = map.try_into().map_err(failed("opening the pinned map"))?;
    lab.in_switch(|| {
        let one = |cable: Cable| {
            let index = index(&cable.device('p'))?;
            let port = ports.get(&index, 0).map_err(failed("reading a map"))?;
            Ok(port[4])
        };
        lab.cables().map(one).collect()
    })
}

/// The number of a device of the calling thread's network.
pub(super) fn index(device: &str) -> Result<u32> {
    let any = socket(AddressFamily::INET, SocketType::DGRAM, None)
        .map_err(Failure::os("opening a socket"))?;
    name_to_index(&any, device).map_err(Failure::os(format!("finding the device {device}")))
}
