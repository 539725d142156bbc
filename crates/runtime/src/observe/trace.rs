//! A timeline of an endpoint, in the trace event format that Perfetto and Chrome read. Events are
//! recorded as marks in memory and written by a thread; if it does not keep up, marks are dropped
//! and counted.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use portolan_engine::{Meta, SendOptions, Tracer};
use portolan_sys::clock::now_ns;
use portolan_sys::process::hear_of_file_limit;
use portolan_sys::tell::tell;
use portolan_sys::ticks::{at_once, ns_per_tick, ticks};
use portolan_wire::{MessageNo, Priority};

use crate::sleep::{ANYBODY, CALLS};

/// Marks per buffer, and number of buffers.
const MARKS: usize = 16_384;
const BUFFERS: usize = 8;
/// Age at which a buffer that is not full is written, when the program sleeps, ns.
const WRITE_AFTER_NS: u64 = 1_000_000_000;
/// How long the processor's counter is calibrated when a trace begins, ns.
const MEASURE_NS: u64 = 5_000_000;
/// Length at which a send is shown, ns, which it takes at least: its mark has one time, taken just
/// before the message leaves.
const SEND_NS: u64 = 20;
/// Times count from the beginning of a week (of Unix time): a double then resolves a nanosecond.
const WEEK_NS: u64 = 7 * 86_400 * 1_000_000_000;

#[derive(Clone, Copy)]
enum What {
    Send,
    Handle,
    Wait,
}

/// An event, with its times in ticks of the processor's counter.
#[derive(Clone, Copy)]
struct Mark {
    began: u64,
    ended: u64,
    bytes: u64,
    /// The other rank.
    peer: u32,
    /// Number of the message; for a wait, of its call.
    number: u32,
    port: u16,
    flow: u8,
    reply: bool,
    what: What,
    /// Whether it happened in the helper thread.
    helper: bool,
    /// Whether the message came directly from its sender, not by way of others.
    direct: bool,
}

struct Batch {
    marks: Vec<Mark>,
    dropped: u64,
}

/// Records marks, and hands them to the thread that writes.
pub(crate) struct Trace {
    marks: Vec<Mark>,
    dropped: u64,
    /// Start of the wait whose end is to be marked, ticks; 0: none.
    waits_from: u64,
    /// Start of the send in progress, ticks.
    sends_from: u64,
    handed_at: u64,
    /// `None` once the trace ends.
    full: Option<Sender<Batch>>,
    empty: Receiver<Vec<Mark>>,
    writer: Option<JoinHandle<()>>,
}

impl Trace {
    /// Creates the file, and starts the thread that writes.
    pub fn begin(path: &Path, rank: u32) -> io::Result<Self> {
        let file = File::create(path)?;
        let (full, batches) = channel();
        let (give_back, empty) = channel();
        for _ in 1..BUFFERS {
            give_back
                .send(Vec::with_capacity(MARKS))
                .map_err(|_| io::ErrorKind::BrokenPipe)?;
        }
        let clock = Clock::new();
        let name = path.display().to_string();
        let writer = std::thread::Builder::new()
            .name("portolan-trace".to_owned())
            .stack_size(256 << 10)
            .spawn(move || {
                hear_of_file_limit();
                let writer = Writer {
                    out: BufWriter::with_capacity(1 << 20, file),
                    clock,
                    rank,
                    dropped: 0,
                };
                if let Err(error) = writer.run(&batches, &give_back) {
                    tell(format_args!(
                        "portolan: rank {rank}: writing the trace {name}: {error}"
                    ));
                }
            })?;
        Ok(Self {
            marks: Vec::with_capacity(MARKS),
            dropped: 0,
            waits_from: 0,
            sends_from: 0,
            handed_at: now_ns(),
            full: Some(full),
            empty,
            writer: Some(writer),
        })
    }

    fn push(&mut self, mark: Mark) {
        if self.marks.len() == MARKS {
            self.hand_over();
        }
        self.marks.push(mark);
    }

    /// Hands the marks to the thread that writes, if it has returned a buffer; else drops them.
    #[cold]
    fn hand_over(&mut self) {
        self.handed_at = now_ns();
        let Ok(next) = self.empty.try_recv() else {
            self.dropped += self.marks.len() as u64;
            self.marks.clear();
            return;
        };
        let marks = std::mem::replace(&mut self.marks, next);
        let dropped = std::mem::take(&mut self.dropped);
        if let Some(full) = &self.full {
            // The thread is gone only if it could not write, and has reported that.
            let _ = full.send(Batch { marks, dropped });
        }
    }
}

impl Tracer for Trace {
    fn note_sleep(&mut self) {
        if !self.marks.is_empty() && now_ns().saturating_sub(self.handed_at) >= WRITE_AFTER_NS {
            self.hand_over();
        }
    }

    #[cold]
    #[inline(never)]
    fn sends(&mut self) {
        self.sends_from = ticks();
    }

    #[cold]
    #[inline(never)]
    fn sent(
        &mut self,
        to: u32,
        port: u16,
        o: &SendOptions<'_>,
        number: MessageNo,
        bytes: usize,
        helper: bool,
    ) {
        let began = self.sends_from;
        self.push(Mark {
            began,
            ended: began,
            bytes: bytes as u64,
            peer: to,
            number: number.0,
            port,
            flow: o.flow as u8,
            reply: o.priority == Priority::Reply,
            what: What::Send,
            helper,
            direct: true,
        });
    }

    fn time(&self) -> u64 {
        ticks()
    }

    #[cold]
    #[inline(never)]
    fn handled(&mut self, meta: &Meta, bytes: usize, began: u64, helper: bool) {
        self.push(Mark {
            began,
            ended: ticks(),
            bytes: bytes as u64,
            peer: meta.from,
            number: meta.number.0,
            port: meta.port,
            flow: meta.flow as u8,
            reply: meta.priority == Priority::Reply,
            what: What::Handle,
            helper,
            direct: meta.direct,
        });
    }

    #[cold]
    #[inline(never)]
    fn waits(&mut self) {
        if self.waits_from == 0 {
            self.waits_from = ticks();
        }
    }

    #[cold]
    #[inline(never)]
    fn waited(&mut self, call: u32, rank: u32) {
        let began = std::mem::take(&mut self.waits_from);
        if began != 0 {
            self.push(Mark {
                began,
                ended: ticks(),
                bytes: 0,
                peer: rank,
                number: call,
                port: 0,
                flow: 0,
                reply: false,
                what: What::Wait,
                helper: false,
                direct: false,
            });
        }
    }
}

impl Drop for Trace {
    /// Writes the remaining marks first.
    fn drop(&mut self) {
        if let Some(full) = self.full.take() {
            let marks = std::mem::take(&mut self.marks);
            let _ = full.send(Batch {
                marks,
                dropped: self.dropped,
            });
        }
        if let Some(writer) = self.writer.take() {
            // Its panic would be a bug of ours, reported by the thread itself.
            let _ = writer.join();
        }
    }
}

/// Converts ticks to nanoseconds of the week.
struct Clock {
    first: (u64, u64),
    last: (u64, u64),
    rate: f64,
    /// To be added to the monotonic clock, wrapping.
    offset: u64,
}

/// Returns the time of the week, ns.
fn week_ns() -> u64 {
    let real = SystemTime::now().duration_since(UNIX_EPOCH);
    real.map_or(0, |since| since.as_nanos() as u64) % WEEK_NS
}

impl Clock {
    fn new() -> Self {
        let rate = ns_per_tick(MEASURE_NS);
        let first = at_once(ticks, now_ns);
        let (ns, real) = at_once(now_ns, week_ns);
        Self {
            first,
            last: first,
            rate,
            offset: real.wrapping_sub(ns),
        }
    }

    /// Calibrates again: the longer, the better.
    fn renew(&mut self) {
        self.last = at_once(ticks, now_ns);
        let (ticks, ns) = (self.last.0 - self.first.0, self.last.1 - self.first.1);
        if ns > 20 * MEASURE_NS {
            self.rate = ns as f64 / ticks as f64;
        }
    }

    fn ns(&self, ticks: u64) -> u64 {
        let ago = self.last.0.wrapping_sub(ticks).cast_signed() as f64 * self.rate;
        let ns = self.last.1.wrapping_add_signed(-(ago as i64));
        ns.wrapping_add(self.offset)
    }
}

/// Nanoseconds, shown as the format's microseconds.
struct Us(u64);

impl std::fmt::Display for Us {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

struct Writer {
    out: BufWriter<File>,
    clock: Clock,
    rank: u32,
    dropped: u64,
}

impl Writer {
    fn run(mut self, batches: &Receiver<Batch>, give_back: &Sender<Vec<Mark>>) -> io::Result<()> {
        let rank = self.rank;
        write!(
            self.out,
            "[\n{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{rank},\"args\":{{\"name\":\"rank {rank}\"}}}},\n\
             {{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{rank},\"tid\":0,\"args\":{{\"name\":\"caller\"}}}},\n\
             {{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{rank},\"tid\":1,\"args\":{{\"name\":\"helper\"}}}}"
        )?;
        while let Ok(Batch { mut marks, dropped }) = batches.recv() {
            self.dropped += dropped;
            self.clock.renew();
            for mark in &marks {
                self.write(mark)?;
            }
            self.out.flush()?;
            marks.clear();
            // The endpoint may have closed meanwhile.
            let _ = give_back.send(marks);
        }
        let (now, dropped) = (self.clock.ns(ticks()), self.dropped);
        writeln!(
            self.out,
            ",\n{{\"ph\":\"i\",\"s\":\"p\",\"name\":\"end of trace\",\"pid\":{rank},\"tid\":0,\
             \"ts\":{},\"args\":{{\"dropped\":{dropped}}}}}\n]",
            Us(now)
        )?;
        self.out.flush()?;
        if dropped > 0 {
            tell(format_args!(
                "portolan: rank {rank}: the trace lacks {dropped} events: they came faster than \
                 they could be written"
            ));
        }
        Ok(())
    }

    fn write(&mut self, mark: &Mark) -> io::Result<()> {
        let rank = self.rank;
        let tid = u8::from(mark.helper);
        let ended = self.clock.ns(mark.ended);
        let began = match mark.what {
            What::Send => ended - SEND_NS,
            _ => self.clock.ns(mark.began).min(ended - 1),
        };
        let (ts, dur) = (Us(began), Us(ended - began));
        let Mark {
            peer,
            number,
            port,
            bytes,
            flow,
            ..
        } = mark;
        let (name, with, end) = match mark.what {
            What::Send => ("send", "to", "s\""),
            What::Handle => ("handle", "from", "f\",\"bp\":\"e\""),
            What::Wait => {
                let call = CALLS.get(*number as usize).unwrap_or(&"?");
                write!(
                    self.out,
                    ",\n{{\"ph\":\"X\",\"name\":\"wait: {call}\",\"pid\":{rank},\"tid\":{tid},\
                     \"ts\":{ts},\"dur\":{dur},\"args\":{{"
                )?;
                if *peer != ANYBODY {
                    write!(self.out, "\"for\":{peer}")?;
                }
                return write!(self.out, "}}}}");
            }
        };
        write!(
            self.out,
            ",\n{{\"ph\":\"X\",\"name\":\"{name}\",\"pid\":{rank},\"tid\":{tid},\"ts\":{ts},\
             \"dur\":{dur},\"args\":{{\"{with}\":{peer},\"port\":{port},\"bytes\":{bytes},\
             \"flow\":{flow},\"reply\":{},\"number\":{number}}}}}",
            mark.reply
        )?;
        if mark.direct {
            let (from, to) = match mark.what {
                What::Send => (rank, *peer),
                _ => (*peer, rank),
            };
            // Both sides know all parts of the id, and no two messages share it until their number
            // wraps.
            let id = u64::from(from) << 48
                | u64::from(to) << 36
                | u64::from(mark.reply) << 35
                | u64::from(*flow) << 32
                | u64::from(*number);
            write!(
                self.out,
                ",\n{{\"ph\":\"{end},\"name\":\"message\",\"cat\":\"message\",\"id\":\"{id:#x}\",\
                 \"pid\":{rank},\"tid\":{tid},\"ts\":{ts}}}"
            )?;
        }
        Ok(())
    }
}
