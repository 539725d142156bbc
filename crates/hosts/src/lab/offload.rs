//! Segmentation and receive offload of a lab's devices.
//!
//! A bridge and veths pass what the sender's kernel has put together whole,
//! so that one lost unit would be 44 packets. Where loss is measured, each
//! packet travels alone.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::PathBuf;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::{Lab, Shape, tool};
use crate::failure::{Failure, Result};

/// Name for `ethtool -K`, name in the answer of `ethtool -k`.
const FEATURES: [(&str, &str); 4] = [
    ("tso", "tcp-segmentation-offload"),
    ("gso", "generic-segmentation-offload"),
    ("gro", "generic-receive-offload"),
    ("tx-udp-segmentation", "tx-udp-segmentation"),
];

/// A device on which features were on.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Device {
    namespace: String,
    name: String,
    were_on: Vec<String>,
}

/// Offload is off on every device of a lab's network while this lives. A
/// process that is killed leaves a file that says what to repair, which the
/// next `lab up` or bench does.
pub struct Offload {
    /// Locked as long as its process lives.
    file: File,
    devices: Vec<Device>,
}

impl Offload {
    /// Switches offload off.
    ///
    /// # Errors
    /// Another process has switched it off; ethtool is missing or fails.
    pub fn off(lab: &Lab) -> Result<Self> {
        let file = open(lab)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(Failure::new(format!(
                "another process measures in lab {} with offload off: wait for its end, \
                 or use another lab",
                lab.name
            )));
        }
        let mut offload = Self {
            file,
            devices: Vec::new(),
        };
        offload.repair()?;
        let mut devices = Vec::new();
        for (namespace, name) in devices_of(lab) {
            let were_on = features_on(&namespace, &name)?;
            devices.push(Device {
                namespace,
                name,
                were_on,
            });
        }
        let bytes = serde_json::to_vec(&devices).expect("plain data in memory");
        let written = offload.file.write_all(&bytes);
        written.map_err(Failure::io("noting which offload was on"))?;
        offload.devices = devices;
        // What was switched until an error is restored by the drop.
        offload
            .devices
            .iter()
            .try_for_each(|device| device.switch("off"))?;
        Ok(offload)
    }

    /// Restores what a killed process left, unless it still lives.
    pub(super) fn repair_after_crash(lab: &Lab) -> Result<()> {
        if !path(lab).exists() {
            return Ok(());
        }
        let file = open(lab)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            Self {
                file,
                devices: Vec::new(),
            }
            .repair()?;
        }
        Ok(())
    }

    /// Ends as a killed process does.
    #[cfg(test)]
    pub(super) fn abandon(mut self) {
        self.devices.clear();
    }

    /// A child of ours has the file too until it becomes another program.
    fn unlock(&self) {
        let _ = flock(&self.file, FlockOperation::Unlock);
    }

    fn repair(&mut self) -> Result<()> {
        let mut text = Vec::new();
        self.file
            .read_to_end(&mut text)
            .map_err(Failure::io("reading which offload was on"))?;
        // Cut short: it was killed before it switched anything.
        let devices: Vec<Device> = serde_json::from_slice(&text).unwrap_or_default();
        devices.iter().try_for_each(|device| device.switch("on"))?;
        self.forget()
            .map_err(Failure::io("noting that offload is restored"))
    }

    fn forget(&mut self) -> std::io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()
    }
}

impl Drop for Offload {
    fn drop(&mut self) {
        // After an error the file stays, and the next user repairs.
        if !self.devices.is_empty()
            && self
                .devices
                .iter()
                .try_for_each(|device| device.switch("on"))
                .is_ok()
        {
            let _ = self.forget();
        }
        self.unlock();
    }
}

impl Device {
    fn switch(&self, to: &str) -> Result<()> {
        if self.were_on.is_empty() {
            return Ok(());
        }
        let mut arguments = vec!["-K", &self.name];
        for feature in &self.were_on {
            arguments.extend([feature, to]);
        }
        super::enter::in_namespace(&self.namespace, || tool::run("ethtool", &arguments, &[]))
            .map(drop)
    }
}

/// All but the loopbacks: nothing between hosts passes them.
fn devices_of(lab: &Lab) -> Vec<(String, String)> {
    let switch = lab.switch_namespace();
    let bridges = lab
        .switches()
        .map(|number| (switch.clone(), format!("br{number}")));
    let kinds: &[char] = match lab.shape {
        Shape { cable: true, .. } => &[],
        Shape { line: None, .. } => &['h'],
        Shape { line: Some(_), .. } => &['h', 'l', 'p'],
    };
    let mut devices: Vec<_> = bridges.filter(|_| !kinds.is_empty()).collect();
    for cable in lab.cables() {
        devices.extend(
            kinds
                .iter()
                .map(|kind| (switch.clone(), cable.device(*kind))),
        );
        devices.push((lab.host_namespace(cable.host), cable.interface()));
    }
    devices
}

fn features_on(namespace: &str, device: &str) -> Result<Vec<String>> {
    let answer =
        super::enter::in_namespace(namespace, || tool::run("ethtool", &["-k", device], &[]))?;
    Ok(parse(&answer))
}

/// The features that are on and can be switched.
fn parse(answer: &str) -> Vec<String> {
    let is_on = |long: &str| {
        answer.lines().any(|line| {
            line.trim()
                .split_once(": ")
                .is_some_and(|(name, value)| name == long && value == "on")
        })
    };
    FEATURES
        .iter()
        .filter(|(_, long)| is_on(long))
        .map(|(short, _)| (*short).to_owned())
        .collect()
}

fn path(lab: &Lab) -> PathBuf {
    lab.folder().join("offload.json")
}

fn open(lab: &Lab) -> Result<File> {
    let path = path(lab);
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(Failure::io(format!("opening {}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_switched_counts() {
        let answer = "Features for eth0:\n\
            tcp-segmentation-offload: on\n\
            \ttx-tcp-segmentation: on\n\
            generic-segmentation-offload: on\n\
            generic-receive-offload: off\n\
            tx-udp-segmentation: on [fixed]\n";
        assert_eq!(parse(answer), ["tso", "gso"]);
    }
}
