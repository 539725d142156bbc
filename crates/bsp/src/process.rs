//! This process: what it has called in the superstep, and the steps of its life.

use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use portolan::{Config, Endpoint, Selector, SpaceId, TaggedOptions, Threads};

use crate::areas::{Area, Areas};
use crate::exchange::{Common, Exchange, Wanted};
use crate::failure::Failure;
use crate::log::{Log, PIECE_MIN, Piece};
use crate::queue::Queue;
use crate::wire::Engine;

/// Who is not to say why all end has so long to be ended.
const PATIENCE: Duration = Duration::from_secs(5);

/// Exit code of a program that is aborted.
const ABORTED: i32 = 1;

/// Between bsp_begin and bsp_end.
pub struct Process {
    wire: Engine,
    pub me: u32,
    pub size: u32,
    step: u64,
    pub areas: Areas,
    logs: Vec<Log>,
    wanted: Vec<Vec<Wanted>>,
    pub queue: Queue,
    tags: Tags,
    began: Instant,
}

/// Lengths of tags; the queue has that of its messages.
#[derive(Clone, Copy, Debug, Default)]
struct Tags {
    /// Of messages that are sent now.
    sent: u64,
    /// Of those of the superstep after the next sync.
    set: u64,
}

/// Where this process is in its life.
enum Stage {
    New,
    /// It knows how many there are.
    Open(Endpoint),
    Running(Box<Process>),
    Over,
}

static STAGE: Mutex<Stage> = Mutex::new(Stage::New);
/// How messages name this process, once it is known.
static NAME: Mutex<String> = Mutex::new(String::new());

fn stage() -> MutexGuard<'static, Stage> {
    match STAGE.try_lock() {
        Ok(stage) => stage,
        Err(TryLockError::Poisoned(e)) => e.into_inner(),
        Err(TryLockError::WouldBlock) => {
            say("a call while another runs: in another thread, or in an exit handler");
            // SAFETY: it ends the process, without the handlers of which one may call.
            unsafe { _exit(ABORTED) };
        }
    }
}

/// Ends the program, in all processes: they are ended when one ends so.
pub fn abort(call: &str, why: &str) -> ! {
    say(&format!("{call}: {why}"));
    std::process::exit(ABORTED);
}

/// Says something in one piece: others may do so at the same time.
fn say(text: &str) {
    let name = NAME.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let line = format!("bsp: {name}{text}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

unsafe extern "C" {
    fn _exit(code: i32) -> !;
}

fn no_memory(call: &str, bytes: usize) -> ! {
    let why = format!("there is no memory for a copy of {bytes} bytes");
    abort(call, &why);
}

fn open(stage: &mut Stage, call: &str) {
    if matches!(stage, Stage::New) {
        let config = Config::default().threads(Threads::Multiple);
        match Endpoint::attach(SpaceId::BSP, config) {
            Ok(endpoint) => *stage = Stage::Open(endpoint),
            Err(e) => abort(call, &e.to_string()),
        }
    }
}

/// This process's number among all that there are, before bsp_begin.
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
        Stage::New | Stage::Over => abort("bsp_nprocs", "the program is over"),
    }
}

/// Tag of the message by which process 0 tells the others how many take part. Those of
/// supersteps are lower.
const SIZE_TAG: u64 = u64::MAX;

fn tell_others(endpoint: &Endpoint, size: u32) {
    for other in 1..endpoint.size() {
        let size = size.to_le_bytes().to_vec();
        // Who misses one that is gone says so.
        let _ = endpoint.post_send(other, SIZE_TAG, &TaggedOptions::default(), size);
    }
}

fn of_first(endpoint: &Endpoint) -> Result<u32, String> {
    let mut size = [0; 4];
    match endpoint.receive_tagged(&Selector::from(0, SIZE_TAG), &mut size) {
        Ok(_) => Ok(u32::from_le_bytes(size)),
        Err(e) => Err(format!("process 0 has not begun: {e}")),
    }
}

/// Begins with at most so many processes, as process 0 says: the others may not know yet
/// where they begin by bsp_init. Those beyond end here.
pub fn begin(most: i64) {
    const CALL: &str = "bsp_begin";
    let mut stage = stage();
    open(&mut stage, CALL);
    let endpoint = match std::mem::replace(&mut *stage, Stage::Over) {
        Stage::Open(endpoint) => endpoint,
        _ => abort(CALL, "it is called once"),
    };
    let me = endpoint.rank();
    let size = if me == 0 {
        let Ok(most @ 1..) = u32::try_from(most) else {
            abort(CALL, &format!("{most} processes: give 1 or more"));
        };
        let size = most.min(endpoint.size());
        tell_others(&endpoint, size);
        size
    } else {
        of_first(&endpoint).unwrap_or_else(|why| abort(CALL, &why))
    };
    if me >= size {
        let _ = endpoint.close();
        drop(stage);
        std::process::exit(0);
    }
    let wire = Engine::new(endpoint).unwrap_or_else(|e| abort(CALL, &e.to_string()));
    *NAME.lock().unwrap_or_else(PoisonError::into_inner) = format!("process {me} of {size}, ");
    let each = || 0..size;
    *stage = Stage::Running(Box::new(Process {
        wire,
        me,
        size,
        step: 0,
        areas: Areas::default(),
        logs: each().map(|_| Log::default()).collect(),
        wanted: each().map(|_| Vec::new()).collect(),
        queue: Queue::default(),
        tags: Tags::default(),
        began: Instant::now(),
    }));
}

/// Does something in the SPMD part.
pub fn with<R>(call: &str, act: impl FnOnce(&mut Process) -> R) -> R {
    match &mut *stage() {
        Stage::Running(it) => act(it),
        Stage::Over => abort(call, "it comes after bsp_end"),
        Stage::New | Stage::Open(_) => abort(call, "it comes before bsp_begin"),
    }
}

/// The process that a caller names.
pub fn peer<T>(call: &str, it: &Process, pid: T) -> u32
where
    T: Copy + std::fmt::Display + TryInto<u32>,
{
    match pid.try_into() {
        Ok(pid) if pid < it.size => pid,
        _ => abort(call, &format!("there is no process {pid}, of {}", it.size)),
    }
}

/// Ends the SPMD part, in all processes.
pub fn end() {
    const CALL: &str = "bsp_end";
    with(CALL, |it| it.sync(CALL, true));
    let over = std::mem::replace(&mut *stage(), Stage::Over);
    if let Stage::Running(it) = over
        && let Err(e) = it.wire.endpoint.close()
    {
        abort(CALL, &e.to_string());
    }
}

impl Process {
    pub fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// The slot of an area, for a put or get.
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

    pub fn put(&mut self, call: &str, to: u32, bytes: &[u8], start: usize, offset: u64) {
        let slot = self.slot(call, start);
        let log = &mut self.logs[to as usize];
        if !log.make_room(bytes.len()) {
            no_memory(call, bytes.len());
        }
        log.put(slot, offset, bytes);
    }

    /// A put whose bytes are read until the superstep ends, if that saves a copy.
    ///
    /// # Safety
    /// They may be, and stay as they are.
    pub unsafe fn hpput(&mut self, call: &str, to: u32, bytes: &[u8], start: usize, offset: u64) {
        if bytes.len() < PIECE_MIN {
            return self.put(call, to, bytes, start, offset);
        }
        let slot = self.slot(call, start);
        let piece = Piece::Lent(bytes.as_ptr(), bytes.len());
        self.logs[to as usize].piece(slot, offset, piece);
    }

    pub fn get(&mut self, call: &str, from: u32, start: usize, offset: u64, wanted: Wanted) {
        let slot = self.slot(call, start);
        self.logs[from as usize].get(slot, offset, wanted.bytes as u64);
        self.wanted[from as usize].push(wanted);
    }

    pub fn send(&mut self, to: u32, tag: &[u8], payload: &[u8]) {
        let log = &mut self.logs[to as usize];
        if !log.make_room_for_message(tag.len().saturating_add(payload.len())) {
            no_memory("bsp_send", payload.len());
        }
        log.message(tag, payload);
    }

    /// Of messages that are sent now, bytes.
    pub const fn tag_bytes(&self) -> u64 {
        self.tags.sent
    }

    /// Sets the length of tags, and gives what was set before.
    pub const fn set_tag_bytes(&mut self, bytes: u64) -> u64 {
        std::mem::replace(&mut self.tags.set, bytes)
    }

    pub fn push(&mut self, start: usize, bytes: u64) {
        self.areas.push(Area { start, bytes });
    }

    /// Ends the superstep.
    pub fn sync(&mut self, call: &str, ends: bool) {
        if let Err(failure) = self.try_sync(ends) {
            self.fail(call, &failure);
        }
    }

    fn try_sync(&mut self, ends: bool) -> Result<(), Failure> {
        let common = Common {
            step: self.step,
            changes: self.areas.changes(),
            tag_bytes: self.tags.set,
            ends,
        };
        // SAFETY: the program's memory until the superstep's end, or until it is popped.
        let begun = unsafe {
            Exchange::begin(
                self.me,
                common,
                self.tags.sent,
                &mut self.logs,
                std::mem::take(&mut self.wanted),
                &self.areas,
                &mut self.wire,
            )
        };
        let mut exchange = begun?;
        while !exchange.is_complete() {
            let arrived = self.wire.next()?;
            exchange.take(arrived, &self.areas, &mut self.wire)?;
        }
        self.wanted = exchange.finish(&mut self.queue, &mut self.wire)?;
        self.wanted.iter_mut().for_each(Vec::clear);
        self.areas.apply();
        self.tags.sent = self.tags.set;
        self.step += 1;
        self.wire.settle()
    }

    /// What all find out the first says, and the others are ended by its end.
    fn fail(&self, call: &str, failure: &Failure) -> ! {
        if failure.is_known_to_all() && self.me > 0 {
            std::thread::sleep(PATIENCE);
            std::process::exit(ABORTED);
        }
        abort(call, &format!("superstep {}: {failure}", self.step));
    }
}
