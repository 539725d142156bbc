//! A kernel TCP flow between two hosts of a lab, as programs have it: both ends
//! block. The bench's own process is both ends, so that it can flow while the
//! ranks are busy with something else.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use portolan_hosts::failure::{Context, Result, fail};
use portolan_hosts::lab::Lab;
use portolan_sys::clock::now_ns;
use rustix::net::sockopt::set_tcp_congestion;

use crate::ranks::timeline::Timeline;

/// Bytes of a write or a read.
const CHUNK: usize = 64 << 10;
/// Nothing moves for so long: it never will.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A flow under way.
pub struct TcpFlow {
    source: JoinHandle<Result<u64>>,
    drain: JoinHandle<Result<Timeline>>,
}

impl TcpFlow {
    /// From host `from` to host 1, as much as goes between the two times, with
    /// a congestion control of the kernel's or that of its settings.
    pub fn start(
        lab: &Lab,
        from: u32,
        [start_ns, end_ns]: [u64; 2],
        congestion: Option<&str>,
    ) -> Result<Self> {
        let listener = lab.in_host(1, || {
            TcpListener::bind((lab.ipv4(1), 0)).context("TCP listen")
        })?;
        let to = listener.local_addr()?;
        let out = lab.in_host(from, || {
            TcpStream::connect(to).context(format!("TCP to {to}"))
        })?;
        if let Some(name) = congestion {
            set_tcp_congestion(&out, name).context(format!(
                "TCP with congestion control {name} \
                 (/proc/sys/net/ipv4/tcp_available_congestion_control lists what there is)"
            ))?;
        }
        let (inward, _) = listener.accept().context("accepting a TCP connection")?;
        out.set_write_timeout(Some(TIMEOUT))?;
        inward.set_read_timeout(Some(TIMEOUT))?;
        Ok(Self {
            drain: std::thread::spawn(move || drain(inward, start_ns)),
            source: std::thread::spawn(move || source(out, [start_ns, end_ns])),
        })
    }

    /// Waits until all of it has arrived.
    pub fn end(self) -> Result<Timeline> {
        let sent = join(self.source)?;
        let timeline = join(self.drain)?;
        match timeline.bytes() {
            came if came == sent => Ok(timeline),
            came => fail(format!("TCP sent {sent} bytes and {came} came")),
        }
    }
}

fn join<T>(thread: JoinHandle<Result<T>>) -> Result<T> {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn source(mut stream: TcpStream, [start_ns, end_ns]: [u64; 2]) -> Result<u64> {
    let chunk = vec![0x5a; CHUNK];
    let mut sent = 0;
    sleep(Duration::from_nanos(start_ns.saturating_sub(now_ns())));
    while now_ns() < end_ns {
        sent += stream.write(&chunk).context("TCP send")? as u64;
    }
    stream.shutdown(Shutdown::Write).context("TCP send")?;
    Ok(sent)
}

fn drain(mut stream: TcpStream, start_ns: u64) -> Result<Timeline> {
    let mut chunk = vec![0; CHUNK];
    let mut timeline = Timeline::new(start_ns);
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return Ok(timeline),
            Ok(count) => timeline.note(now_ns(), count as u64),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("TCP receive"),
        }
    }
}
