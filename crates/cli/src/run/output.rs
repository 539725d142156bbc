//! The ranks' output: whole lines, each with its rank before it, or a file
//! for each stream.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use portolan_boot::launch::{Chunk, Stop};
use portolan_hosts::failure::{Failure, Result};
use portolan_hosts::print::{tell, write_fully};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use signal_hook::consts::SIGPIPE;

/// A line longer than this is broken, so that memory stays bounded.
const LINE_BYTES_MAX: usize = 1 << 20;

/// How long the last words may take to be written when all else is over.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// The thread that writes. It is not the one that watches the job: a reader
/// who has stopped must not keep Ctrl-C from working.
///
/// When this is dropped, what is left is written, unless its reader has
/// stopped: then only lines of ours are.
pub struct Output {
    /// None: no more comes.
    pieces: Option<mpsc::Sender<Piece>>,
    done: mpsc::Receiver<()>,
    untold: Untold,
}

/// What is written in the order in which it came.
enum Piece {
    OfRank(Chunk),
    /// The next of those that are untold.
    Line,
}

/// Lines of ours that wait for their turn behind the ranks' output.
type Untold = Arc<Mutex<VecDeque<String>>>;

fn tell_next(untold: &Untold) -> bool {
    let next = untold
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .pop_front();
    if let Some(line) = &next {
        tell(format_args!("{line}"));
    }
    next.is_some()
}

/// Whether standard error takes a line now: its reader may have stopped too.
pub fn is_heard() -> bool {
    let error = io::stderr();
    let found = poll(
        &mut [PollFd::new(&error, PollFlags::OUT)],
        Some(&Timespec::default()),
    );
    // What cannot be asked is tried.
    found != Ok(0)
}

impl Output {
    /// Begins to write to our standard output and error, or to the files
    /// RANK.out and RANK.err of `folder`. What it gives ends the job when
    /// that cannot go on.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn start(folder: Option<&Path>, prefix: bool) -> Result<(Self, Vec<Stop>)> {
        if let Some(folder) = folder {
            prepare(folder).map_err(|error| unwritable(folder, &error))?;
        }
        let (gone, gone_stop) = stop(128 + SIGPIPE, "nobody reads the output")?;
        let (full, full_stop) = stop(1, "the output cannot be written")?;
        let writer = Writer {
            folder: folder.map(Path::to_owned),
            prefix,
            streams: BTreeMap::new(),
            begun: BTreeSet::new(),
            gone,
            full,
            broken: false,
        };
        let (pieces, to_write) = mpsc::channel();
        let untold = Untold::default();
        let lines = Arc::clone(&untold);
        let (tell, done) = mpsc::channel();
        std::thread::Builder::new()
            .name("output".to_owned())
            .spawn(move || {
                let mut writer = writer;
                while let Ok(piece) = to_write.recv() {
                    match piece {
                        Piece::OfRank(chunk) => writer.take(&chunk),
                        Piece::Line => drop(tell_next(&lines)),
                    }
                }
                writer.end();
                // Nobody waits for it any more: the process ends.
                let _ = tell.send(());
            })
            .map_err(Failure::io("starting the thread that writes the output"))?;
        let output = Self {
            pieces: Some(pieces),
            done,
            untold,
        };
        Ok((output, vec![gone_stop, full_stop]))
    }

    /// Writes a piece in its turn.
    pub fn write(&self, chunk: Chunk) {
        self.send(Piece::OfRank(chunk));
    }

    /// Tells the user on standard error, behind what ranks wrote before.
    pub fn print(&self, line: String) {
        let mut untold = self.untold.lock().unwrap_or_else(PoisonError::into_inner);
        untold.push_back(line);
        self.send(Piece::Line);
    }

    fn send(&self, piece: Piece) {
        // The thread lives until the sender is dropped.
        let _ = self.pieces.as_ref().map(|pieces| pieces.send(piece));
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.pieces = None;
        let _ = self.done.recv_timeout(LAST_WAIT);
        while is_heard() && tell_next(&self.untold) {}
    }
}

fn stop(code: i32, why: &str) -> Result<(OwnedFd, Stop)> {
    let made = || -> io::Result<(OwnedFd, OwnedFd)> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok((bell.try_clone()?, bell))
    };
    let (bell, descriptor) = made().map_err(Failure::io("making an eventfd"))?;
    let why = why.to_owned();
    let stop = Stop {
        descriptor,
        code,
        why,
    };
    Ok((bell, stop))
}

/// Makes the folder and tries to write there.
fn prepare(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    File::create(folder.join("0.out")).map(drop)
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    let remedy = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free some space there, or choose another folder with --output"
        }
        _ => "choose another folder with --output",
    };
    Failure::new(format!("writing {}: {error}; {remedy}", path.display()))
}

/// Where a stream goes.
enum Stream {
    Lines(Lines),
    File(PathBuf, File),
}

struct Writer {
    folder: Option<PathBuf>,
    prefix: bool,
    /// By rank, kind and host: of a rank that was started again two may end at
    /// different times.
    streams: BTreeMap<(u32, bool, usize), Stream>,
    /// Files that this job has begun.
    begun: BTreeSet<PathBuf>,
    /// Rung when standard output has no reader, and when something cannot be
    /// written.
    gone: OwnedFd,
    full: OwnedFd,
    broken: bool,
}

impl Writer {
    fn take(&mut self, chunk: &Chunk) {
        let key = (chunk.rank, chunk.is_error, chunk.host);
        if !self.streams.contains_key(&key) {
            match self.open(key) {
                Ok(stream) => drop(self.streams.insert(key, stream)),
                Err(failure) => return self.fail(&failure),
            }
        }
        let Some(stream) = self.streams.get_mut(&key) else {
            return;
        };
        let mut failure = None;
        match stream {
            Stream::File(path, file) => {
                failure = file
                    .write_all(&chunk.bytes)
                    .err()
                    .map(|error| unwritable(path, &error));
            }
            Stream::Lines(lines) => {
                let mut whole = Vec::new();
                if chunk.bytes.is_empty() {
                    lines.end(&mut whole);
                } else {
                    lines.feed(&chunk.bytes, &mut whole);
                }
                self.show(&whole, chunk.is_error);
            }
        }
        if let Some(failure) = failure {
            self.fail(&failure);
        }
        if chunk.bytes.is_empty() {
            self.streams.remove(&key);
        }
    }

    fn open(&mut self, (rank, is_error, _): (u32, bool, usize)) -> Result<Stream> {
        let Some(folder) = &self.folder else {
            return Ok(Stream::Lines(Lines::new(self.prefix.then_some(rank))));
        };
        let kind = if is_error { "err" } else { "out" };
        let path = folder.join(format!("{rank}.{kind}"));
        let is_new = self.begun.insert(path.clone());
        let open = || {
            if is_new {
                File::create(&path)?;
            }
            // Behind what the rank's life before has written.
            File::options().append(true).open(&path)
        };
        let file = open().map_err(|error| unwritable(&path, &error))?;
        Ok(Stream::File(path, file))
    }

    /// Writes the last lines, which have no end.
    fn end(&mut self) {
        for ((_, is_error, _), stream) in std::mem::take(&mut self.streams) {
            if let Stream::Lines(mut lines) = stream {
                let mut rest = Vec::new();
                lines.end(&mut rest);
                self.show(&rest, is_error);
            }
        }
    }

    fn show(&mut self, bytes: &[u8], is_error: bool) {
        if bytes.is_empty() {
            return;
        }
        if is_error {
            // Nobody can be told that messages cannot be told.
            let _ = write_fully(&mut io::stderr().lock(), &io::stderr(), bytes);
            return;
        }
        if self.broken {
            return;
        }
        match write_fully(&mut io::stdout().lock(), &io::stdout(), bytes) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.broken = true;
                ring(&self.gone);
            }
            Err(error) => {
                let failure = format!(
                    "writing the ranks' output: {error}; send it elsewhere, or to files with \
                     --output DIR"
                );
                self.fail(&Failure::new(failure));
            }
        }
    }

    /// Says the first failure, and ends the job.
    fn fail(&mut self, failure: &Failure) {
        if !self.broken {
            self.broken = true;
            tell(format_args!("portolan: {failure}"));
            ring(&self.full);
        }
    }
}

fn ring(bell: &OwnedFd) {
    // It can fail only with a full counter, and then the bell rings.
    let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
}

/// Cuts a stream into lines.
struct Lines {
    /// Before each line.
    prefix: Vec<u8>,
    /// The line that has no end yet.
    partial: Vec<u8>,
}

impl Lines {
    fn new(rank: Option<u32>) -> Self {
        let prefix = rank.map_or_else(Vec::new, |rank| format!("[{rank}] ").into_bytes());
        Self {
            prefix,
            partial: Vec::new(),
        }
    }

    /// Takes bytes and gives the lines that they complete.
    fn feed(&mut self, bytes: &[u8], whole: &mut Vec<u8>) {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.partial.extend_from_slice(piece);
            if self.partial.ends_with(b"\n") {
                self.emit(whole);
            } else if self.partial.len() >= LINE_BYTES_MAX {
                self.partial.push(b'\n');
                self.emit(whole);
            }
        }
    }

    /// Gives the last line, which has no end; with a prefix it gets one.
    fn end(&mut self, whole: &mut Vec<u8>) {
        if !self.partial.is_empty() {
            if !self.prefix.is_empty() {
                self.partial.push(b'\n');
            }
            self.emit(whole);
        }
    }

    fn emit(&mut self, whole: &mut Vec<u8>) {
        whole.extend_from_slice(&self.prefix);
        whole.append(&mut self.partial);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(rank: Option<u32>, pieces: &[&str]) -> String {
        let mut lines = Lines::new(rank);
        let mut whole = Vec::new();
        for piece in pieces {
            lines.feed(piece.as_bytes(), &mut whole);
        }
        lines.end(&mut whole);
        String::from_utf8(whole).unwrap()
    }

    #[test]
    fn lines_are_whole_and_prefixed() {
        assert_eq!(
            cut(Some(3), &["a", "b\ncd\n", "\ne"]),
            "[3] ab\n[3] cd\n[3] \n[3] e\n"
        );
    }

    #[test]
    fn without_prefix_nothing_is_added() {
        assert_eq!(cut(None, &["a", "b\nc"]), "ab\nc");
    }

    #[test]
    fn an_endless_line_is_broken() {
        let long = "x".repeat(LINE_BYTES_MAX);
        assert_eq!(
            cut(Some(0), &[&long, "y\n"]),
            format!("[0] {long}\n[0] y\n")
        );
    }
}
