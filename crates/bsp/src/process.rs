//! This process: what it has called in the superstep, and the steps of its life.

use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use portolan::{Config, Endpoint, SpaceId, Threads};

use crate::areas::{Area, Areas};
use crate::exchange::{Exchange, Wanted};
use crate::failure::Failure;
use crate::head::Common;
use crate::heads;
use crate::log::{PIECE_MIN, Piece};
use crate::queue::Queue;
use crate::sole::{Busy, Held, Sole};
use crate::wire::{Engine, Transport};

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
    exchange: Exchange,
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

static STAGE: Sole<Stage> = Sole::new(Stage::New);
/// How messages name this process, once it is known.
static NAME: Mutex<String> = Mutex::new(String::new());

fn stage() -> Held<'static, Stage> {
    STAGE.hold().unwrap_or_else(|busy| {
        say(match busy {
            Busy::Thread => "a call in another thread: the one that called first makes all calls",
            Busy::Call => "a call while another runs: in an exit handler",
        });
        // SAFETY: it ends the process, without the handlers of which one may call.
        unsafe { _exit(ABORTED) };
    })
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
        let config = Config::default().threads(Threads::Serialized);
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

/// Begins with at most so many processes; the others end here.
pub fn begin(most: i64) {
    const CALL: &str = "bsp_begin";
    let mut stage = stage();
    open(&mut stage, CALL);
    let Ok(most @ 1..) = u32::try_from(most) else {
        abort(CALL, &format!("{most} processes: give 1 or more"));
    };
    let endpoint = match std::mem::replace(&mut *stage, Stage::Over) {
        Stage::Open(endpoint) => endpoint,
        _ => abort(CALL, "it is called once"),
    };
    let (me, size) = (endpoint.rank(), most.min(endpoint.size()));
    if me >= size {
        let _ = endpoint.close();
        drop(stage);
        std::process::exit(0);
    }
    let transport = Transport::asked().unwrap_or_else(|why| abort(CALL, &why));
    let (intake, heads) = heads::heads(size);
    let wire = Engine::new(endpoint, size, intake, transport);
    let wire = wire.unwrap_or_else(|e| abort(CALL, &e.to_string()));
    *NAME.lock().unwrap_or_else(PoisonError::into_inner) = format!("process {me} of {size}, ");
    *stage = Stage::Running(Box::new(Process {
        wire,
        me,
        size,
        step: 0,
        areas: Areas::default(),
        exchange: Exchange::new(me, size, heads),
        queue: Queue::default(),
        tags: Tags::default(),
        began: Instant::now(),
    }));
}

/// Does something in the SPMD part.
#[inline]
pub fn with<R>(call: &str, act: impl FnOnce(&mut Process) -> R) -> R {
    match &mut *stage() {
        Stage::Running(it) => act(it),
        Stage::Over => abort(call, "it comes after bsp_end"),
        Stage::New | Stage::Open(_) => abort(call, "it comes before bsp_begin"),
    }
}

/// Ends the SPMD part, in all processes.
pub fn end() {
    const CALL: &str = "bsp_end";
    with(CALL, |it| it.sync(CALL, true));
    let over = std::mem::replace(&mut *stage(), Stage::Over);
    if let Stage::Running(it) = over
        && let Err(e) = it.wire.close()
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
        let log = &mut self.exchange.logs[to as usize];
        if bytes.len() < PIECE_MIN {
            if !log.make_room(bytes.len()) {
                no_memory(call, bytes.len());
            }
            return log.put(slot, offset, bytes);
        }
        let copy = self.wire.copy(bytes);
        let copy = copy.unwrap_or_else(|| no_memory(call, bytes.len()));
        log.piece(slot, offset, Piece::Copied(copy));
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
        self.exchange.logs[to as usize].piece(slot, offset, piece);
    }

    pub fn get(&mut self, call: &str, from: u32, start: usize, offset: u64, wanted: Wanted) {
        let slot = self.slot(call, start);
        self.exchange.get(from, slot, offset, wanted);
    }

    pub fn send(&mut self, to: u32, tag: &[u8], payload: &[u8]) {
        let log = &mut self.exchange.logs[to as usize];
        if !log.make_room(tag.len().saturating_add(payload.len())) {
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
        let Self {
            exchange,
            areas,
            wire,
            ..
        } = self;
        // SAFETY: the program's memory until the superstep's end, or until it is popped.
        unsafe { exchange.begin(&common, self.tags.sent, areas, wire)? };
        while !exchange.is_complete() {
            if let Some(seen) = exchange.heads_seen() {
                wire.wait_heads(exchange, seen)?;
                exchange.look(areas, wire)?;
            } else {
                let arrived = wire.next()?;
                exchange.take(arrived, areas, wire)?;
            }
        }
        exchange.finish(&mut self.queue, wire)?;
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
