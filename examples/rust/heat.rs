//! The heat equation in two dimensions: a plate with hot and cold edges, cut
//! into bands of rows, one for each rank. Before each step neighbours send
//! each other their outermost rows; at the end rank 0 collects the bands,
//! computes the same alone, and draws the plate into a file, or where it
//! prints (`-`).
//!
//! `portolan run -n 2 -- target/release/examples/heat [CELLS [STEPS [FILE.png | -]]]`

use std::error::Error;
use std::fs::File;
use std::io::BufWriter;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use portolan::{Binding, Config, Endpoint, SendOptions};

/// Rows of the neighbour above and of the one below.
const FROM_ABOVE: u16 = 1;
const FROM_BELOW: u16 = 2;
/// Finished bands, to rank 0.
const BAND: u16 = 3;

/// Diffusivity x time step / cell size squared: stable up to 1/4.
const RATE: f64 = 0.2;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Rows of temperatures with one more at either end: the neighbours' or the
/// plate's edge.
#[derive(Clone)]
struct Band {
    width: usize,
    cells: Vec<f64>,
}

impl Band {
    fn new(rows: usize, width: usize) -> Self {
        let mut band = Self {
            width,
            cells: vec![0.0; (rows + 2) * width],
        };
        for row in 0..rows + 2 {
            // The left edge is hot, the right one cold.
            band.row_mut(row)[0] = 1.0;
        }
        band
    }

    fn row(&self, row: usize) -> &[f64] {
        &self.cells[row * self.width..][..self.width]
    }

    fn row_mut(&mut self, row: usize) -> &mut [f64] {
        &mut self.cells[row * self.width..][..self.width]
    }

    /// One step of `rows`, from `old`.
    fn step(&mut self, old: &Self, rows: std::ops::Range<usize>) {
        for row in rows {
            let (above, here, below) = (old.row(row - 1), old.row(row), old.row(row + 1));
            let new = self.row_mut(row);
            for x in 1..new.len() - 1 {
                let flow = above[x] + below[x] + here[x - 1] + here[x + 1] - 4.0 * here[x];
                new[x] = here[x] + RATE * flow;
            }
        }
    }
}

/// A neighbour's row for each step. It can be one step ahead, not two: that
/// needs a row of ours.
struct Halo(Arc<Mutex<[Option<Vec<f64>>; 2]>>);

impl Halo {
    fn bind(ep: &Endpoint, port: u16) -> Result<Self> {
        let rows = Arc::new(Mutex::new([None, None]));
        let filled = Arc::clone(&rows);
        let take = Binding::to(move |_, m| {
            let row = numbers(m.payload);
            filled.lock().expect("no handler panics")[m.arg(0) as usize % 2] = Some(row);
        });
        ep.bind(port, take)?;
        Ok(Self(rows))
    }

    fn take(&self, ep: &Endpoint, step: usize) -> Result<Vec<f64>> {
        let slot = || self.0.lock().expect("no handler panics")[step % 2].take();
        let mut row = None;
        ep.wait_until(|| {
            row = slot();
            row.is_some()
        })?;
        Ok(row.expect("was waited for"))
    }
}

fn numbers(bytes: &[u8]) -> Vec<f64> {
    let word = |w: &[u8]| f64::from_le_bytes(w.try_into().expect("eight bytes"));
    bytes.chunks_exact(8).map(word).collect()
}

fn bytes(numbers: &[f64]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

/// The rows of a rank: blocks that differ by at most one.
fn rows_of(rank: u32, size: u32, cells: usize) -> std::ops::Range<usize> {
    let border = |rank: u32| cells * rank as usize / size as usize;
    border(rank)..border(rank + 1)
}

/// Sets the plate's own edges: the upper one hot in the middle.
fn edges(band: &mut Band, rank: u32, size: u32, rows: usize) {
    if rank == 0 {
        let width = band.width;
        band.row_mut(0)[width / 4..3 * width / 4].fill(1.0);
    }
    if rank + 1 == size {
        let last = band.row_mut(rows + 1);
        last.fill(0.0);
        last[0] = 1.0;
    }
}

fn send(ep: &Endpoint, to: u32, port: u16, step: usize, row: &[f64]) -> Result<()> {
    let options = SendOptions {
        args: &[step as u64],
        ..SendOptions::default()
    };
    ep.send_with(to, port, &options, &bytes(row))?;
    Ok(())
}

/// Cold is blue, hot is yellow.
fn colour(heat: f64) -> [u8; 3] {
    let part = |value: f64| (255.0 * value.clamp(0.0, 1.0)) as u8;
    [
        part(2.0 * heat),
        part(1.5 * heat - 0.3),
        part(0.6 - 1.2 * (heat - 0.3).abs()),
    ]
}

fn write_picture(name: &str, cells: usize, plate: &[f64]) -> Result<()> {
    let file = File::create(name).map_err(|e| format!("{name}: {e}"))?;
    let mut encoder = png::Encoder::new(BufWriter::new(file), cells as u32, cells as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let pixels: Vec<u8> = plate.iter().flat_map(|heat| colour(*heat)).collect();
    encoder.write_header()?.write_image_data(&pixels)?;
    Ok(())
}

/// The plate in characters, the hotter the denser; twice as many columns as
/// lines, since a character is twice as high as wide.
fn draw(cells: usize, plate: &[f64]) -> String {
    const SHADES: &[u8] = b" .:-=+*#%@";
    let columns = cells.min(64);
    let lines = columns / 2;
    let shade = |line: usize, column: usize| {
        let heat = plate[line * cells / lines * cells + column * cells / columns];
        let last = SHADES.len() - 1;
        SHADES[((last as f64 * heat).round() as usize).min(last)] as char
    };
    let text = |line| (0..columns).map(|column| shade(line, column)).collect();
    (0..lines).map(text).collect::<Vec<String>>().join("\n")
}

/// The same without messages.
fn alone(cells: usize, steps: usize) -> Vec<f64> {
    let mut old = Band::new(cells, cells);
    edges(&mut old, 0, 1, cells);
    let mut new = old.clone();
    for _ in 0..steps {
        new.step(&old, 1..cells + 1);
        std::mem::swap(&mut old, &mut new);
    }
    old.cells[cells..(cells + 1) * cells].to_vec()
}

fn run() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: usize| match arguments.next() {
        None => Ok(default),
        Some(text) => text.parse().map_err(|_| format!("not a number: {text}")),
    };
    let (cells, steps) = (number(512)?, number(2_000)?);
    let picture = arguments.next();
    let ep = Endpoint::open(Config::default())?;
    let (rank, size) = (ep.rank(), ep.size());
    if cells < 2 * size as usize || cells < 3 {
        return Err(format!("{cells} rows are too few for {size} ranks: two each at least").into());
    }
    let rows = rows_of(rank, size, cells).len();
    let (above, below) = (Halo::bind(&ep, FROM_ABOVE)?, Halo::bind(&ep, FROM_BELOW)?);
    let bands = Arc::new(Mutex::new(vec![Vec::new(); size as usize]));
    let collected = Arc::clone(&bands);
    let collect = Binding::to(move |_, m| {
        let mut bands = collected.lock().expect("no handler panics");
        bands[m.from as usize] = numbers(m.payload);
    });
    ep.bind(BAND, collect)?;
    let mut old = Band::new(rows, cells);
    edges(&mut old, rank, size, rows);
    let mut new = old.clone();
    ep.barrier()?;
    let start = Instant::now();
    let mut waiting = Duration::ZERO;
    for step in 0..steps {
        if rank > 0 {
            send(&ep, rank - 1, FROM_BELOW, step, old.row(1))?;
        }
        if rank + 1 < size {
            send(&ep, rank + 1, FROM_ABOVE, step, old.row(rows))?;
        }
        // What needs no neighbour is computed while the rows are on their way.
        new.step(&old, 2..rows);
        let since = Instant::now();
        if rank > 0 {
            old.row_mut(0).copy_from_slice(&above.take(&ep, step)?);
        }
        if rank + 1 < size {
            old.row_mut(rows + 1)
                .copy_from_slice(&below.take(&ep, step)?);
        }
        waiting += since.elapsed();
        new.step(&old, 1..2);
        new.step(&old, rows..rows + 1);
        std::mem::swap(&mut old, &mut new);
    }
    let took = start.elapsed();
    send(&ep, 0, BAND, 0, &old.cells[cells..(rows + 1) * cells])?;
    if rank == 0 {
        let complete = |bands: &Vec<Vec<f64>>| bands.iter().all(|band| !band.is_empty());
        ep.wait_until(|| complete(&bands.lock().expect("no handler panics")))?;
        let plate = bands.lock().expect("no handler panics").concat();
        // The same additions in the same order: the same bits.
        let start = Instant::now();
        if plate != alone(cells, steps) {
            return Err("the plate is not the one that a single process computes".into());
        }
        let (took, alone) = (took.as_secs_f64(), start.elapsed().as_secs_f64());
        match picture.as_deref() {
            None => {}
            Some("-") => println!("{}", draw(cells, &plate)),
            Some(name) => write_picture(name, cells, &plate)?,
        }
        println!(
            "{cells} x {cells} cells, {steps} steps on {size} ranks: {took:.2} s, {:.0} % of it waiting for rows; as computed alone in {alone:.2} s, {:.1} times as fast",
            100.0 * waiting.as_secs_f64() / took,
            alone / took
        );
    }
    ep.barrier()?;
    ep.close()?;
    Ok(())
}

fn main() {
    if let Err(error) = run() {
        // In one write: ranks may share standard error.
        let line = format!("heat: {error}\n");
        eprint!("{line}");
        std::process::exit(1);
    }
}
