//! `lab impair`: harm to packets that stays until it is taken back.
//!
//! The program's links are pinned in a BPF file system within the lab's
//! folder, so that no process needs to stay and `lab down` takes them along.
//! Before Linux 6.6 its filters stay at the switch's devices.
//! Only what the program cannot do is done by a process.

use std::fs;
use std::path::{Path, PathBuf};

use aya::maps::{HashMap, Map, MapData};
use aya::programs::links::FdLink;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::impairment::Impairment;
use super::late::LateCounters;
use super::loss::{self, LossCounters, Port, failed};
use super::store::{self, Lock};
use super::{Lab, wire};
use crate::failure::{Failure, Result};

fn place(lab: &Lab) -> PathBuf {
    lab.folder().join("bpf")
}

fn note(lab: &Lab) -> PathBuf {
    lab.folder().join("impair.json")
}

/// Sets what a lab is impaired with; nothing takes it back.
pub fn impair(lab: &Lab, wanted: &Impairment) -> Result<()> {
    wanted.check()?;
    let _lock = Lock::take()?;
    clear(lab)?;
    if wanted.is_nothing() {
        return Ok(());
    }
    lab.need_switch("packets suffer")?;
    let done = attach(lab, wanted);
    if done.is_err() {
        clear(lab)?;
    }
    done
}

fn attach(lab: &Lab, wanted: &Impairment) -> Result<()> {
    let place = place(lab);
    fs::create_dir_all(&place).map_err(Failure::io(format!("making {}", place.display())))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("bpf", &place, "bpf", flags, Some(c"mode=0700")).map_err(Failure::os(format!(
        "mounting a BPF file system at {}",
        place.display()
    )))?;
    let mut bpf = lab.in_switch(|| {
        loss::attach_where(lab, wanted.seed, loss::LASTING, |program, port, link| {
            let link = program.take_link(link).map_err(failed("taking a link"))?;
            if !loss::has_links() {
                // The filter stays with its device until it is removed.
                std::mem::forget(link);
                return Ok(());
            }
            let link: FdLink = link.try_into().map_err(failed("taking a link"))?;
            link.pin(place.join(port))
                .map_err(failed("pinning a link"))?;
            Ok(())
        })
    })?;
    loss::impair(&mut bpf, wanted)?;
    let ports = bpf.map("ports").ok_or_else(loss::bad_object)?;
    ports
        .pin(place.join("ports"))
        .map_err(failed("pinning a map"))?;
    // Its program comes behind: what is lost need not be held back.
    if wanted.needs_wire() {
        wire::start(lab, wanted)?;
    }
    let bytes = serde_json::to_vec(wanted).expect("plain data in memory");
    fs::write(note(lab), bytes).map_err(Failure::io("noting the impairment"))
}

fn clear(lab: &Lab) -> Result<()> {
    wire::stop(lab)?;
    let _ = fs::remove_file(note(lab));
    let place = place(lab);
    if store::is_mounted(&place)? {
        // Removing a pin ends its link at once.
        if let Ok(entries) = fs::read_dir(&place) {
            entries
                .flatten()
                .for_each(|entry| drop(fs::remove_file(entry.path())));
        }
        unmount(&place, UnmountFlags::DETACH)
            .map_err(Failure::os(format!("unmounting {}", place.display())))?;
        if !loss::has_links() {
            lab.in_switch(|| {
                loss::remove_filters(lab, loss::LASTING);
                loss::remove_filters(lab, loss::WIRE);
                Ok(())
            })?;
        }
    }
    let _ = fs::remove_dir(&place);
    Ok(())
}

/// What a lab is impaired with at present, and its effect.
pub(super) struct Current {
    pub with: Impairment,
    /// For root.
    pub counters: Option<LossCounters>,
    /// Where a process is needed and lives; beside it how many packets were
    /// lost because it was too slow.
    pub late: Option<(LateCounters, u64)>,
}

/// What a lab is impaired with at present; none if it is not.
pub(super) fn current(lab: &Lab) -> Result<Option<Current>> {
    let Ok(bytes) = fs::read(note(lab)) else {
        return Ok(None);
    };
    let Ok(with) = serde_json::from_slice(&bytes) else {
        return Ok(None);
    };
    let is_root = rustix::process::geteuid().is_root();
    let counters = is_root.then(|| counters(&place(lab).join("ports")));
    Ok(Some(Current {
        with,
        counters: counters.transpose()?,
        late: wire::current(lab)?,
    }))
}

fn counters(pin: &Path) -> Result<LossCounters> {
    let map = MapData::from_pin(pin).map_err(failed("opening the pinned map"))?;
    let map = Map::from_map_data(map).map_err(failed("opening the pinned map"))?;
    let map: HashMap<_, u32, Port> = map.try_into().map_err(failed("opening the pinned map"))?;
    loss::count(&map)
}
