//! Messages within tokio's event loop, beside TCP connections and a timer.
//!
//! `portolan run -n 2 -- target/release/examples/tokio [LINES]`
//!
//! Rank 0 is a gateway: lines that come by TCP go to rank 1 as messages, and
//! its answers back. It waits on the endpoint's descriptor. Rank 1 answers in
//! upper case; it waits on the future of the next arrival. So that something
//! happens, rank 0 is a client of its own gateway too.

use std::cell::Cell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use portolan::{Binding, Config, Endpoint, SendError, SendOptions};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Interest};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval};

/// Questions and answers; the argument word says which.
const LINE: u16 = 1;
/// A long message, the last.
const LAST: u16 = 2;

type Failed = Box<dyn Error + Send + Sync>;
type Answer = oneshot::Sender<String>;

/// One step: takes what there is, or sleeps until there is something. It may
/// be dropped at any time, as `select!` does.
async fn step(ep: &Endpoint, ready: &AsyncFd<BorrowedFd<'_>>) -> Result<(), Failed> {
    if ep.progress()? == 0 && ep.arm()? {
        ready.readable().await?.clear_ready();
    } else {
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// Step after step.
async fn drive(ep: &Endpoint, ready: &AsyncFd<BorrowedFd<'_>>) -> Result<Infallible, Failed> {
    loop {
        step(ep, ready).await?;
    }
}

/// Sends a line to rank 1 and lets the others have their turn until there is
/// credit; [`Endpoint::send`] would keep them waiting.
async fn ask(
    ep: &Endpoint,
    ready: &AsyncFd<BorrowedFd<'_>>,
    number: u64,
    line: &str,
) -> Result<(), Failed> {
    let options = SendOptions {
        args: &[number],
        ..Default::default()
    };
    loop {
        match ep.try_send_with(1, LINE, &options, line.as_bytes()) {
            Err(SendError::NoCredit) => step(ep, ready).await?,
            other => return other.map(drop).map_err(Failed::from),
        }
    }
}

async fn gateway(ep: &Endpoint, lines: u64) -> Result<(), Failed> {
    let waiting: Arc<Mutex<HashMap<u64, Answer>>> = Arc::default();
    let answers = Arc::clone(&waiting);
    let answered = Binding::to(move |_, m| {
        let asker = answers.lock().expect("no panic").remove(&m.arg(0));
        if let Some(asker) = asker {
            // It may have hung up.
            let _ = asker.send(String::from_utf8_lossy(m.payload).into_owned());
        }
    });
    ep.bind(LINE, answered)?;
    ep.barrier()?;

    // SAFETY: the descriptor is borrowed of the endpoint, which outlives this
    // function and keeps it.
    let ready = unsafe { AsyncFd::register_with_interest(ep.fd()?, Interest::READABLE) }
        .map_err(|e| e.into_parts().1)?;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let mut clients = tokio::spawn(client(listener.local_addr()?, lines));
    let (question, mut questions) = mpsc::channel(64);
    let mut timer = interval(Duration::from_millis(1));
    timer.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let (mut number, mut ticks) = (0, 0);
    let heard = loop {
        tokio::select! {
            failed = drive(ep, &ready) => match failed? {},
            connection = listener.accept() => {
                tokio::spawn(serve(connection?.0, question.clone()));
            }
            Some((line, answer)) = questions.recv() => {
                number += 1;
                waiting.lock().expect("no panic").insert(number, answer);
                ask(ep, &ready, number, &line).await?;
            }
            _ = timer.tick() => ticks += 1,
            done = &mut clients => break done??,
        }
    };

    // An operation is a future as well; somebody must make progress meanwhile.
    let bytes = 1 << 20;
    let last = ep
        .post_message(1, LAST, &SendOptions::default(), vec![7; bytes])
        .map_err(|(e, _)| e)?;
    let back = tokio::select! {
        failed = drive(ep, &ready) => match failed? {},
        ended = ep.ended(last) => ended?,
    };
    println!(
        "{heard} lines came back, the timer ticked {}, the memory of {} bytes is ours again",
        if ticks > 0 { "meanwhile" } else { "never" },
        back.completion.bytes
    );
    Ok(())
}

/// A connection: each line is a question.
async fn serve(
    mut connection: TcpStream,
    question: mpsc::Sender<(String, Answer)>,
) -> Result<(), Failed> {
    let (read, mut write) = connection.split();
    let mut lines = BufReader::new(read).lines();
    while let Some(line) = lines.next_line().await? {
        let (answer, answered) = oneshot::channel();
        question.send((line, answer)).await?;
        let answer = answered.await? + "\n";
        write.write_all(answer.as_bytes()).await?;
    }
    Ok(())
}

/// Asks line by line; gives how many answers were right.
async fn client(gateway: SocketAddr, lines: u64) -> Result<u64, Failed> {
    let mut connection = TcpStream::connect(gateway).await?;
    let (read, mut write) = connection.split();
    let mut answers = BufReader::new(read).lines();
    for n in 0..lines {
        write.write_all(format!("ahoy {n}\n").as_bytes()).await?;
        let answer = answers.next_line().await?;
        if answer != Some(format!("AHOY {n}")) {
            return Err(format!("the answer to line {n} is {answer:?}").into());
        }
    }
    Ok(lines)
}

async fn answerer(ep: &Endpoint) -> Result<(), Failed> {
    let over = Arc::new(AtomicBool::new(false));
    let last = Arc::clone(&over);
    ep.bind(
        LINE,
        Binding::to(|context, m| {
            let answer = m.payload.to_ascii_uppercase();
            // It waits in a queue where there is no credit now.
            let _ = context.reply(&[m.arg(0)], &answer);
        }),
    )?;
    ep.bind(
        LAST,
        Binding::to(move |_, _| last.store(true, Ordering::Relaxed)),
    )?;
    ep.barrier()?;
    let ticks = Cell::new(0);
    let timer = async {
        let mut timer = interval(Duration::from_millis(1));
        loop {
            timer.tick().await;
            ticks.set(ticks.get() + 1);
        }
    };
    let messages = async {
        while !over.load(Ordering::Relaxed) {
            // The helper thread wakes it.
            ep.arrival()?.await?;
        }
        Ok(())
    };
    tokio::select! {
        () = timer => unreachable!("it goes on"),
        done = messages => done,
    }
}

fn run() -> Result<(), Failed> {
    let lines = std::env::args().nth(1).map_or(Ok(200), |n| n.parse())?;
    let ep = Endpoint::open(Config::default())?;
    if ep.size() != 2 {
        return Err("it takes two ranks: portolan run -n 2".into());
    }
    // The endpoint's calls all come from this thread, and so do its handlers.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    if ep.rank() == 0 {
        runtime.block_on(gateway(&ep, lines))?;
    } else {
        runtime.block_on(answerer(&ep))?;
    }
    // Whoever closes first would be a dead peer to the other's operations.
    ep.barrier()?;
    ep.close()?;
    Ok(())
}

fn main() {
    if let Err(e) = run() {
        // In one write: ranks may share standard error.
        let line = format!("tokio: {e}\n");
        eprint!("{line}");
        std::process::exit(1);
    }
}
