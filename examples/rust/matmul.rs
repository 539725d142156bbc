//! Parallel matrix multiply by active messages: each rank owns a block of
//! columns of A, B and C, fetches A's other columns from their owners by
//! split-phase requests and computes while they are on their way.
//!
//! `portolan run -n 4 -- target/release/examples/matmul --size 64,128,256`
//!
//! Every product is checked, element by element, against a plain triple loop.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use portolan::{Binding, Config, Endpoint, SendOptions};

/// Request: `[index, row or ALL, column of the owner's block]`.
const FETCH: u16 = 1;
/// Answer with four 32-bit words: `[index, row, words 0 and 1, words 2 and 3]`.
const WORDS: u16 = 2;
/// Answer with a whole column: `[index]` and its bytes.
const LONG: u16 = 3;
/// A rank's figures, to rank 0: `[total ns, computing ns, wrong elements]`.
const FIGURES: u16 = 4;

const ALL: u64 = u64::MAX;
/// Columns that are on their way while one is worked on.
const AHEAD: usize = 8;
/// Each multiplication is repeated; medians are printed.
const REPEATS: usize = 11;

type Error = Box<dyn std::error::Error>;

#[derive(Clone, Copy, PartialEq)]
enum Fetch {
    /// Four 32-bit words by each request.
    Words,
    /// A whole column by each request.
    Long,
}

/// A is `rows` x `inner`, B `inner` x `ranks * columns`.
#[derive(Clone, Copy)]
struct Shape {
    rows: usize,
    inner: usize,
    columns: usize,
}

/// Small whole numbers: their sums of products are exact in 32-bit floats.
fn a(row: usize, column: usize) -> f32 {
    ((row * 7 + column * 3) % 9) as f32 - 4.0
}

fn b(row: usize, column: usize) -> f32 {
    ((row * 5 + column * 11) % 7) as f32 - 3.0
}

/// A column of A that was asked for.
#[derive(Default)]
struct Landing {
    index: usize,
    missing: usize,
    values: Vec<f32>,
}

/// Those that are on their way; entry `index % AHEAD`.
#[derive(Default)]
struct Landings([Landing; AHEAD]);

impl Landings {
    fn expect(&mut self, index: usize, rows: usize) {
        let landing = &mut self.0[index % AHEAD];
        landing.index = index;
        landing.missing = rows;
        landing.values.resize(rows, 0.0);
    }

    fn put(&mut self, index: usize, row: usize, values: impl ExactSizeIterator<Item = f32>) {
        let landing = &mut self.0[index % AHEAD];
        assert_eq!(landing.index, index, "a column that nobody asked for");
        landing.missing -= values.len();
        for (to, value) in landing.values[row..].iter_mut().zip(values) {
            *to = value;
        }
    }
}

/// This rank's columns of A, one after another: to compute with, and as they
/// travel.
#[derive(Default)]
struct Block {
    rows: usize,
    values: Vec<f32>,
    bytes: Vec<u8>,
}

impl Block {
    fn new(rows: usize, first: usize, columns: usize) -> Self {
        let values: Vec<f32> = (0..columns * rows)
            .map(|i| a(i % rows, first + i / rows))
            .collect();
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Self {
            rows,
            values,
            bytes,
        }
    }

    fn column(&self, at: usize) -> &[f32] {
        &self.values[at * self.rows..(at + 1) * self.rows]
    }
}

fn pack(low: f32, high: f32) -> u64 {
    u64::from(low.to_bits()) | u64::from(high.to_bits()) << 32
}

fn unpack(word: u64) -> [f32; 2] {
    [
        f32::from_bits(word as u32),
        f32::from_bits((word >> 32) as u32),
    ]
}

/// What the handlers work on.
#[derive(Clone, Default)]
struct HandlerState {
    own: Arc<Mutex<Arc<Block>>>,
    landings: Arc<Mutex<Landings>>,
}

/// Handlers do not panic while they hold a lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no handler panics")
}

impl HandlerState {
    /// Binds the ports that answer fetches and take the answers.
    fn serve(&self, endpoint: &Endpoint) -> Result<(), Error> {
        let own = self.own.clone();
        endpoint.bind(
            FETCH,
            Binding::to(move |ctx, m| {
                let (index, row) = (m.arg(0), m.arg(1));
                let own = lock(&own);
                let at = m.arg(2) as usize * own.rows;
                let sent = if row == ALL {
                    ctx.reply_to(LONG, &[index], &own.bytes[4 * at..4 * (at + own.rows)])
                } else {
                    let w = &own.values[at + row as usize..][..4];
                    ctx.reply_to(
                        WORDS,
                        &[index, row, pack(w[0], w[1]), pack(w[2], w[3])],
                        &[],
                    )
                };
                sent.expect("answers find room");
            }),
        )?;
        let landings = self.landings.clone();
        endpoint.bind(
            WORDS,
            Binding::to(move |_, m| {
                let [w0, w1] = unpack(m.arg(2));
                let [w2, w3] = unpack(m.arg(3));
                let (index, row) = (m.arg(0) as usize, m.arg(1) as usize);
                lock(&landings).put(index, row, [w0, w1, w2, w3].into_iter());
            }),
        )?;
        let landings = self.landings.clone();
        endpoint.bind(
            LONG,
            Binding::to(move |_, m| {
                let words = m.payload.chunks_exact(4);
                let values = words.map(|w| f32::from_le_bytes([w[0], w[1], w[2], w[3]]));
                lock(&landings).put(m.arg(0) as usize, 0, values);
            }),
        )?;
        Ok(())
    }
}

/// C += column * row of B, for this rank's columns of C.
fn update(c: &mut [f32], column: &[f32], b_row: &[f32]) {
    for (c, factor) in c.chunks_exact_mut(column.len()).zip(b_row) {
        for (sum, v) in c.iter_mut().zip(column) {
            *sum += v * factor;
        }
    }
}

/// Some columns of B; row k stands at `k * columns`.
fn make_b(inner: usize, first: usize, columns: usize) -> Vec<f32> {
    (0..inner * columns)
        .map(|i| b(i / columns, first + i % columns))
        .collect()
}

struct Figures {
    total: Duration,
    computing: Duration,
    wrong: usize,
}

/// One multiplication, all ranks together.
fn multiply(
    ep: &Endpoint,
    shared: &HandlerState,
    shape: Shape,
    fetch: Fetch,
) -> Result<Figures, Error> {
    let (rank, size) = (ep.rank() as usize, ep.size() as usize);
    let Shape {
        rows,
        inner,
        columns,
    } = shape;
    let block = inner / size;
    let own = Arc::new(Block::new(rows, rank * block, block));
    *lock(&shared.own) = own.clone();
    let first = rank * columns;
    let factors = make_b(inner, first, columns);
    let mut c = vec![0.0; rows * columns];

    // Our own columns come first, then those of the ranks after us: so not
    // everybody asks the same rank at once.
    let order: Vec<usize> = (0..inner).map(|i| (rank * block + i) % inner).collect();
    let remote = &order[block..];
    let ask = |index: usize| -> Result<(), Error> {
        let Some(&k) = remote.get(index) else {
            return Ok(());
        };
        lock(&shared.landings).expect(index, rows);
        let (owner, local) = ((k / block) as u32, (k % block) as u64);
        let request = |row| {
            let args = &[index as u64, row, local];
            ep.send_with(
                owner,
                FETCH,
                &SendOptions {
                    args,
                    ..Default::default()
                },
                &[],
            )
        };
        match fetch {
            Fetch::Long => request(ALL).map(drop)?,
            Fetch::Words => {
                for row in (0..rows).step_by(4) {
                    request(row as u64)?;
                }
            }
        }
        Ok(())
    };

    ep.barrier()?;
    let start = Instant::now();
    let mut computing = Duration::ZERO;
    let mut compute = |column: &[f32], k: usize| {
        let t = Instant::now();
        update(&mut c, column, &factors[k * columns..(k + 1) * columns]);
        computing += t.elapsed();
    };
    for index in 0..AHEAD {
        ask(index)?;
    }
    for (i, &k) in order[..block].iter().enumerate() {
        compute(own.column(i), k);
        ep.progress()?;
    }
    for (index, &k) in remote.iter().enumerate() {
        let landings = &shared.landings;
        ep.wait_until(|| lock(landings).0[index % AHEAD].missing == 0)?;
        let column = std::mem::take(&mut lock(landings).0[index % AHEAD].values);
        ask(index + AHEAD)?;
        compute(&column, k);
        ep.progress()?;
    }
    let total = start.elapsed();
    ep.barrier()?;

    let wrong = (0..rows * columns)
        .filter(|i| {
            let (row, column) = (i % rows, first + i / rows);
            let exact: f32 = (0..inner).map(|k| a(row, k) * b(k, column)).sum();
            exact != c[*i]
        })
        .count();
    Ok(Figures {
        total,
        computing,
        wrong,
    })
}

/// The same product by one process alone.
fn alone(shape: Shape, size: usize) -> Duration {
    let columns = shape.columns * size;
    let a = Block::new(shape.rows, 0, shape.inner);
    let factors = make_b(shape.inner, 0, columns);
    let mut c = vec![0.0; shape.rows * columns];
    let start = Instant::now();
    for k in 0..shape.inner {
        update(
            &mut c,
            a.column(k),
            &factors[k * columns..(k + 1) * columns],
        );
    }
    let took = start.elapsed();
    assert!(c.iter().any(|&v| v != 0.0));
    took
}

fn median(mut all: Vec<Duration>) -> Duration {
    all.sort();
    all[all.len() / 2]
}

/// What one shape took: medians over the repeats, of the slowest rank.
struct ShapeTimes {
    total: Duration,
    share_computing: f64,
    alone: Duration,
}

fn measure(
    ep: &Endpoint,
    shared: &HandlerState,
    shape: Shape,
    fetch: Fetch,
) -> Result<ShapeTimes, Error> {
    type Rows = Vec<[u64; 3]>;
    let seen: Arc<Mutex<Rows>> = Arc::default();
    let sink = seen.clone();
    ep.bind(
        FIGURES,
        Binding::to(move |_, m| {
            sink.lock()
                .expect("no handler panics")
                .push([m.arg(0), m.arg(1), m.arg(2)]);
        }),
    )?;
    ep.barrier()?;
    let (mut totals, mut shares, mut ones) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..REPEATS {
        let f = multiply(ep, shared, shape, fetch)?;
        let args = &[
            f.total.as_nanos() as u64,
            f.computing.as_nanos() as u64,
            f.wrong as u64,
        ];
        let options = SendOptions {
            args,
            ..Default::default()
        };
        ep.send_with(0, FIGURES, &options, &[])?;
        if ep.rank() == 0 {
            let size = ep.size() as usize;
            ep.wait_until(|| seen.lock().expect("no handler panics").len() == size)?;
            let rows = std::mem::take(&mut *seen.lock().expect("no handler panics"));
            let wrong: u64 = rows.iter().map(|r| r[2]).sum();
            if wrong > 0 {
                return Err(format!("{wrong} elements of the product are wrong").into());
            }
            let total = rows.iter().map(|r| r[0]).max().unwrap_or(0);
            let computing: u64 = rows.iter().map(|r| r[1]).sum();
            totals.push(Duration::from_nanos(total));
            shares.push(computing as f64 / (total.max(1) * size as u64) as f64);
            ones.push(alone(shape, size));
        }
        ep.barrier()?;
    }
    if ep.rank() != 0 {
        return Ok(ShapeTimes {
            total: Duration::ZERO,
            share_computing: 0.0,
            alone: Duration::ZERO,
        });
    }
    shares.sort_by(f64::total_cmp);
    Ok(ShapeTimes {
        total: median(totals),
        share_computing: shares[REPEATS / 2],
        alone: median(ones),
    })
}

struct Options {
    sizes: Vec<usize>,
    fetches: Vec<Fetch>,
    columns: bool,
}

const USAGE: &str = "usage: matmul [--size N[,N...]] [--fetch words|long|both] [--columns]
  --size     square matrices of these sizes (default 64,128,256)
  --fetch    four 32-bit words by each request, a whole column, or both in turn (default)
  --columns  utilisation against columns per process, at a constant amount of work";

fn options() -> Result<Options, String> {
    let mut o = Options {
        sizes: vec![64, 128, 256],
        fetches: vec![Fetch::Words, Fetch::Long],
        columns: false,
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--size" => {
                let list = args.next().ok_or("--size needs a value")?;
                o.sizes = list
                    .split(',')
                    .map(|n| n.parse().map_err(|_| format!("--size: not a number: {n}")))
                    .collect::<Result<_, _>>()?;
            }
            "--fetch" => {
                o.fetches = match args.next().as_deref() {
                    Some("words") => vec![Fetch::Words],
                    Some("long") => vec![Fetch::Long],
                    Some("both") => vec![Fetch::Words, Fetch::Long],
                    other => return Err(format!("--fetch: words, long or both, not {other:?}")),
                };
            }
            "--columns" => o.columns = true,
            "--help" | "-h" => {
                println!("{USAGE}");
                std::process::exit(0);
            }
            other => return Err(format!("unknown argument {other}\n{USAGE}")),
        }
    }
    Ok(o)
}

fn run() -> Result<(), Error> {
    let options = options()?;
    let ep = Endpoint::open(Config::default())?;
    let size = ep.size() as usize;
    let shapes: Vec<Shape> = if options.columns {
        // rows * inner * columns is the same for all.
        [(2, 1024), (8, 512), (32, 256), (128, 128), (512, 64)]
            .map(|(columns, n)| Shape {
                rows: n,
                inner: n,
                columns,
            })
            .into()
    } else {
        options
            .sizes
            .iter()
            .map(|&n| Shape {
                rows: n,
                inner: n,
                columns: n / size,
            })
            .collect()
    };
    if let Some(s) = shapes
        .iter()
        .find(|s| s.inner % size != 0 || s.rows % 4 != 0 || s.columns == 0)
    {
        return Err(format!(
            "size {} does not divide by {size} processes and by 4",
            s.inner
        )
        .into());
    }
    let shared = HandlerState::default();
    shared.serve(&ep)?;
    if ep.rank() == 0 {
        println!(
            "{:>6} {:>6} {:>8} {:>7} {:>10} {:>10} {:>9} {:>12} {:>14}",
            "rows",
            "inner",
            "columns",
            "fetch",
            "alone us",
            "time us",
            "speed-up",
            "computing %",
            "communicating %"
        );
    }
    for shape in shapes {
        for &fetch in &options.fetches {
            let line = measure(&ep, &shared, shape, fetch)?;
            if ep.rank() == 0 {
                let us = |d: Duration| d.as_secs_f64() * 1e6;
                println!(
                    "{:>6} {:>6} {:>8} {:>7} {:>10.1} {:>10.1} {:>9.2} {:>12.1} {:>14.1}",
                    shape.rows,
                    shape.inner,
                    shape.columns,
                    if fetch == Fetch::Long {
                        "long"
                    } else {
                        "words"
                    },
                    us(line.alone),
                    us(line.total),
                    us(line.alone) / us(line.total),
                    100.0 * line.share_computing,
                    100.0 * (1.0 - line.share_computing),
                );
            }
        }
    }
    if ep.rank() == 0 {
        println!("every product was checked: all elements are right");
    }
    ep.barrier()?;
    ep.close()?;
    Ok(())
}

fn main() {
    if let Err(e) = run() {
        // In one write: ranks may share standard error.
        let line = format!("matmul: {e}\n");
        eprint!("{line}");
        std::process::exit(1);
    }
}
