//! Sorts a file of integers, one a line, as `sort -n` does: each rank sorts its
//! part, samples of all parts give the borders between ranks, every number
//! moves to the rank that its borders say, and the ranks write one after the
//! other's place in the output.
//!
//! `portolan run -n 2 -- target/release/examples/samplesort INPUT OUTPUT`

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use portolan::{Binding, Config, Endpoint, SendOptions};

/// Samples to rank 0.
const SAMPLES: u16 = 1;
/// Borders from rank 0.
const BORDERS: u16 = 2;
/// Numbers to their rank; the first message of each sender says how many.
const NUMBERS: u16 = 3;
/// Bytes that a rank will write.
const LENGTHS: u16 = 4;

/// Samples of each rank for each other one: so the largest part is seldom a
/// tenth above the mean.
const OVERSAMPLING: usize = 64;
/// Numbers of one message.
const BATCH: usize = 32 << 10;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// What has come of one kind, by sender.
#[derive(Default, Clone)]
struct Arrived {
    numbers: Vec<i64>,
    /// Numbers that will come, once that is known.
    expected: Option<usize>,
}

impl Arrived {
    fn is_complete(&self) -> bool {
        self.expected == Some(self.numbers.len())
    }
}

/// The messages on one port, by sender.
struct Inbox(Arc<Mutex<Vec<Arrived>>>);

impl Inbox {
    fn bind(ep: &Endpoint, port: u16) -> Result<Self> {
        let inbox = Arc::new(Mutex::new(vec![Arrived::default(); ep.size() as usize]));
        let filled = Arc::clone(&inbox);
        let take = Binding::to(move |_, m| {
            let mut inbox = filled.lock().expect("no handler panics");
            let arrived = &mut inbox[m.from as usize];
            if arrived.expected.is_none() {
                let expected = m.arg(0) as usize;
                arrived.expected = Some(expected);
                arrived.numbers.reserve_exact(expected);
            }
            let words = m.payload.chunks_exact(8);
            let word = |w: &[u8]| i64::from_le_bytes(w.try_into().expect("eight bytes"));
            arrived.numbers.extend(words.map(word));
        });
        ep.bind(port, take)?;
        Ok(Self(inbox))
    }

    /// Waits until all of `from` have sent what they announced; takes it.
    fn await_all(&self, ep: &Endpoint, from: std::ops::Range<u32>) -> Result<Vec<Vec<i64>>> {
        let range = from.start as usize..from.end as usize;
        ep.wait_until(|| {
            let inbox = self.0.lock().expect("no handler panics");
            inbox[range.clone()].iter().all(Arrived::is_complete)
        })?;
        let mut inbox = self.0.lock().expect("no handler panics");
        let taken = inbox[range]
            .iter_mut()
            .map(|it| std::mem::take(&mut it.numbers));
        Ok(taken.collect())
    }
}

/// Sends numbers in batches, the first with their count.
fn send(ep: &Endpoint, to: u32, port: u16, numbers: &[i64]) -> Result<()> {
    let count = [numbers.len() as u64];
    let options = SendOptions {
        args: &count,
        ..SendOptions::default()
    };
    let mut batches = numbers.chunks(BATCH);
    let mut bytes = Vec::with_capacity(8 * BATCH.min(numbers.len()));
    loop {
        // An empty part is announced too.
        let batch = batches.next().unwrap_or_default();
        bytes.clear();
        bytes.extend(batch.iter().flat_map(|n| n.to_le_bytes()));
        ep.send_with(to, port, &options, &bytes)?;
        if batches.len() == 0 {
            return Ok(());
        }
    }
}

/// The lines that begin in this rank's share of the file.
fn read(name: &str, rank: u32, size: u32) -> Result<Vec<i64>> {
    let file = File::open(name).map_err(|e| format!("{name}: {e}"))?;
    let length = file.metadata()?.len();
    let border = |rank: u32| length * u64::from(rank) / u64::from(size);
    let (from, to) = (border(rank), border(rank + 1));
    // From one byte before, so that a line that begins at the border shows.
    let start = from.saturating_sub(1);
    let mut text = vec![0; (to - start) as usize];
    file.read_exact_at(&mut text, start)?;
    let after_line = |text: &[u8]| {
        let end = text.iter().position(|b| *b == b'\n');
        end.map_or(text.len(), |at| at + 1)
    };
    let skip = if from == 0 { 0 } else { after_line(&text) };
    if from == to || skip == text.len() {
        return Ok(Vec::new());
    }
    // The last line may go on beyond the border.
    let mut end = to;
    while end < length && !text.ends_with(b"\n") {
        let mut bytes = vec![0; (length - end).min(64) as usize];
        file.read_exact_at(&mut bytes, end)?;
        let line = after_line(&bytes);
        text.extend(&bytes[..line]);
        end += line as u64;
    }
    let mut at = start + skip as u64;
    let mut numbers = Vec::new();
    for line in text[skip..].split_inclusive(|b| *b == b'\n') {
        let words = std::str::from_utf8(line).map(str::trim).unwrap_or("?");
        if !words.is_empty() {
            let number = words.parse().map_err(|_| {
                format!("{name}: at byte {at} stands {words:?}, which is no 64-bit integer")
            })?;
            numbers.push(number);
        }
        at += line.len() as u64;
    }
    Ok(numbers)
}

/// Up to `count` values that cut `sorted` into parts of one size.
fn pick(sorted: &[i64], count: usize) -> Vec<i64> {
    let count = count.min(sorted.len());
    (1..=count)
        .map(|i| sorted[i * sorted.len() / (count + 1)])
        .collect()
}

fn run() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(input), Some(output), None) = (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err("usage: samplesort INPUT OUTPUT".into());
    };
    let ep = Endpoint::open(Config::default())?;
    let (rank, size) = (ep.rank(), ep.size());
    let samples = Inbox::bind(&ep, SAMPLES)?;
    let borders = Inbox::bind(&ep, BORDERS)?;
    let numbers = Inbox::bind(&ep, NUMBERS)?;
    let lengths = Inbox::bind(&ep, LENGTHS)?;
    if rank == 0 {
        File::create(&output).map_err(|e| format!("{output}: {e}"))?;
    }
    ep.barrier()?;
    let start = Instant::now();
    let mut talking = Duration::ZERO;

    let mut mine = read(&input, rank, size)?;
    mine.sort_unstable();
    let read_all = mine.len();

    let since = Instant::now();
    send(&ep, 0, SAMPLES, &pick(&mine, OVERSAMPLING * size as usize))?;
    if rank == 0 {
        let mut all = samples.await_all(&ep, 0..size)?.concat();
        all.sort_unstable();
        let borders = pick(&all, size as usize - 1);
        for to in 0..size {
            send(&ep, to, BORDERS, &borders)?;
        }
    }
    let borders = borders.await_all(&ep, 0..1)?.concat();
    let mut rest = mine.as_slice();
    for to in 0..size {
        let end = match borders.get(to as usize) {
            Some(border) => rest.partition_point(|n| n <= border),
            None if to + 1 == size => rest.len(),
            // Fewer numbers than ranks: the last takes what is left.
            None => 0,
        };
        let (part, after) = rest.split_at(end);
        send(&ep, to, NUMBERS, part)?;
        rest = after;
    }
    let mut sorted = numbers.await_all(&ep, 0..size)?.concat();
    talking += since.elapsed();

    // Each sender's part is sorted: this merges them.
    sorted.sort();
    let mut text = String::with_capacity(12 * sorted.len());
    for number in &sorted {
        text.push_str(&number.to_string());
        text.push('\n');
    }
    let since = Instant::now();
    let length = [text.len() as i64];
    for to in rank + 1..size {
        send(&ep, to, LENGTHS, &length)?;
    }
    let before: i64 = lengths.await_all(&ep, 0..rank)?.concat().iter().sum();
    talking += since.elapsed();
    let file = OpenOptions::new().write(true).open(&output)?;
    file.write_all_at(text.as_bytes(), before as u64)
        .map_err(|e| format!("{output}: {e}"))?;
    ep.barrier()?;
    let took = start.elapsed();
    println!(
        "read {read_all} numbers, wrote {}; {:.0} % of {:.2} s in communication",
        sorted.len(),
        100.0 * talking.as_secs_f64() / took.as_secs_f64(),
        took.as_secs_f64()
    );
    ep.close()?;
    Ok(())
}

fn main() {
    if let Err(error) = run() {
        // In one write: ranks may share standard error.
        let line = format!("samplesort: {error}\n");
        eprint!("{line}");
        std::process::exit(1);
    }
}
