//! This process: its calls in the superstep, and the stages of its life.

use std::path::Path;
use std::time::{Duration, Instant};

use portolan::c_edge::var_os;
use portolan::{Config, Endpoint, MESSAGE_BYTES_MAX, Selector, SpaceId, TaggedOptions, Threads};

use crate::areas::{Area, Areas, NotNull};
use crate::check::Checks;
use crate::direct::Direct;
use crate::ending::{self, abort, end_all, end_now, end_silently, say};
use crate::exchange::{SuperstepExchange, Wanted};
use crate::failure::Failure;
use crate::head::Common;
use crate::heads;
use crate::log::{PIECE_MIN, Piece};
use crate::measured::Measured;
use crate::profile::{Profile, Writer};
use crate::queue::Queue;
use crate::sole::{Busy, Held, Sole};
use crate::wire::{Engine, Transport};

/// Time that other processes wait to be ended, when process 0 reports a common failure.
const PATIENCE: Duration = Duration::from_secs(5);

/// With `BSP_CHECK=1`: time in a sync after which a process reports whom it waits for.
const TOLD_AFTER: Duration = Duration::from_secs(10);

/// State between bsp_begin and bsp_end.
pub struct Process {
    wire: Engine,
    pub me: u32,
    pub size: u32,
    step: u64,
    pub areas: Areas,
    exchange: SuperstepExchange,
    direct: Direct,
    pub queue: Queue,
    tags: Tags,
    began: Instant,
    /// Time of the last bsp_dtime call.
    asked: Instant,
    profile: Option<Box<Profile>>,
    pub measured: Measured,
}

/// Lengths of tags, bytes; the queue has that of its messages.
#[derive(Clone, Copy, Debug, Default)]
struct Tags {
    /// Length in messages sent in this superstep.
    sent: u64,
    /// Length in messages sent from the next sync on.
    set: u64,
}

enum Stage {
    New,
    /// The endpoint is open, and the number of processes known.
    Open(Endpoint),
    Running(Box<Process>),
    /// Ended, with the number of processes that took part.
    Over(u32),
}

static STAGE: Sole<Stage> = Sole::new(Stage::New);

#[inline]
fn stage() -> Held<'static, Stage> {
    STAGE.hold().unwrap_or_else(|busy| refuse(busy))
}

#[cold]
fn refuse(busy: Busy) -> ! {
    say(match busy {
        Busy::Thread => "a call in another thread: the one that called first makes all calls",
        Busy::Call => "a call while another runs: in an exit handler",
    });
    // Exit handlers are skipped, since one of them may make a call.
    end_now()
}

/// Aborts if no message can carry `bytes`.
fn check_length(call: &str, bytes: usize) {
    if bytes as u64 > MESSAGE_BYTES_MAX {
        abort(call, &format!("{bytes} bytes: give 2^38 at most"));
    }
}

#[cold]
fn no_memory(call: &str, bytes: usize) -> ! {
    // The line of the call is left out: finding it takes memory too.
    end_all(&format!(
        "{call}: there is no memory for a copy of {bytes} bytes"
    ))
}

/// Aborts: there is no memory to record a call.
#[cold]
fn no_memory_for_call(call: &str) -> ! {
    end_all(&format!("{call}: there is no memory to note it"))
}

fn open(stage: &mut Stage, call: &str) {
    if matches!(stage, Stage::New) {
        let config = Config::default().threads(Threads::Serialized);
        match Endpoint::attach(SpaceId::BSP, config) {
            Ok(endpoint) => *stage = Stage::Open(endpoint),
            Err(e) => abort(call, &e.to_string()),
        }
    }
}

/// Returns this process's rank among all that exist, before bsp_begin.
pub fn rank(call: &str) -> u32 {
    let mut stage = stage();
    open(&mut stage, call);
    match &*stage {
        Stage::Open(endpoint) => endpoint.rank(),
        _ => abort(call, "it comes before bsp_begin, and once"),
    }
}

pub fn nprocs() -> u32 {
    let mut stage = stage();
    open(&mut stage, "bsp_nprocs");
    match &*stage {
        Stage::Running(it) => it.size,
        Stage::Open(endpoint) => endpoint.size(),
        Stage::Over(size) => *size,
        Stage::New => abort("bsp_nprocs", "the endpoint is not open"),
    }
}

/// Tag of the message in which process 0 sends the number of processes that take part, and
/// the transport. Tags of supersteps are lower.
const SIZE_TAG: u64 = u64::MAX;

fn tell_others(endpoint: &Endpoint, size: u32, transport: Transport) {
    for other in 1..endpoint.size() {
        let told = [&size.to_le_bytes()[..], &[transport as u8]].concat();
        // A dead receiver is reported by the process that misses it.
        let _ = endpoint.post_send(other, SIZE_TAG, &TaggedOptions::default(), told);
    }
}

fn of_first(endpoint: &Endpoint, transport: Transport) -> Result<u32, String> {
    let mut told = [0; 5];
    let received = endpoint.receive_tagged(&Selector::from(0, SIZE_TAG), &mut told);
    received.map_err(|e| format!("process 0 ended before this one could begin: {e}"))?;
    let [size @ .., its] = told;
    if its != transport as u8 {
        let why = "all processes must have the same BSP_TRANSPORT: process 0 has another than \
                   process";
        return Err(format!("{why} {}", endpoint.rank()));
    }
    Ok(u32::from_le_bytes(size))
}

/// Begins with at most `most` processes. Process 0's number counts: after bsp_init the
/// others may not know theirs. Processes beyond it exit here.
pub fn begin(most: i64) {
    const CALL: &str = "bsp_begin";
    let mut stage = stage();
    open(&mut stage, CALL);
    let endpoint = match std::mem::replace(&mut *stage, Stage::Over(0)) {
        Stage::Open(endpoint) => endpoint,
        _ => abort(CALL, "it is called once"),
    };
    let me = endpoint.rank();
    if endpoint.restarts(me).is_ok_and(|restarts| restarts > 0) {
        let why = "this process was started again, and the others do not begin again with it: run \
                   without --respawn";
        abort(CALL, why);
    }
    let transport = Transport::asked().unwrap_or_else(|why| abort(CALL, &why));
    let size = if me == 0 {
        let Ok(most @ 1..) = u32::try_from(most) else {
            abort(CALL, &format!("{most} processes: give 1 or more"));
        };
        let size = most.min(endpoint.size());
        tell_others(&endpoint, size, transport);
        size
    } else {
        of_first(&endpoint, transport).unwrap_or_else(|why| abort(CALL, &why))
    };
    if me >= size {
        let _ = endpoint.close();
        drop(stage);
        std::process::exit(0);
    }
    let direct = Direct::new(&endpoint).unwrap_or_else(|e| abort(CALL, &e.to_string()));
    let (intake, heads) = heads::heads(size);
    let wire = Engine::new(endpoint, size, intake, transport);
    let wire = wire.unwrap_or_else(|e| abort(CALL, &e.to_string()));
    ending::watch(format!("process {me} of {size}, "), ends_early);
    let link = wire.link((me + 1) % size);
    let measured = Measured::of(link, size);
    let writer = Writer {
        me,
        size,
        link,
        measured,
    };
    let profile = profile(&writer, &wire);
    let mut exchange = SuperstepExchange::new(me, size, heads);
    exchange.checks = checks();
    let began = Instant::now();
    *stage = Stage::Running(Box::new(Process {
        wire,
        me,
        size,
        step: 0,
        areas: Areas::default(),
        exchange,
        direct,
        queue: Queue::default(),
        tags: Tags::default(),
        began,
        asked: began,
        profile,
        measured,
    }));
}

/// Returns whether a process that exits should have called bsp_end first.
fn ends_early() -> bool {
    match STAGE.hold().as_deref_mut() {
        Ok(Stage::Running(it)) => {
            if let Some(profile) = &mut it.profile {
                // The error reported next is worse.
                let _ = profile.flush();
            }
            true
        }
        Ok(_) => false,
        // Exits within a call, or in another thread.
        Err(_) => true,
    }
}

/// Returns the checks that `BSP_CHECK` asks for.
fn checks() -> Option<Checks> {
    let asked = var_os("BSP_CHECK").filter(|it| !it.is_empty())?;
    match asked.to_str() {
        Some("0") => None,
        Some("1") => Some(Checks::default()),
        _ => abort(
            "bsp_begin",
            &format!("BSP_CHECK={}: give 1 or 0", asked.display()),
        ),
    }
}

/// Begins the profile that `BSP_PROFILE` asks for.
fn profile(writer: &Writer<'_>, wire: &Engine) -> Option<Box<Profile>> {
    let folder = var_os("BSP_PROFILE").filter(|it| !it.is_empty())?;
    let begun = wire
        .counters()
        .map(|counters| Profile::begin(Path::new(&folder), writer, counters));
    match begun {
        Ok(Ok(profile)) => Some(Box::new(profile)),
        Ok(Err(e)) => abort(
            "bsp_begin",
            &format!("BSP_PROFILE: writing to {}: {e}", folder.display()),
        ),
        Err(e) => abort("bsp_begin", &e.to_string()),
    }
}

/// Runs `act` in the SPMD part; aborts elsewhere. Inlined, so that a short put is one call.
#[inline(always)]
pub fn with<R>(call: &str, act: impl FnOnce(&mut Process) -> R) -> R {
    match &mut *stage() {
        Stage::Running(it) => act(it),
        Stage::Over(_) => abort(call, "it comes after bsp_end"),
        Stage::New | Stage::Open(_) => abort(call, "it comes before bsp_begin"),
    }
}

/// Checks the process number that a caller names, or aborts.
#[inline]
pub fn peer<T>(call: &str, it: &Process, pid: T) -> u32
where
    T: Copy + std::fmt::Display + TryInto<u32>,
{
    match pid.try_into() {
        Ok(pid) if pid < it.size => pid,
        _ => no_peer(call, pid, it.size),
    }
}

#[cold]
fn no_peer(call: &str, pid: impl std::fmt::Display, size: u32) -> ! {
    abort(call, &format!("there is no process {pid}, of {size}"))
}

/// Ends the SPMD part, in all processes.
pub fn end() {
    const CALL: &str = "bsp_end";
    with(CALL, |it| it.sync(CALL, true));
    let size = with(CALL, |it| it.size);
    let over = std::mem::replace(&mut *stage(), Stage::Over(size));
    if let Stage::Running(it) = over
        && let Err(e) = it.wire.close()
    {
        abort(CALL, &e.to_string());
    }
}

/// Reports which processes are waited for, unless a lower-numbered one does.
fn tell_who_is_where(me: u32, step: u64, exchange: &SuperstepExchange) {
    let missing: Vec<u32> = exchange.missing().collect();
    if (0..me).all(|who| missing.contains(&who)) {
        let missing: Vec<String> = missing.iter().map(u32::to_string).collect();
        say(&format!(
            "bsp_sync: superstep {step}: still waiting: process {} has not called it, the others \
             have",
            missing.join(", ")
        ));
    }
}

impl Process {
    pub fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Seconds since the last call, or since bsp_begin.
    pub fn seconds_since(&mut self) -> f64 {
        let now = Instant::now();
        let before = std::mem::replace(&mut self.asked, now);
        now.duration_since(before).as_secs_f64()
    }

    /// Returns the slot of a registered area, or aborts.
    fn slot(&mut self, call: &str, start: usize) -> u32 {
        self.areas.find(start).unwrap_or_else(|| {
            abort(
                call,
                if self.areas.is_pushed(start) {
                    "the area is registered from the next bsp_sync on"
                } else {
                    "the area is not registered"
                },
            )
        })
    }

    /// Puts a word on the log's fast path; false if that is not possible and nothing was done.
    #[inline]
    pub fn put_word(&mut self, to: u32, word: &[u8; 8], start: usize, offset: u64) -> bool {
        let log = self.exchange.logs.get_mut(to as usize);
        log.is_some_and(|log| log.word(start, offset, word))
    }

    pub fn put(&mut self, call: &str, to: u32, bytes: &[u8], start: usize, offset: u64) {
        self.put_as(call, to, bytes, (start, offset), false);
    }

    fn put_as(
        &mut self,
        call: &str,
        to: u32,
        bytes: &[u8],
        (start, offset): (usize, u64),
        hp: bool,
    ) {
        let slot = self.slot(call, start);
        let log = &mut self.exchange.logs[to as usize];
        if bytes.len() < PIECE_MIN {
            if !log.make_room(bytes.len()) {
                no_memory(call, bytes.len());
            }
            log.put(slot, offset, bytes, hp);
            return log.begin_words(start);
        }
        let copy = self.wire.copy(bytes);
        let copy = copy.unwrap_or_else(|| no_memory(call, bytes.len()));
        if !log.make_room_for_piece() {
            no_memory_for_call(call);
        }
        log.piece(slot, offset, Piece::Copied(copy));
    }

    /// Unbuffered put: a long one is read until the superstep ends, a short one is copied.
    ///
    /// # Safety
    /// `bytes` stays valid and unchanged until the superstep ends.
    pub unsafe fn hpput(&mut self, call: &str, to: u32, bytes: &[u8], start: usize, offset: u64) {
        if let Some(checks) = &mut self.exchange.checks {
            checks.put(to, bytes);
        }
        if bytes.len() < PIECE_MIN {
            return self.put_as(call, to, bytes, (start, offset), true);
        }
        check_length(call, bytes.len());
        let slot = self.slot(call, start);
        let piece = Piece::Lent(bytes.as_ptr(), bytes.len());
        let log = &mut self.exchange.logs[to as usize];
        if !log.make_room_for_piece() {
            no_memory_for_call(call);
        }
        log.piece(slot, offset, piece);
    }

    pub fn get(&mut self, call: &str, from: u32, start: usize, offset: u64, wanted: Wanted) {
        check_length(call, wanted.bytes);
        let slot = self.slot(call, start);
        if !self.exchange.get(from, slot, offset, wanted) {
            no_memory_for_call(call);
        }
    }

    /// Get that reads at once.
    ///
    /// # Safety
    /// The memory that `into` names may be written.
    pub unsafe fn direct_get(
        &mut self,
        call: &str,
        from: u32,
        (start, offset): (usize, u64),
        into: &Wanted,
    ) {
        let slot = self.slot(call, start);
        let read = if from == self.me {
            let place = self.areas.place(slot, offset, into.bytes as u64);
            let outside = |why| Failure::OutsideThere {
                offset,
                bytes: into.bytes as u64,
                whose: from,
                why,
            };
            // SAFETY: the place lies in a registered area; the target is promised by the caller.
            place
                .map(|place| unsafe { place.copy_to(into.into, into.bytes) })
                .map_err(outside)
        } else {
            // SAFETY: promised by the caller.
            let bytes = unsafe { std::slice::from_raw_parts_mut(into.into, into.bytes) };
            let endpoint = &self.wire.endpoint;
            (self.direct).get(endpoint, (from, self.step), (slot, offset), bytes)
        };
        if let Err(failure) = read {
            self.fail(call, &failure);
        }
    }

    pub fn send(&mut self, to: u32, tag: &[u8], payload: &[u8]) {
        let log = &mut self.exchange.logs[to as usize];
        if !log.make_room(tag.len().saturating_add(payload.len())) {
            no_memory("bsp_send", payload.len());
        }
        log.message(tag, payload);
    }

    /// Length of tags in messages sent now, bytes.
    pub const fn tag_bytes(&self) -> u64 {
        self.tags.sent
    }

    /// Sets the length of tags, and returns the length set before.
    pub const fn set_tag_bytes(&mut self, bytes: u64) -> u64 {
        std::mem::replace(&mut self.tags.set, bytes)
    }

    pub fn push(&mut self, start: usize, bytes: u64) {
        if !self.areas.push(Area { start, bytes }) {
            no_memory_for_call("bsp_push_reg");
        }
    }

    /// Ends the superstep.
    pub fn sync(&mut self, call: &str, ends: bool) {
        if let Err(failure) = self.try_sync(ends) {
            self.fail(call, &failure);
        }
    }

    fn try_sync(&mut self, ends: bool) -> Result<(), Failure> {
        self.wire.check_fork()?;
        let common = Common {
            step: self.step,
            changes: self.areas.changes(),
            tag_bytes: self.tags.set,
            ends,
        };
        let Self {
            exchange,
            areas,
            wire,
            profile,
            direct,
            ..
        } = self;
        if let Some(profile) = profile {
            profile.call();
        }
        // SAFETY: the program's memory stays valid until the superstep ends, or it is popped.
        unsafe { exchange.begin(&common, self.tags.sent, areas, wire)? };
        while !exchange.is_complete() {
            if let Some(seen) = exchange.heads_seen() {
                let since = profile.as_ref().map(|_| Instant::now());
                let limit = exchange.checks.as_ref().map(|_| TOLD_AFTER);
                while !wire.wait_heads(exchange, seen, limit)? {
                    tell_who_is_where(self.me, self.step, exchange);
                }
                if let (Some(profile), Some(since)) = (&mut *profile, since) {
                    profile.waited(since);
                }
                exchange.look(areas, wire)?;
            } else {
                let arrived = wire.next()?;
                exchange.take(arrived, areas, wire)?;
            }
        }
        let volume = profile.as_ref().map(|_| exchange.volume());
        exchange.finish(&mut self.queue, wire)?;
        let others = areas.apply(exchange.popped());
        let others = others.map_err(|NotNull { other }| Failure::PoppedNull { other })?;
        direct.begin(self.step + 1, others.then(|| areas.slots()));
        self.tags.sent = self.tags.set;
        wire.settle()?;
        if let (Some(profile), Some(volume)) = (profile, volume) {
            let written = profile.end(self.step, volume, wire.counters()?);
            let written = if ends {
                written.and_then(|()| profile.close())
            } else {
                written
            };
            written.map_err(|error| Failure::Profile {
                file: profile.path().display().to_string(),
                error: error.to_string(),
            })?;
        }
        self.step += 1;
        Ok(())
    }

    /// Ends the program. A failure that all processes find is reported by process 0, whose end
    /// ends the others.
    fn fail(&mut self, call: &str, failure: &Failure) -> ! {
        if let Some(profile) = &mut self.profile {
            // The failure counts more.
            let _ = profile.flush();
        }
        if failure.is_known_to_all() && self.me > 0 {
            std::thread::sleep(PATIENCE);
            end_silently();
        }
        let text = format!("superstep {}: {failure}", self.step);
        if matches!(failure, Failure::NoMemory { .. }) {
            end_all(&format!("{call}: {text}"));
        }
        abort(call, &text);
    }
}
