//! Who has which host port, and who may have one more.
//!
//! A host port counts as held as long as its UDP socket or its AF_XDP socket is
//! open, which the kernel says; that a connection ends, or releases one, is only
//! the moment to look. So it does not matter which process of its owner has it,
//! nor who has opened it: this service or one before it.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use portolan_sys::tell::tell;

use super::config::Config;
use super::interfaces::{Interfaces, Lease};
use super::limits::Bucket;
use super::state::{Files, Given, State, open_sockets};
use crate::print::counted;

/// Most connections at once, of all users.
const CALLERS_MAX: usize = 256;

/// So many users a second that are not named are told why they get nothing.
const STRANGERS: u32 = 50;

/// So long after its release a host port may be about to be free.
const SETTLING: Duration = Duration::from_millis(500);

/// Whether it is time to look again, `pause` after it was `looked`.
fn is_due(now: Instant, looked: Instant, pause: Duration) -> bool {
    now.saturating_duration_since(looked) >= pause
}

/// A host port that was given.
struct Held {
    number: u32,
    /// Whose connection it came by; none: that has ended, or the port was
    /// released, and it is looked whether it is held still.
    caller: Option<u64>,
    /// Since when.
    released: Option<Instant>,
    given: Given,
    /// None: of a service before.
    gate: Option<OwnedFd>,
    _lease: Lease,
}

impl Held {
    fn release(&mut self) {
        self.caller = None;
        self.released = Some(Instant::now());
    }
}

/// All that were given, and what was asked for lately.
pub struct Book {
    pub config: Config,
    files: Files,
    /// The service has mounted the file system for BPF.
    mounted: bool,
    held: Vec<Held>,
    /// Gates of each user that are not in use. The kernel does not say whether
    /// somebody keeps one, so its owner is given the same again, and never has
    /// more of them than host ports at a time.
    gates: BTreeMap<u32, Vec<OwnedFd>>,
    buckets: BTreeMap<u32, Bucket>,
    /// Of all users together that are not named.
    strangers: Bucket,
    /// When it was looked last what is held.
    looked: Instant,
    numbers: u32,
}

/// Why somebody gets nothing, for people to read.
type Refusal = String;

impl Book {
    /// With the host ports that an earlier service gave and that are held.
    ///
    /// # Errors
    /// It cannot be written down.
    pub fn new(
        config: Config,
        files: Files,
        mounted: bool,
        taken_over: Vec<(Given, Lease)>,
    ) -> io::Result<Self> {
        let mut book = Self {
            config,
            files,
            mounted,
            held: Vec::new(),
            gates: BTreeMap::new(),
            buckets: BTreeMap::new(),
            strangers: Bucket::new(Instant::now()),
            looked: Instant::now(),
            numbers: 0,
        };
        for (given, lease) in taken_over {
            book.say("taken over", &given);
            book.push(None, given, lease, None);
        }
        book.write()?;
        Ok(book)
    }

    fn push(
        &mut self,
        caller: Option<u64>,
        given: Given,
        lease: Lease,
        gate: Option<OwnedFd>,
    ) -> u32 {
        self.numbers = self.numbers.wrapping_add(1);
        self.held.push(Held {
            number: self.numbers,
            caller,
            released: None,
            given,
            gate,
            _lease: lease,
        });
        self.numbers
    }

    /// Whether a user, who has `own` connections of `all`, may have one more.
    ///
    /// # Errors
    /// Why not; nothing for one of too many users that are not named.
    pub fn admit(&mut self, uid: u32, own: usize, all: usize) -> Result<(), Option<Refusal>> {
        let named = self.config.users.contains_key(&uid);
        if !named && !self.strangers.take(Instant::now(), STRANGERS) {
            return Err(None);
        }
        let name = self.config.name(uid);
        Err(Some(if !named {
            format!(
                "user {name} may not have host ports: root can allow it in {}",
                self.config.file.display()
            )
        } else if own >= self.config.user_connections as usize {
            format!(
                "user {name} has {} to the node service, all that it allows (user_connections)",
                counted(own, "connection")
            )
        } else if all >= CALLERS_MAX {
            format!(
                "the node service has {CALLERS_MAX} connections, which are all that it takes: \
                 try again later"
            )
        } else {
            return self.count(uid).map_err(Some);
        }))
    }

    /// Counts a request of a user.
    ///
    /// # Errors
    /// It is one too many.
    pub fn count(&mut self, uid: u32) -> Result<(), Refusal> {
        let now = Instant::now();
        let bucket = self.buckets.entry(uid).or_insert_with(|| Bucket::new(now));
        let most = self.config.user_requests;
        bucket.take(now, most).then_some(()).ok_or_else(|| {
            format!(
                "user {} asks too often: user_requests allows {} a second",
                self.config.name(uid),
                counted(most as usize, "request")
            )
        })
    }

    /// Whether a user may have one more host port, of so many bytes.
    ///
    /// # Errors
    /// Why not.
    pub fn check_bounds(&self, uid: u32, bytes: u64) -> Result<(), Refusal> {
        let Config {
            ports,
            user_ports,
            user_memory_mib,
            ..
        } = self.config;
        let own = || self.held.iter().filter(|it| it.given.uid == uid);
        let memory: u64 = own().map(|it| it.given.bytes).sum();
        let has = if self.held.len() >= ports as usize {
            return Err(format!(
                "all users together have {}, all that the node service gives (ports)",
                counted(ports as usize, "host port")
            ));
        } else if own().count() >= user_ports as usize {
            let has = counted(user_ports as usize, "host port");
            format!("{has}, all that it may have (user_ports)")
        } else if memory + bytes > u64::from(user_memory_mib) << 20 {
            format!(
                "{} MiB of packet memory, one more host port takes {}, and it may have \
                 {user_memory_mib} (user_memory_mib)",
                memory >> 20,
                bytes >> 20
            )
        } else {
            return Ok(());
        };
        Err(format!("user {} has {has}", self.config.name(uid)))
    }

    /// The gate for the next host port of a user, if it has had one that is not
    /// in use.
    pub fn spare_gate(&self, uid: u32) -> Option<&OwnedFd> {
        self.gates.get(&uid)?.last()
    }

    /// Writes down that a caller is given a host port, before it is, with its
    /// user's spare gate if there is one; gives its number.
    ///
    /// # Errors
    /// It cannot be written down, and so not be given.
    pub fn enter(
        &mut self,
        caller: u64,
        given: Given,
        lease: Lease,
        gate: OwnedFd,
    ) -> Result<u32, Refusal> {
        let uid = given.uid;
        let number = self.push(Some(caller), given, lease, Some(gate));
        if let Err(error) = self.write() {
            self.held.pop();
            return Err(format!("the node service cannot write its state: {error}"));
        }
        let given = &self.held[self.held.len() - 1].given;
        self.say("given", given);
        if let Some(spare) = self.gates.get_mut(&uid) {
            spare.pop();
        }
        Ok(number)
    }

    /// A caller needs one of its host ports no more; whether it was one.
    pub fn release(&mut self, caller: u64, number: u32) -> bool {
        let is_it = |it: &&mut Held| it.number == number && it.caller == Some(caller);
        let found = self.held.iter_mut().find(is_it);
        found.map(Held::release).is_some()
    }

    /// A caller has gone.
    pub fn leave(&mut self, caller: u64) {
        let own = |it: &&mut Held| it.caller == Some(caller);
        self.held.iter_mut().filter(own).for_each(Held::release);
    }

    /// Whether a caller has a host port.
    pub fn has(&self, caller: u64) -> bool {
        self.held.iter().any(|it| it.caller == Some(caller))
    }

    /// Whether an interface carries a host port.
    pub fn uses(&self, interface: u32) -> bool {
        self.held.iter().any(|it| it.given.interface == interface)
    }

    /// Whether somebody has ever had one.
    pub const fn has_given(&self) -> bool {
        self.numbers > 0
    }

    /// Whether nobody has any.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether there are host ports of which only the kernel knows how long
    /// they are held.
    pub fn has_orphans(&self) -> bool {
        self.held.iter().any(|it| it.caller.is_none())
    }

    /// Whether a host port was released just now and is held still: a process
    /// takes a moment to end, and one that is being started has copies of all
    /// descriptors of its parent for a moment.
    pub fn is_settling(&self) -> bool {
        let now = Instant::now();
        let fresh = |it: &Held| it.released.is_some_and(|at| now - at < SETTLING);
        self.held.iter().any(fresh)
    }

    /// Takes back what has no connection and is not held any more, if it has not
    /// been looked at for so long.
    pub fn take_back(&mut self, interfaces: &Interfaces, pause: Duration) {
        let now = Instant::now();
        if !self.has_orphans() || !is_due(now, self.looked, pause) {
            return;
        }
        self.looked = now;
        // Without /proc nothing can be said.
        let Ok(open) = open_sockets() else { return };
        let is_held = |it: &Held| it.caller.is_some() || interfaces.holds(&it.given, &open);
        let (held, back): (_, Vec<Held>) = std::mem::take(&mut self.held)
            .into_iter()
            .partition(is_held);
        self.held = held;
        if !back.is_empty() {
            // What stands there too long is seen to be closed.
            let _ = self.write();
        }
        for it in back {
            self.say("back", &it.given);
            self.gates.entry(it.given.uid).or_default().extend(it.gate);
        }
    }

    /// Leaves everything to the next service.
    pub fn close(self) {
        // To drop a lease is to steer no more.
        std::mem::forget(self.held);
    }

    fn write(&self) -> io::Result<()> {
        self.files.write(&State {
            mounted: self.mounted,
            given: self.held.iter().map(|it| it.given.clone()).collect(),
        })
    }

    /// One line for the log.
    fn say(&self, what: &str, given: &Given) {
        tell(format_args!(
            "portolan node: host port {what}: {}, UDP port {}, user {}, process {}",
            given.name,
            given.udp,
            self.config.name(given.uid),
            given.pid
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_due_when_the_pause_is_over() {
        let looked = Instant::now();
        let pause = Duration::from_millis(100);
        let after = |time| is_due(looked + time, looked, pause);
        assert!(!after(Duration::ZERO) && !after(pause - Duration::from_nanos(1)));
        assert!(after(pause) && after(10 * pause));
        assert!(is_due(looked, looked, Duration::ZERO));
        // A clock that two threads read may seem to go back.
        assert!(!is_due(looked, looked + pause, pause));
    }
}
