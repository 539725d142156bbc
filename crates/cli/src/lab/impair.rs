//! `lab impair`: loss that stays until it is taken back.
//!
//! The program's links are pinned in a BPF file system within the lab's
//! folder, so that no process needs to stay and `lab down` takes them along.

use std::fs;
use std::path::{Path, PathBuf};

use aya::maps::{HashMap, Map, MapData};
use aya::programs::links::FdLink;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde::{Deserialize, Serialize};

use super::Lab;
use super::loss::{self, LossCounters, Port, failed};
use super::store::{self, Lock};
use crate::failure::{Failure, Result};

/// What a lab was impaired with.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Impairment {
    /// Percent of packets that are lost.
    pub loss: f64,
    /// Seed of the loss.
    pub seed: u64,
}

fn place(lab: &Lab) -> PathBuf {
    lab.folder().join("bpf")
}

fn note(lab: &Lab) -> PathBuf {
    lab.folder().join("impair.json")
}

/// Sets the loss of a lab; 0 percent takes it back.
pub(super) fn impair(lab: &Lab, wanted: Impairment) -> Result<()> {
    let limit = loss::threshold(wanted.loss)?;
    let _lock = Lock::take()?;
    clear(lab)?;
    if limit == 0 {
        return Ok(());
    }
    if !loss::has_links() {
        return Err(Failure::new(
            "lasting loss needs Linux 6.6; on older kernels only `bench --loss` can lose packets",
        ));
    }
    let done = attach(lab, wanted, limit);
    if done.is_err() {
        clear(lab)?;
    }
    done
}

fn attach(lab: &Lab, wanted: Impairment, limit: u64) -> Result<()> {
    let place = place(lab);
    fs::create_dir_all(&place).map_err(Failure::io(format!("making {}", place.display())))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("bpf", &place, "bpf", flags, Some(c"mode=0700")).map_err(Failure::os(format!(
        "mounting a BPF file system at {}",
        place.display()
    )))?;
    let mut bpf = lab.in_switch(|| {
        loss::attach_where(lab, wanted.seed, |program, host, link| {
            let link: FdLink = program
                .take_link(link)
                .map_err(failed("taking a link"))?
                .try_into()
                .map_err(failed("taking a link"))?;
            link.pin(place.join(format!("h{host}")))
                .map_err(failed("pinning a link"))?;
            Ok(())
        })
    })?;
    loss::set_threshold(&mut bpf, limit)?;
    let ports = bpf.map("ports").ok_or_else(loss::bad_object)?;
    ports
        .pin(place.join("ports"))
        .map_err(failed("pinning a map"))?;
    let bytes = serde_json::to_vec(&wanted).expect("plain data in memory");
    fs::write(note(lab), bytes).map_err(Failure::io("noting the impairment"))
}

fn clear(lab: &Lab) -> Result<()> {
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
    }
    let _ = fs::remove_dir(&place);
    Ok(())
}

/// What a lab is impaired with at present, and its effect.
pub(super) fn current(lab: &Lab) -> Result<Option<(Impairment, LossCounters)>> {
    let Ok(bytes) = fs::read(note(lab)) else {
        return Ok(None);
    };
    let Ok(impairment) = serde_json::from_slice(&bytes) else {
        return Ok(None);
    };
    let counters = counters(&place(lab).join("ports"))?;
    Ok(Some((impairment, counters)))
}

fn counters(pin: &Path) -> Result<LossCounters> {
    let map = MapData::from_pin(pin).map_err(failed("opening the pinned map"))?;
    let map = Map::from_map_data(map).map_err(failed("opening the pinned map"))?;
    let map: HashMap<_, u32, Port> = map.try_into().map_err(failed("opening the pinned map"))?;
    loss::count(&map)
}
