//! The XDP program of one interface, which steers packets to host ports.

use std::error::Error;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use aya::maps::{ArrayOfMaps, HashMap, MapData, MapError, XskMap};
use aya::programs::{ProgramError, Xdp, XdpMode};
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};
use portolan_link::xdp::GATE_WORDS;
use portolan_sys::bpf;
use portolan_sys::net::{Interface, Netlink};

use super::pins::Pins;
use super::rules::Rules;

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/steer.bpf.o"));

const DAMAGED: &str = "the XDP program in this binary is damaged: build it again";

const REFUSED: &str = "the kernel refused the XDP program";

/// Host ports of one interface at once, as the program has it.
const PORTS_MAX: u32 = 256;
/// Own addresses that the program compares, of each family.
const OWN_MAX: usize = 4;

/// A host port in the program's map (`struct port` of `steer.bpf.c`): slot and
/// queue, longest packet, addresses of IPv4 and IPv6.
type Port = [u64; 12];

/// Builds one.
fn port(slot: u32, queue: u32, len_max: u32, own: &[IpAddr]) -> Port {
    let mut bytes = Vec::with_capacity(size_of::<Port>());
    bytes.extend(slot.to_ne_bytes());
    bytes.extend(queue.to_ne_bytes());
    bytes.extend(u64::from(len_max).to_ne_bytes());
    // Those beyond the limit are reached through the kernel.
    let v4 = own.iter().filter_map(|ip| match ip {
        IpAddr::V4(ip) => Some(ip.octets()),
        IpAddr::V6(_) => None,
    });
    bytes.extend(v4.take(OWN_MAX).flatten());
    bytes.resize(16 + 4 * OWN_MAX, 0);
    let v6 = own.iter().filter_map(|ip| match ip {
        IpAddr::V6(ip) => Some(ip.octets()),
        IpAddr::V4(_) => None,
    });
    bytes.extend(v6.take(OWN_MAX).flatten());
    let mut words = bytes.chunks_exact(8);
    std::array::from_fn(|_| {
        let word = words.next().and_then(|word| word.first_chunk());
        word.map_or(0, |word| u64::from_ne_bytes(*word))
    })
}

/// The program, attached. Dropping it detaches it, unless it is pinned; so does
/// the end of the process, however it comes.
pub(super) struct Steering {
    bpf: Ebpf,
    /// UDP port in each slot.
    slots: Vec<Option<u16>>,
    /// Of the card, where it takes some.
    rules: Option<Rules>,
}

impl Steering {
    /// Loads the program, not yet attached to anything, with the maps that are
    /// pinned, if any.
    ///
    /// # Errors
    /// Why not, for people to read.
    pub fn load(pins: Option<&Pins>) -> Result<Self, String> {
        let refused = |e: &dyn Error| format!("{REFUSED}: {}", chain(e));
        let mut loader = EbpfLoader::new();
        if let Some(pins) = pins {
            pins.apply(&mut loader).map_err(|e| refused(&e))?;
        }
        let mut bpf = loader.load(OBJECT).map_err(|e| refused(&e))?;
        let program: &mut Xdp = bpf
            .program_mut("steer")
            .and_then(|program| program.try_into().ok())
            .ok_or(DAMAGED)?;
        program
            .load()
            .map_err(|e| format!("{REFUSED}: {}", brief(&e)))?;
        let mut steering = Self {
            bpf,
            slots: Vec::new(),
            rules: None,
        };
        if pins.is_some() {
            steering.find_slots()?;
        }
        Ok(steering)
    }

    /// Takes over the slots that a pinned map knows.
    fn find_slots(&mut self) -> Result<(), String> {
        let failed = |e: MapError| broken(&e);
        let ports: Vec<(u16, Port)> = self
            .ports()?
            .iter()
            .collect::<Result<_, _>>()
            .map_err(failed)?;
        for (udp, [first, ..]) in ports {
            // `struct port` begins with the slot.
            let [a, b, c, d, ..] = first.to_ne_bytes();
            let slot = u32::from_ne_bytes([a, b, c, d]);
            let slot = usize::try_from(slot.min(PORTS_MAX - 1)).unwrap_or_default();
            if self.slots.len() <= slot {
                self.slots.resize(slot + 1, None);
            }
            self.slots[slot] = Some(u16::from_be(udp));
        }
        Ok(())
    }

    /// The UDP ports that are steered.
    pub fn steered(&self) -> Vec<u16> {
        self.slots.iter().copied().flatten().collect()
    }

    /// Attaches to an interface of the calling thread's network, in its driver.
    /// With `pins` it stays when this process ends, and takes the place of one
    /// that was left.
    ///
    /// # Errors
    /// Why not, for people to read.
    pub fn attach(interface: &Interface, pins: Option<&Pins>) -> Result<Self, String> {
        let mut steering = match (Self::load(pins), pins) {
            // Of a version with other maps: its host ports go on through the
            // kernel.
            (Err(_), Some(left)) => {
                left.discard()
                    .map_err(|e| format!("removing what an earlier node service left: {e}"))?;
                Self::load(pins)?
            }
            (loaded, _) => loaded?,
        };
        let program = steering.bpf.program_mut("steer").ok_or(DAMAGED)?;
        let program: &mut Xdp = program.try_into().map_err(|_| DAMAGED)?;
        match pins {
            Some(pins) => pins.attach(program, interface.index),
            None => program
                .attach_to_if_index(interface.index, XdpMode::Driver)
                .map(drop)
                .map_err(Into::into),
        }
        .map_err(|e| {
            let asked = program.fd().ok().zip(Netlink::open().ok());
            let why = asked
                .and_then(|(program, kernel)| kernel.why_no_xdp(interface.index, program.as_fd()));
            let why = why.map_or(String::new(), |why| format!(" ({why})"));
            let name = &interface.name;
            format!(
                "no XDP program can be attached to {name}: {}{why}",
                chain(&*e)
            )
        })?;
        steering.rules = Rules::of(interface, &steering.steered());
        Ok(steering)
    }

    /// Steers what comes for UDP port `udp` of `own` addresses on `queue` to
    /// `socket`, packets of at most `len_max` bytes with all headers. Gives the
    /// gate of the port, for its owner.
    ///
    /// # Errors
    /// Why not, for people to read.
    pub fn add(
        &mut self,
        udp: u16,
        own: &[IpAddr],
        queue: u32,
        len_max: u32,
        socket: impl AsFd,
    ) -> Result<OwnedFd, String> {
        let free = self.slots.iter().position(Option::is_none);
        let slot = free.unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let index = u32::try_from(slot).unwrap_or(u32::MAX);
        if index >= PORTS_MAX {
            return Err(format!("the interface has {PORTS_MAX} host ports already"));
        }
        let port = port(index, queue, len_max, own);
        let failed = |e: MapError| broken(&e);
        let mut sockets =
            XskMap::try_from(self.bpf.map_mut("sockets").ok_or(DAMAGED)?).map_err(failed)?;
        sockets
            .set(index, socket.as_fd().as_raw_fd(), 0)
            .map_err(failed)?;
        // What an earlier owner of the slot may still have mapped is not used.
        let gate = bpf::create_shared_words(GATE_WORDS).map_err(|e| broken(&e))?;
        let inner = gate.try_clone().map_err(|e| broken(&e))?;
        let inner = MapData::from_fd(inner).map_err(failed)?;
        let mut gates: ArrayOfMaps<_> =
            ArrayOfMaps::try_from(self.bpf.map_mut("gates").ok_or(DAMAGED)?).map_err(failed)?;
        gates.set(index, &inner, 0).map_err(failed)?;
        self.ports()?.insert(udp.to_be(), port, 0).map_err(failed)?;
        self.slots[slot] = Some(udp);
        if let Some(rules) = &mut self.rules {
            rules.add(udp, queue);
        }
        Ok(gate)
    }

    /// Steers no more to a UDP port. Its socket leaves by itself when it is
    /// closed, its gate when another takes the slot.
    pub fn remove(&mut self, udp: u16) {
        if let Some(slot) = self.slots.iter_mut().find(|slot| **slot == Some(udp)) {
            *slot = None;
            if let Some(rules) = &mut self.rules {
                rules.remove(udp);
            }
            if let Ok(mut ports) = self.ports() {
                let _ = ports.remove(&udp.to_be());
            }
        }
    }

    #[cfg(test)]
    fn program(&self) -> &Xdp {
        let program = self.bpf.program("steer").expect("it was loaded");
        program.try_into().expect("it was loaded")
    }

    fn ports(&mut self) -> Result<HashMap<&mut aya::maps::MapData, u16, Port>, String> {
        let map = self.bpf.map_mut("ports").ok_or(DAMAGED)?;
        map.try_into().map_err(|e: MapError| broken(&e))
    }
}

fn broken(error: &dyn Error) -> String {
    format!("a map of the XDP program: {}", chain(error))
}

/// Why a program was not loaded: of the verifier's log only what it ends with.
fn brief(error: &ProgramError) -> String {
    let ProgramError::LoadError {
        io_error,
        verifier_log,
    } = error
    else {
        return chain(error);
    };
    match last_word(&verifier_log.to_string()) {
        Some(word) => format!("{word} ({io_error})"),
        None => io_error.to_string(),
    }
}

/// The last line of a verifier's log that is not about its own work.
fn last_word(log: &str) -> Option<&str> {
    const STATISTICS: [&str; 3] = ["verification time ", "stack depth ", "processed "];
    let tells = |line: &&str| !line.is_empty() && !STATISTICS.iter().any(|it| line.starts_with(it));
    log.lines().map(str::trim).rev().find(tells)
}

/// An error and what led to it, in one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
#[path = "steering_tests.rs"]
mod tests;
