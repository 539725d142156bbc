//! The XDP program of one interface, which steers packets to host ports.

use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aya::include_bytes_aligned;
use aya_obj::Object;
use aya_obj::generated::bpf_insn;
use portolan_link::xdp::{GATE_WORDS, SHARES_MAX};
use portolan_sys::bpf::{self, Map, MapKind, NotLoaded, SharedWords, XdpProgram};
use portolan_sys::net::{Interface, Netlink, UdpSocket};
use portolan_sys::raw::Errno;
use portolan_sys::xdp;
use rustix::net::sockopt;

use super::pins::Pins;
use super::queue::{BUSY_PAUSE, BUSY_TRIES};
use super::rules::Rules;

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/steer.bpf.o"));

const DAMAGED: &str = "the XDP program in this binary is damaged: build it again";

/// Host ports of one interface at once, as the program has it.
const PORTS_MAX: u32 = 256;
/// Own addresses that the program compares, of each family.
const OWN_MAX: usize = 4;

/// A host port in the program's map (`struct port` of `steer.bpf.c`): slot and
/// queue, longest packet, its socket's priority, addresses of IPv4 and IPv6.
type Port = [u64; 13];

/// Bytes before the addresses.
const HEAD_BYTES: usize = 24;

/// Gives a UDP socket the priority by which the program knows it; no other
/// socket of a process without privilege can have that. In a queueing discipline
/// it counts as none: the last four bits are zero, and no class has such a
/// number.
fn priority(socket: &UdpSocket) -> Result<u32, Errno> {
    const OURS: u32 = 0x7f00_0000;
    const COOKIE_MASK: u32 = 0xf_ffff;
    let cookie = sockopt::socket_cookie(socket)?;
    let priority = OURS | (cookie as u32 & COOKIE_MASK) << 4;
    socket.set_priority(priority)?;
    Ok(priority)
}

/// Builds one.
fn port(slot: u32, queue: u32, len_max: u32, priority: u32, own: &[IpAddr]) -> Port {
    let mut bytes = Vec::with_capacity(size_of::<Port>());
    for word in [slot, queue, len_max, priority] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes.resize(HEAD_BYTES, 0);
    // Those beyond the limit are reached through the kernel.
    let v4 = own.iter().filter_map(|ip| match ip {
        IpAddr::V4(ip) => Some(ip.octets()),
        IpAddr::V6(_) => None,
    });
    bytes.extend(v4.take(OWN_MAX).flatten());
    bytes.resize(HEAD_BYTES + 4 * OWN_MAX, 0);
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

/// The program, loaded, with its maps. Interfaces may have one in common: it
/// tells host ports apart by their UDP ports and by the addresses of each.
pub(super) struct Program {
    program: XdpProgram,
    ports: Map,
    sockets: Map,
    gates: Map,
    /// UDP port in each slot.
    slots: Mutex<Vec<Option<u16>>>,
}

/// The maps of the program, which pins keep.
pub(super) const MAPS: [&str; 3] = ["ports", "sockets", "gates"];

/// What a map of maps says of those in it, and `BPF_MAP_TYPE_XSKMAP` of its
/// values: numbers of objects.
const OBJECT_BYTES: u32 = 4;

impl Program {
    /// Loads the program, with the maps that are pinned, if any.
    ///
    /// Nothing of it depends on the kernel's own types, so those, which take
    /// long to read, are not looked at.
    fn load(pins: Option<&Pins>) -> Result<Self, String> {
        let mut object = Object::parse(OBJECT).map_err(|_| DAMAGED)?;
        let definitions = std::mem::take(&mut object.maps);
        let mut maps = HashMap::new();
        for name in MAPS {
            let definition = definitions.get(name).ok_or(DAMAGED)?;
            let made = match pins {
                Some(pins) => pins.map(name, kind(definition), || create(definition)),
                None => create(definition),
            };
            maps.insert(name, made.map_err(|e| refused(&e))?);
        }
        let sections: HashSet<usize> = object.functions.keys().map(|(at, _)| *at).collect();
        let placed = maps
            .iter()
            .map(|(name, map)| (*name, map.as_fd().as_raw_fd(), &definitions[*name]));
        object
            .relocate_maps(placed, &sections)
            .map_err(|_| DAMAGED)?;
        object.relocate_calls(&sections).map_err(|_| DAMAGED)?;
        let program = object.programs.get(PROGRAM).ok_or(DAMAGED)?;
        let function = object.functions.get(&program.function_key());
        let instructions = function.ok_or(DAMAGED)?.instructions.iter().map(word);
        let instructions: Vec<u64> = instructions.collect();
        let program = XdpProgram::load(PROGRAM, &instructions, TERMS);
        let program = program.map_err(|e| refused(&brief(&e)))?;
        let mut take = |name| maps.remove(name).ok_or(DAMAGED);
        let loaded = Self {
            program,
            ports: take("ports")?,
            sockets: take("sockets")?,
            gates: take("gates")?,
            slots: Mutex::default(),
        };
        if pins.is_some() {
            loaded.find_slots().map_err(|e| broken(&e))?;
        }
        Ok(loaded)
    }

    /// Takes over the slots that a pinned map knows.
    fn find_slots(&self) -> io::Result<()> {
        let mut slots = self.slots();
        for key in self.ports.keys()? {
            let Some(port) = self.ports.get(&key)? else {
                continue;
            };
            // `struct port` begins with the slot; a UDP port is in network order.
            let (Some(slot), Some(udp)) = (port.first_chunk(), key.first_chunk()) else {
                continue;
            };
            let slot = u32::from_ne_bytes(*slot).min(PORTS_MAX - 1) as usize;
            if slots.len() <= slot {
                slots.resize(slot + 1, None);
            }
            slots[slot] = Some(u16::from_be_bytes(*udp));
        }
        Ok(())
    }

    fn slots(&self) -> MutexGuard<'_, Vec<Option<u16>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Its name and its terms in the object.
const PROGRAM: &str = "steer";
const TERMS: &CStr = c"Dual MIT/GPL";

/// What a definition in the object asks for.
fn kind(definition: &aya_obj::Map) -> MapKind {
    MapKind {
        kind: definition.map_type(),
        key_bytes: definition.key_size(),
        value_bytes: match definition.inner() {
            Some(_) => OBJECT_BYTES,
            None => definition.value_size(),
        },
        entries: definition.max_entries(),
        flags: definition.map_flags(),
    }
}

fn create(definition: &aya_obj::Map) -> io::Result<Map> {
    let inner = definition.inner().map(|inner| create(&inner)).transpose()?;
    Map::create(kind(definition), inner.as_ref())
}

/// An instruction as the kernel reads it.
fn word(it: &bpf_insn) -> u64 {
    let [a, b] = it.off.to_ne_bytes();
    let [c, d, e, f] = it.imm.to_ne_bytes();
    let registers = if cfg!(target_endian = "little") {
        it.src_reg() << 4 | it.dst_reg()
    } else {
        it.dst_reg() << 4 | it.src_reg()
    };
    u64::from_ne_bytes([it.code, registers, a, b, c, d, e, f])
}

/// A program for several interfaces, loaded by the first that needs it.
#[derive(Clone, Default)]
pub(super) struct SharedProgram(Arc<Mutex<Option<Arc<Program>>>>);

/// Interfaces that share a program: it has slots for all their host ports.
pub(super) const SHARERS: u32 = PORTS_MAX / SHARES_MAX;

impl SharedProgram {
    fn get(&self) -> Result<Arc<Program>, String> {
        let mut loaded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if loaded.is_none() {
            *loaded = Some(Arc::new(Program::load(None)?));
        }
        loaded.clone().ok_or_else(|| DAMAGED.to_owned())
    }
}

/// The program, attached to an interface. Dropping it detaches it, unless it is
/// pinned; so does the end of the process, however it comes.
pub(super) struct Steering {
    program: Arc<Program>,
    /// Of an interface: the program is there as long as this is open or pinned.
    _link: Option<OwnedFd>,
    /// UDP ports that are steered at this interface.
    own: Vec<u16>,
    /// Of the card, where it takes some.
    rules: Option<Rules>,
}

impl Steering {
    /// Loads the program, not attached to anything.
    ///
    /// # Errors
    /// Why not, for people to read.
    pub fn load() -> Result<Self, String> {
        Ok(Self::over(Arc::new(Program::load(None)?)))
    }

    fn over(program: Arc<Program>) -> Self {
        Self {
            program,
            _link: None,
            own: Vec::new(),
            rules: None,
        }
    }

    /// The UDP ports that are steered.
    pub fn steered(&self) -> Vec<u16> {
        self.own.clone()
    }

    /// Attaches a program that others may have too to an interface of the
    /// calling thread's network, in its driver.
    ///
    /// # Errors
    /// Why not, for people to read.
    pub fn attach(interface: &Interface, shared: &SharedProgram) -> Result<Self, String> {
        let mut steering = Self::over(shared.get()?);
        let program = &steering.program.program;
        let mut link = program.attach(interface.index);
        // The kernel detaches a program a while after its last owner is gone.
        for _ in 0..BUSY_TRIES {
            if !matches!(&link, Err(e) if e.kind() == io::ErrorKind::ResourceBusy) {
                break;
            }
            std::thread::sleep(BUSY_PAUSE);
            link = program.attach(interface.index);
        }
        steering._link = Some(link.map_err(|e| not_attached(interface, program, &e))?);
        steering.rules = Rules::of(interface, &[]);
        Ok(steering)
    }

    /// Attaches a program of its own so that it stays when this process ends;
    /// it takes the place of one that was left.
    ///
    /// # Errors
    /// Why not, for people to read.
    pub fn attach_pinned(interface: &Interface, pins: &Pins) -> Result<Self, String> {
        let program = Program::load(Some(pins)).or_else(|_| {
            // Of a version with other maps: its host ports go on through the
            // kernel.
            pins.discard()
                .map_err(|e| format!("removing what an earlier node service left: {e}"))?;
            Program::load(Some(pins))
        })?;
        let mut steering = Self::over(Arc::new(program));
        if let Err(why) = steering.attach_again(interface, pins) {
            // Nobody else would remove the maps, for the interface is in nobody's use.
            let _ = pins.discard();
            return Err(why);
        }
        steering.own = steering.program.slots().iter().copied().flatten().collect();
        steering.rules = Rules::of(interface, &steering.own);
        Ok(steering)
    }

    /// A socket that `bind` makes and whose UDP port nobody has who shares the
    /// program; it is kept for it until [`Self::remove`].
    ///
    /// # Errors
    /// That of `bind`, or no slot is free, for people to read.
    pub fn reserve<T>(&mut self, bind: impl Fn() -> Result<(T, u16), String>) -> Result<T, String> {
        // What is bound here is not bound again.
        let mut taken = Vec::new();
        loop {
            let (socket, udp) = bind()?;
            let mut slots = self.program.slots();
            if slots.contains(&Some(udp)) {
                taken.push(socket);
                continue;
            }
            let free = slots.iter().position(Option::is_none);
            let slot = free.unwrap_or(slots.len());
            if slot >= PORTS_MAX as usize {
                return Err(format!("the interface has {PORTS_MAX} host ports already"));
            }
            if slot == slots.len() {
                slots.push(None);
            }
            slots[slot] = Some(udp);
            self.own.push(udp);
            return Ok(socket);
        }
    }

    /// Steers what comes for `socket` at UDP port `udp`, which was
    /// [reserved](Self::reserve), of `own` addresses on `queue` to `fast`,
    /// packets of at most `len_max` bytes with all headers; until either socket
    /// is closed. Gives the gate of the port, for its owner: the one that it
    /// `had`, emptied, or a new one.
    ///
    /// # Errors
    /// Why not, for people to read.
    pub fn add(
        &mut self,
        (socket, udp): (&UdpSocket, u16),
        own: &[IpAddr],
        queue: u32,
        len_max: u32,
        fast: impl AsFd,
        had: Option<&OwnedFd>,
    ) -> Result<OwnedFd, String> {
        let program = &*self.program;
        let priority = priority(socket).map_err(|e| format!("the kernel's socket: {e}"))?;
        let slot = program.slots().iter().position(|it| *it == Some(udp));
        let slot = u32::try_from(slot.ok_or("no slot was reserved")?).unwrap_or(u32::MAX);
        let failed = |e: io::Error| broken(&e);
        let key = slot.to_ne_bytes();
        let fast = fast.as_fd().as_raw_fd().to_ne_bytes();
        program.sockets.set(&key, &fast).map_err(failed)?;
        // What an earlier owner of the slot may still have mapped is not used.
        let gate = match had {
            Some(gate) => gate.try_clone(),
            None => bpf::create_shared_words(GATE_WORDS),
        }
        .map_err(failed)?;
        // The kernel waits here until no packet is between two gates.
        let inner = gate.as_raw_fd().to_ne_bytes();
        program.gates.set(&key, &inner).map_err(failed)?;
        if had.is_some() {
            let shared = SharedWords::map(gate.as_fd(), GATE_WORDS);
            let shared = shared.map_err(|e| failed(io::Error::other(e)))?;
            let empty = |word: &AtomicU64| word.store(0, Relaxed);
            shared.words().iter().for_each(empty);
        }
        let port: Vec<u8> = port(slot, queue, len_max, priority, own)
            .into_iter()
            .flat_map(u64::to_ne_bytes)
            .collect();
        program
            .ports
            .set(&udp.to_be_bytes(), &port)
            .map_err(failed)?;
        if let Some(rules) = &mut self.rules {
            rules.add(udp, queue);
        }
        Ok(gate)
    }

    /// Whether the AF_XDP socket of a UDP port that is steered is open in some
    /// process, or mapped: then it is in its slot. Where this cannot be told, it
    /// is.
    pub fn is_open(&self, udp: u16) -> bool {
        let program = &*self.program;
        let slot = program.slots().iter().position(|it| *it == Some(udp));
        let Some(slot) = slot.and_then(|slot| u32::try_from(slot).ok()) else {
            return false;
        };
        // What takes an empty slot leaves it when it is closed.
        let Ok(other) = xdp::unbound() else {
            return true;
        };
        let value = other.as_raw_fd().to_ne_bytes();
        let placed = program.sockets.set_new(&slot.to_ne_bytes(), &value);
        !matches!(placed, Ok(true))
    }

    /// Attaches the program anew if its interface has gone and another has come
    /// back under its number.
    ///
    /// # Errors
    /// Why not, for people to read.
    pub fn attach_again(&self, interface: &Interface, pins: &Pins) -> Result<(), String> {
        let program = &self.program.program;
        pins.attach(program, interface.index)
            .map_err(|e| not_attached(interface, program, &e))
    }

    /// Steers no more to a UDP port. Its socket leaves by itself when it is
    /// closed, its gate when another takes the slot.
    pub fn remove(&mut self, udp: u16) {
        let Some(place) = self.own.iter().position(|own| *own == udp) else {
            return;
        };
        self.own.swap_remove(place);
        if let Some(rules) = &mut self.rules {
            rules.remove(udp);
        }
        let _ = self.program.ports.remove(&udp.to_be_bytes());
        let mut slots = self.program.slots();
        if let Some(slot) = slots.iter_mut().find(|slot| **slot == Some(udp)) {
            *slot = None;
        }
    }
}

fn refused(why: &dyn fmt::Display) -> String {
    format!("the kernel refused the XDP program: {why}")
}

fn not_attached(interface: &Interface, program: &XdpProgram, error: &io::Error) -> String {
    let kernel = Netlink::open().ok();
    let why = kernel.and_then(|it| it.why_no_xdp(interface.index, program.as_fd()));
    let why = why.map_or(String::new(), |why| format!(" ({why})"));
    let name = &interface.name;
    format!("no XDP program can be attached to {name}: {error}{why}")
}

fn broken(error: &io::Error) -> String {
    format!("a map of the XDP program: {error}")
}

/// Why the kernel does not take the program, of its verifier's log only what
/// that ends with.
fn brief(NotLoaded { error, log }: &NotLoaded) -> String {
    match last_word(log) {
        Some(word) => format!("{word} ({error})"),
        None => error.to_string(),
    }
}

/// The last line of a verifier's log that is not about its own work.
fn last_word(log: &str) -> Option<&str> {
    const STATISTICS: [&str; 3] = ["verification time ", "stack depth ", "processed "];
    let tells = |line: &&str| !line.is_empty() && !STATISTICS.iter().any(|it| line.starts_with(it));
    log.lines().map(str::trim).rev().find(tells)
}

#[cfg(test)]
#[path = "steering_tests.rs"]
mod tests;
