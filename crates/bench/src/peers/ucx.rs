//! Debian's `ucx_perftest` as a peer. Each slice is a fresh pair of
//! processes that inherit our ranks' cores. In the first slice all its tests
//! for the purpose are tried, and the fastest one stands for it from then on.

use std::net::IpAddr;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use portolan_hosts::failure::{Context, Failure, Result, fail};
use portolan_sys::children::Start;
use portolan_sys::clock::now_ns;

use crate::control::{Answer, ControlLine, Followed, Led, Op, Order, Pattern, Sent};
use crate::peers::program::{Fastest, check_installed, ends_with_us, wait};
use crate::ranks::rank::{Site, System};
use crate::slice::Rule;

/// The program, from the package `ucx-utils`.
const PROGRAM: &str = "ucx_perftest";
/// Longest that one run of it may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Iterations of the first run of a test; the next ones go by its speed.
const FIRST_ITERATIONS: u64 = 200;

/// One half of the pair.
pub struct Ucx {
    host: IpAddr,
    port: u16,
    /// Within one host, where all of UCX's transports are open to it.
    local: bool,
    leads: bool,
    /// Which test is the fastest, and what it gave last.
    fastest: Fastest<Op, Outcome>,
}

/// What one run printed.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Outcome {
    iterations: u64,
    one_way_us: f64,
    messages_s: f64,
}

impl Outcome {
    /// Iterations that take `ns`.
    fn iterations_in(&self, ns: u64) -> u64 {
        ((ns as f64 / 1e9 * self.messages_s) as u64).max(10)
    }
}

/// UCX's tests for `op`, in no order. The `uct` ones drive one transport
/// alone, without UCX's protocol; they refuse sizes that it does not take.
fn tests_for(op: &Op, local: bool) -> Result<Vec<Vec<&'static str>>> {
    let (transport, protocol): (_, [&str; 2]) = match op.pattern {
        Pattern::Pingpong => ("am_lat", ["ucp_am_lat", "tag_lat"]),
        Pattern::Stream => ("am_bw", ["ucp_am_bw", "tag_bw"]),
        Pattern::Ping | Pattern::Burst => {
            return fail(
                "ucx_perftest has no such test: use --pattern pingpong or stream, or leave ucx out of --vs",
            );
        }
    };
    let mut tests: Vec<Vec<&str>> = protocol.iter().map(|test| vec!["-t", *test]).collect();
    if local {
        for lane in ["posix", "sysv"] {
            for layout in ["short", "bcopy"] {
                tests.push(vec![
                    "-t", transport, "-d", "memory", "-x", lane, "-D", layout,
                ]);
            }
        }
    }
    Ok(tests)
}

/// The last line of comma-separated numbers that `ucx_perftest -f -v` prints.
fn parse(text: &str) -> Option<Outcome> {
    let numbers: Vec<f64> = text
        .lines()
        .rev()
        .map(|line| line.split(',').map(|field| field.trim().parse()).collect())
        .find_map(|fields: std::result::Result<Vec<f64>, _>| {
            fields.ok().filter(|f| f.len() == 8)
        })?;
    (numbers[6] > 0.0).then_some(Outcome {
        iterations: numbers[0] as u64,
        one_way_us: numbers[1],
        messages_s: numbers[6],
    })
}

/// Whether the program is installed.
pub fn check() -> Result<()> {
    check_installed("ucx", &[(PROGRAM, "ucx-utils")])
}

impl Ucx {
    /// At `site`; the one that leads is the client.
    pub fn new(site: &Site, leads: bool) -> Result<Self> {
        Ok(Self {
            host: site.address()?,
            port: 0,
            local: site.one_host,
            leads,
            fastest: Fastest::new(),
        })
    }

    /// The program, by the command that has it end with this process.
    fn command(&self) -> Result<Command> {
        let mut command = ends_with_us(PROGRAM)?;
        if !self.local {
            command.env("UCX_TLS", "tcp,self");
        }
        command
            .args(["-p", &self.port.to_string()])
            .stderr(Stdio::null());
        Ok(command)
    }

    /// Runs one test as the client.
    fn run(&self, op: &Op, arguments: &[&str], iterations: u64) -> Result<Outcome> {
        let start = Instant::now();
        loop {
            let mut command = self.command()?;
            command
                .arg(self.host.to_string())
                .args(arguments)
                .args(["-f", "-v"]);
            command.args(["-s", &op.size.to_string(), "-n", &iterations.to_string()]);
            command
                .args(["-w", &(iterations / 10).max(10).to_string()])
                .stdout(Stdio::piped());
            let child = command.start().context(PROGRAM)?;
            let Some(output) = wait(child, TIMEOUT)? else {
                return fail("ucx_perftest does not end: leave ucx out of --vs");
            };
            match parse(&String::from_utf8_lossy(&output.stdout)) {
                Some(outcome) => return Ok(outcome),
                // The server of the last test may not have given way yet.
                None if start.elapsed() < Duration::from_millis(300) => {
                    sleep(Duration::from_millis(20));
                }
                None => {
                    return fail(format!(
                        "{PROGRAM} {} does not run with {} bytes: run it by hand to see why, or leave ucx out of --vs",
                        arguments.join(" "),
                        op.size
                    ));
                }
            }
        }
    }
}

impl System for Ucx {
    fn offer(&mut self) -> Result<String> {
        if self.leads {
            return Ok(String::new());
        }
        // A port that was free a moment ago: the program cannot pick one itself.
        self.port = std::net::TcpListener::bind((self.host, 0))?
            .local_addr()?
            .port();
        Ok(format!("{} {}", self.host, self.port))
    }

    /// The client takes the server's offer; the server needs none.
    fn join(&mut self, offer: &str) -> Result<()> {
        let bad = || Failure::new(format!("{offer:?} is no address"));
        if offer.is_empty() {
            return Ok(());
        }
        let (host, port) = offer.split_once(' ').ok_or_else(bad)?;
        self.host = host.parse().map_err(|_| bad())?;
        self.port = port.parse().map_err(|_| bad())?;
        Ok(())
    }

    fn lead(&mut self, op: &Op, rule: &Rule, line: &mut ControlLine) -> Result<Led> {
        let start_ns = now_ns();
        let tests = tests_for(op, self.local)?;
        let mut fastest = std::mem::replace(&mut self.fastest, Fastest::new());
        let first = |test: usize| {
            let first = self.run(op, &tests[test], FIRST_ITERATIONS)?;
            self.run(op, &tests[test], first.iterations_in(rule.slice_ns / 4))
        };
        let figure = |outcome: &Outcome| match op.pattern {
            Pattern::Pingpong => outcome.one_way_us,
            _ => -outcome.messages_s,
        };
        let chosen = fastest.of(*op, tests.len(), first, figure)?;
        let iterations = chosen.last.iterations_in(rule.slice_ns);
        let result = self.run(op, &tests[chosen.variant], iterations)?;
        chosen.last = result;
        let note = format!("{PROGRAM} {}", tests[chosen.variant].join(" "));
        self.fastest = fastest;
        line.say(&Answer::Sent(Sent {
            start_ns,
            elapsed_ns: now_ns() - start_ns,
            operations: result.iterations,
            one_way_us: Some(result.one_way_us),
            messages_s: Some(result.messages_s),
            note: Some(note),
            ..Sent::default()
        }))?;
        line.await_stop()?;
        Ok(Led::default())
    }

    fn follow(&mut self, _op: &Op, line: &mut ControlLine) -> Result<Followed> {
        line.say(&Answer::Ready)?;
        let mut server: Option<Child> = None;
        loop {
            if let Some(Order::Finish { .. }) = line.try_hear()? {
                if let Some(mut server) = server {
                    server.kill()?;
                    server.wait()?;
                }
                return Ok(Followed {
                    complete: true,
                    ..Followed::default()
                });
            }
            let ended = match &mut server {
                None => true,
                Some(server) => server.try_wait()?.is_some(),
            };
            if ended {
                server = Some(
                    self.command()?
                        .stdout(Stdio::null())
                        .start()
                        .context(PROGRAM)?,
                );
            }
            sleep(Duration::from_millis(5));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_numbers_is_read() {
        let text = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n\
                    50000,0.110,0.637,0.637,11.97,11.97,1569513,1569513\n";
        let outcome = parse(text).unwrap();
        assert_eq!(
            outcome,
            Outcome {
                iterations: 50_000,
                one_way_us: 0.11,
                messages_s: 1_569_513.0
            }
        );
        assert_eq!(outcome.iterations_in(100_000_000), 156_951);
        assert_eq!(
            parse("[1795243039.7] [vm:24394:0] libperf.c:536 UCX ERROR Message size, too, large"),
            None
        );
        assert_eq!(parse(""), None);
    }

    #[test]
    fn every_purpose_has_tests_or_an_error() {
        let op = |pattern| Op { pattern, size: 8 };
        assert_eq!(tests_for(&op(Pattern::Pingpong), true).unwrap().len(), 6);
        assert_eq!(tests_for(&op(Pattern::Stream), false).unwrap().len(), 2);
        assert!(tests_for(&op(Pattern::Burst), true).is_err());
    }
}
