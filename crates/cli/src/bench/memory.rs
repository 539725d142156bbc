//! What peers cost in memory: private bytes of a process with one endpoint,
//! as the kernel counts them. Processes differ in one thing only, how many
//! peers they have or have talked to; the difference is divided by that.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use clap::Args;
use portolan_engine::{
    Address, Binding, Config, Congestion, Endpoint, EndpointId, Life, Opening, PeerConfig, Secret,
};
use serde::{Deserialize, Serialize};

use super::conduct::Progress;
use super::failure::{Context, Failure, Result, fail};
use super::host::{CpuTime, Host};
use super::report::{Report, Row};
use super::{Found, check};

/// The hidden command that is a process of this bench.
pub const BENCH_MEMORY_COMMAND: &str = "internal-bench-memory";

/// Peers of the endpoint that is measured, and of the one it is compared with.
const PEERS: u32 = 4_096;
const FEWER: u32 = 2_048;
/// Peers that were talked to, and in the one it is compared with.
const TALKED: u32 = 448;
const LESS: u32 = 64;
/// Frames of an endpoint that talks: so few that all have been used, whoever
/// it talked to, and their memory is no peer's.
const POOL: u32 = 64;
/// Likewise the state of peers that are active at once.
const ACTIVE: u32 = 32;
/// A peer is quiet after 10 s; and a little more, for the clock.
const QUIET: Duration = Duration::from_millis(11_000);
/// Each process has so long for all else.
const PATIENCE: Duration = Duration::from_secs(60);
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
    /// Private bytes without endpoint, with it, and with quiet peers.
    Measured([u64; 3]),
}

fn opening(id: u64, rank: u32, change: impl FnOnce(&mut Config)) -> Result<Opening> {
    let mut config = Config {
        rank,
        id: EndpointId(id),
        life: Life(id + 100),
        secret: Secret::new([7; 32]),
        seed: id + 1000,
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

fn finish(opening: Opening, peers: &[PeerConfig]) -> Result<Endpoint> {
    let opened = opening.finish(peers, None, None);
    opened.map_err(|error| Failure::new(format!("opening an endpoint: {error:?}")))
}

fn parse(bytes: &[u8]) -> Result<Address> {
    let bytes = <&[u8; 64]>::try_from(bytes).ok();
    let address = bytes.and_then(|bytes| Address::parse(bytes).ok());
    address.ok_or_else(|| Failure::new("an address of the bench makes no sense"))
}

/// Private bytes of this process.
fn private_bytes() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup")
        .context("reading /proc/self/smaps_rollup")?;
    let kb = text
        .lines()
        .filter(|line| line.starts_with("Private_"))
        .filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    Ok(kb.sum::<u64>() * 1024)
}

fn say(said: &Said) -> Result<()> {
    println!("{}", serde_json::to_string(said)?);
    Ok(())
}

/// Becomes the process whose endpoint is measured.
pub fn process(arguments: &MemoryArguments) -> Result<ExitCode> {
    let before = private_bytes()?;
    let opening = opening(1, 0, |config| {
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
    let opened = private_bytes()?;
    let failed = |error: &dyn std::fmt::Debug| Failure::new(format!("a message: {error:?}"));
    endpoint
        .bind(PORT, Binding::to(|_, _| ()))
        .map_err(|e| failed(&e))?;
    for rank in 1..=arguments.talked {
        endpoint.send(rank, PORT, b"ahoy").map_err(|e| failed(&e))?;
        while endpoint.counters().map_err(|e| failed(&e))?.received < u64::from(rank) {
            endpoint.progress().map_err(|e| failed(&e))?;
        }
    }
    if arguments.talked > 0 {
        // Progress is made meanwhile.
        let _ = endpoint.wait_timeout(QUIET, || false);
    }
    say(&Said::Measured([before, opened, private_bytes()?]))?;
    // Without farewells: the bench ends its endpoints as well.
    std::process::exit(0);
}

/// A process that is measured, and the endpoints that it talks to.
struct Measured {
    child: Child,
    input: ChildStdin,
    said: Receiver<Result<Said>>,
    others: Vec<Endpoint>,
    addresses: Vec<Vec<u8>>,
    result: Option<[u64; 3]>,
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
            // What was freed goes back to the kernel and is not counted.
            .env("MALLOC_MMAP_THRESHOLD_", "16384")
            .env("MALLOC_TRIM_THRESHOLD_", "16384")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
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
        let said = self.said.recv_timeout(PATIENCE);
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

/// Raises the soft limit of open files: each endpoint has a dozen.
fn make_room() -> Result<()> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).context("raising the limit of open files")
}

/// Measures four processes at once: what they take does not depend on time.
pub fn bench(json: Option<std::path::PathBuf>) -> Result<Found> {
    check(json.as_deref(), 1)?;
    make_room()?;
    let before = CpuTime::now();
    let sizes = [(FEWER, 0), (PEERS, 0), (PEERS, LESS), (PEERS, TALKED)];
    let mut all = sizes
        .iter()
        .map(|&(peers, talked)| Measured::start(peers, talked))
        .collect::<Result<Vec<_>>>()?;
    all.iter_mut().try_for_each(Measured::begin)?;
    let mut progress = Progress::new(QUIET.as_secs() as usize);
    let start = std::time::Instant::now();
    loop {
        let mut done = true;
        for measured in &mut all {
            done &= measured.serve()?;
        }
        if done {
            break;
        }
        if start.elapsed() > QUIET + PATIENCE {
            return fail("a process of the bench did not end");
        }
        progress.show((start.elapsed().as_secs() as usize).min(QUIET.as_secs() as usize));
        std::thread::sleep(Duration::from_micros(200));
    }
    progress.done();
    let of = |at: usize| all[at].result.unwrap_or_default();
    let per = |more: u64, less: u64, peers: u32| (more as f64 - less as f64) / f64::from(peers);
    let taken = |at: usize| of(at)[1] - of(at)[0];
    let never = per(taken(1), taken(0), PEERS - FEWER);
    let grown = |at: usize| of(at)[2].saturating_sub(of(at)[1]);
    let quiet = never + per(grown(3), grown(2), TALKED - LESS);
    let endpoint = taken(1) as f64 - never * f64::from(PEERS);
    let row = |metric: &str, value: f64, method: String| Row {
        system: "portolan-udp".to_owned(),
        metric: metric.to_owned(),
        p50: value,
        q1: value,
        q3: value,
        n: 1,
        slices: 1,
        method,
        link: Some("udp".to_owned()),
        ranks: PEERS,
        ..Row::default()
    };
    let rows = vec![
        row(
            "peer_never_bytes",
            never,
            format!("private memory of a process with {PEERS} peers less one with {FEWER}, each"),
        ),
        row(
            "peer_quiet_bytes",
            quiet,
            format!(
                "that, and of {TALKED} peers talked to, quiet for {} s, less {LESS}, each",
                QUIET.as_secs()
            ),
        ),
        row(
            "endpoint_bytes",
            endpoint,
            "private memory of the process after opening less before, without peers".to_owned(),
        ),
    ];
    Ok((
        json,
        Report {
            bench: "memory".to_owned(),
            host: Host::here(),
            rows,
            ratios: Vec::new(),
            steal: CpuTime::now().steal_since(&before),
            remarks: Vec::new(),
        },
    ))
}
