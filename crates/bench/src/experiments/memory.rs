//! What peers cost in memory: bytes that a process with one endpoint has
//! written, as the kernel counts them. What is compared differs in one thing
//! only: two processes in how many peers they have, or one process before and
//! after it talked to some; the difference is divided by that.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use clap::Args;
use portolan_hosts::failure::{Context, Failure, Result, fail};
use portolan_hosts::print::print;
use portolan_runtime::{
    Address, Binding, Config, Congestion, EndpointId, Hidden, Life, Opening, PeerConfig, Space,
};
use portolan_sys::children::Start;
use serde::{Deserialize, Serialize};

use crate::experiment::{Experiment, Findings, Progress, Stage};
use crate::report::dimensions::Dimension;
use crate::report::stats::Series;
use crate::report::table::Row;

/// The hidden command that is a process of this bench.
pub const BENCH_MEMORY_COMMAND: &str = "internal-bench-memory";

/// Peers of the endpoint that is measured, and of the one it is compared with.
const PEERS: u32 = 4_096;
const FEWER: u32 = 1_024;
/// Peers that are talked to: first some, until all memory that is no peer's has
/// been used, then the rest.
const FIRST: u32 = 64;
const TALKED: u32 = 576;
/// Frames of an endpoint that talks: so few that all have been used, whoever
/// it talked to, and their memory is no peer's.
const POOL: u32 = 64;
/// Likewise the state of peers that are active at once.
const ACTIVE: u32 = 32;
/// What a process takes of its heap first: more than it has freed there before.
const HEAP: usize = 1 << 20;
/// A peer is quiet after 10 s; and a little more, for the clock.
const QUIET: Duration = Duration::from_millis(11_000);
/// Each process has so long for all else.
const TIMEOUT: Duration = Duration::from_secs(60);
const PORT: u16 = 1;

/// What a process of this bench is to do.
#[derive(Args)]
pub struct MemoryArguments {
    peers: u32,
    talked: u32,
}

/// What it says.
#[derive(Debug, Serialize, Deserialize)]
enum Said {
    Address(Vec<u8>),
    Measured(Bytes),
}

/// What a process has written.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Bytes {
    without: u64,
    opened: u64,
    /// The first peers that were talked to are quiet, and all of them.
    first: u64,
    all: u64,
}

impl Bytes {
    /// What opening the endpoint took.
    const fn taken(&self) -> u64 {
        self.opened - self.without
    }
}

fn opening(id: u64, rank: u32, change: impl FnOnce(&mut Config)) -> Result<Opening> {
    let secret = Hidden::copy_of(&[7; 32]).map_err(std::io::Error::from)?;
    let mut config = Config {
        rank,
        id: EndpointId(id),
        life: Life(id + 100),
        secret: Some(secret.into()),
        host: 1,
        ..Config::default()
    };
    config.udp.address = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    change(&mut config);
    Opening::new(config).map_err(|error| Failure::new(format!("opening an endpoint: {error:?}")))
}

fn peer(address: Address) -> PeerConfig {
    PeerConfig {
        address,
        local_index: None,
        pid: 0,
        mode: Congestion::Lan,
        barred: false,
        restarts: 0,
        since: 0,
        reason: "bench".into(),
        public_key: None,
    }
}

fn finish(opening: Opening, peers: &[PeerConfig]) -> Result<Space> {
    let opened = opening.finish(peers, None, None);
    opened.map_err(|error| Failure::new(format!("opening an endpoint: {error:?}")))
}

fn parse(bytes: &[u8]) -> Result<Address> {
    let bytes = <&[u8; 64]>::try_from(bytes).ok();
    let address = bytes.and_then(|bytes| Address::parse(bytes).ok());
    address.ok_or_else(|| Failure::new("an address of the bench makes no sense"))
}

/// Bytes of this process that it has written. Pages of files that it only
/// reads are not its own: how many are mapped depends on who else runs.
fn written_bytes() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup")
        .context("reading /proc/self/smaps_rollup")?;
    let kb = text
        .lines()
        .filter(|line| line.starts_with("Anonymous:") || line.starts_with("Swap:"))
        .filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    Ok(kb.sum::<u64>() * 1024)
}

fn say(said: &Said) -> Result<()> {
    print(format_args!("{}\n", serde_json::to_string(said)?)).map(drop)
}

/// Becomes the process whose endpoint is measured.
pub fn process(arguments: &MemoryArguments) -> Result<ExitCode> {
    // Or the endpoint's tables would lie where something else has been.
    let filler: Vec<Box<[u8; 512]>> = (0..HEAP / 512).map(|_| Box::new([1; 512])).collect();
    let mut bytes = Bytes {
        without: written_bytes()?,
        ..Bytes::default()
    };
    let opening = opening(1, 0, |config| {
        // How much of their memory these use, and when, is chance.
        config.helper = false;
        config.udp.disabled.gro = true;
        config.udp.disabled.mmsg = true;
        if arguments.talked > 0 {
            config.proto.frames = POOL;
            config.proto.active = ACTIVE;
        }
    })?;
    let own = *opening.address();
    say(&Said::Address(own.to_bytes().to_vec()))?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    let real: Vec<Vec<u8>> = serde_json::from_str(&line)?;
    let mut peers = vec![peer(own)];
    for bytes in &real {
        peers.push(peer(parse(bytes)?));
    }
    while peers.len() < arguments.peers as usize {
        let mut silent = own;
        silent.id = EndpointId(peers.len() as u64 + 1);
        peers.push(peer(silent));
    }
    let endpoint = finish(opening, &peers)?;
    drop(peers);
    bytes.opened = written_bytes()?;
    let failed = |error: &dyn std::fmt::Debug| Failure::new(format!("a message: {error:?}"));
    endpoint
        .bind(PORT, Binding::to(|_, _| ()))
        .map_err(|e| failed(&e))?;
    let talk = |ranks: std::ops::RangeInclusive<u32>| {
        if ranks.is_empty() {
            return written_bytes();
        }
        for rank in ranks {
            endpoint.send(rank, PORT, b"ahoy").map_err(|e| failed(&e))?;
            while endpoint.counters().map_err(|e| failed(&e))?.received < u64::from(rank) {
                endpoint.progress().map_err(|e| failed(&e))?;
            }
        }
        // Progress is made meanwhile.
        let _ = endpoint.wait_timeout(QUIET, || false);
        written_bytes()
    };
    bytes.first = talk(1..=arguments.talked.min(FIRST))?;
    bytes.all = talk(FIRST + 1..=arguments.talked)?;
    drop(filler);
    say(&Said::Measured(bytes))?;
    // Without farewells: the bench ends its endpoints as well.
    std::process::exit(0);
}

/// A process that is measured, and the endpoints that it talks to.
struct Measured {
    child: Child,
    input: ChildStdin,
    said: Receiver<Result<Said>>,
    others: Vec<Space>,
    addresses: Vec<Vec<u8>>,
    result: Option<Bytes>,
}

impl Measured {
    fn start(peers: u32, talked: u32) -> Result<Self> {
        let own = std::env::current_exe().context("finding the portolan command")?;
        let mut child = Command::new(own)
            .args([
                BENCH_MEMORY_COMMAND,
                &peers.to_string(),
                &talked.to_string(),
            ])
            // Tables of peers have pages of their own, and what was freed goes
            // back to the kernel and is not counted.
            .env("MALLOC_MMAP_THRESHOLD_", "4096")
            .env("MALLOC_TRIM_THRESHOLD_", "4096")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .start()
            .context("starting a process of the bench")?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return fail("a process of the bench has no pipes");
        };
        let (tell, said) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let said = line.map_err(Failure::from);
                let said = said.and_then(|line| Ok(serde_json::from_str(&line)?));
                if tell.send(said).is_err() {
                    return;
                }
            }
        });
        let mut measured = Self {
            child,
            input,
            said,
            others: Vec::new(),
            addresses: Vec::new(),
            result: None,
        };
        let Said::Address(address) = measured.hear()? else {
            return fail("a process of the bench did not say where it is");
        };
        let address = parse(&address)?;
        let mut addresses = Vec::new();
        for other in 0..talked {
            let small = |config: &mut Config| {
                config.proto.frames = POOL;
                config.helper = false;
                // The process that they talk to is gone by then.
                config.close_ns = 0;
            };
            let opening = opening(u64::from(other) + 2, 1, small)?;
            let own = *opening.address();
            addresses.push(own.to_bytes().to_vec());
            let endpoint = finish(opening, &[peer(address), peer(own)])?;
            let answer = Binding::to(|context, _| {
                // Without credit it would be counted as missing, and said so.
                let _ = context.reply(&[], b"ahoy");
            });
            endpoint
                .bind(PORT, answer)
                .map_err(|error| Failure::new(format!("binding a port: {error:?}")))?;
            measured.others.push(endpoint);
        }
        measured.addresses = addresses;
        Ok(measured)
    }

    /// Lets it begin: from now on those that it talks to are served.
    fn begin(&mut self) -> Result<()> {
        serde_json::to_writer(&self.input, &self.addresses)?;
        Ok(writeln!(self.input)?)
    }

    fn hear(&self) -> Result<Said> {
        let said = self.said.recv_timeout(TIMEOUT);
        said.map_err(|_| Failure::new("a process of the bench has ended, or says nothing"))?
    }

    /// Lets the endpoints that it talks to answer; whether it is done.
    fn serve(&mut self) -> Result<bool> {
        for endpoint in &self.others {
            let moved = endpoint.progress();
            moved.map_err(|error| Failure::new(format!("progress: {error:?}")))?;
        }
        if self.result.is_none()
            && let Ok(said) = self.said.try_recv()
            && let Said::Measured(result) = said?
        {
            self.result = Some(result);
        }
        Ok(self.result.is_some())
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// As it was asked for.
#[derive(Args)]
pub struct MemoryUse {
    /// Write the rows to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl Experiment for MemoryUse {
    /// Three processes at once: what they take does not depend on time.
    fn run(&self, _stage: &mut Stage) -> Result<Findings> {
        // Each endpoint has a dozen.
        portolan_sys::process::raise_open_files().context("raising the limit of open files")?;
        let sizes = [(FEWER, 0), (PEERS, 0), (PEERS, TALKED)];
        let mut all = sizes
            .iter()
            .map(|&(peers, talked)| Measured::start(peers, talked))
            .collect::<Result<Vec<_>>>()?;
        all.iter_mut().try_for_each(Measured::begin)?;
        serve(&mut all)?;
        let of = |at: usize| all[at].result.unwrap_or_default();
        let (fewer, many, talked) = (of(0), of(1), of(2));
        let per = |more: u64, less: u64, peers: u32| (more as f64 - less as f64) / f64::from(peers);
        let never = per(many.taken(), fewer.taken(), PEERS - FEWER);
        let quiet = never + per(talked.all, talked.first, TALKED - FIRST);
        let endpoint = many.taken() as f64 - never * f64::from(PEERS);
        let row = Row::of("portolan-udp", PEERS).at(Dimension::Link, "udp");
        let figures = [
            (
                "peer_never_bytes",
                never,
                format!(
                    "memory that a process with {PEERS} peers wrote less one with {FEWER}, each"
                ),
            ),
            (
                "peer_quiet_bytes",
                quiet,
                format!(
                    "that, and what {} peers more added, talked to and quiet for {} s, each",
                    TALKED - FIRST,
                    QUIET.as_secs()
                ),
            ),
            (
                "endpoint_bytes",
                endpoint,
                "memory that the process wrote in opening, without helper thread and peers"
                    .to_owned(),
            ),
        ];
        let figure = |(metric, value, method)| row.figure(metric, &Series::from([value]), method);
        Ok(Findings {
            rows: figures.into_iter().filter_map(figure).collect(),
            ..Findings::default()
        })
    }
}

/// Lets all measure, until they are done.
fn serve(all: &mut [Measured]) -> Result<()> {
    // The first are to be quiet, and then the rest.
    let due = 2 * QUIET;
    let steps = due.as_secs() as usize;
    let mut progress = Progress::new(steps);
    let start = std::time::Instant::now();
    loop {
        let mut done = true;
        for measured in &mut *all {
            done &= measured.serve()?;
        }
        if done {
            break;
        }
        if start.elapsed() > due + TIMEOUT {
            return fail("a process of the bench did not end");
        }
        progress.show((start.elapsed().as_secs() as usize).min(steps));
        std::thread::sleep(Duration::from_micros(200));
    }
    progress.done();
    Ok(())
}
