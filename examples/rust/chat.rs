//! A chat of two or more people, without a launcher:
//!
//! `chat` prints its address; `chat ADDRESS...` joins those who have these.
//!
//! Each line that is typed goes to all whom this process knows: those whom it has joined,
//! and those who have joined it. Others may send anything, so it is cut and cleaned before
//! it comes to the terminal. On a host with several networks, or for one host only, say
//! which: `PORTOLAN_INTERFACE=lo chat`.

use std::collections::BTreeSet;
use std::error::Error;
use std::io::{BufRead, Write};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use portolan::{ADDRESS_BYTES, Binding, Config, Context, Endpoint, Event, SendError, WaitError};

/// Where lines go.
const LINES: u16 = 1;
/// A longer one is refused, bytes.
const LINE_MAX: usize = 1000;
/// A typed line leaves this late at most: a wait does not see that somebody types.
const PAUSE: Duration = Duration::from_millis(50);

/// Who is here, as handlers find it.
#[derive(Default)]
struct People {
    here: BTreeSet<u32>,
    /// They are dead: their numbers are to be given back.
    gone: Vec<u32>,
}

fn main() {
    if let Err(e) = run() {
        eprintln!("chat: {e}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let addresses = std::env::args().skip(1).map(|hex| parse(&hex));
    let addresses = addresses.collect::<Result<Vec<_>, _>>()?;
    let ep = Endpoint::open_standalone(Config::default())?;
    let people = Arc::new(Mutex::new(People::default()));
    let binding = Binding::to(|_, m| {
        if !m.payload.is_empty() {
            say(&format!("<{}> {}", m.from, clean(m.payload)));
        }
    });
    ep.bind(LINES, binding.with_buffer(vec![0; LINE_MAX]))?;
    let seen = Arc::clone(&people);
    ep.on_error(move |_: &mut Context<'_>, event: &Event| {
        notice(&mut seen.lock().expect("no handler panics"), event);
    })?;

    let hex: String = ep.address().iter().map(|b| format!("{b:02x}")).collect();
    say(&format!("* chat {hex}"));
    for address in &addresses {
        let peer = ep.add_peer(address)?;
        people.lock().expect("no handler panics").here.insert(peer);
        // The first message introduces us.
        ep.send(peer, LINES, b"")?;
    }
    talk(&ep, &people, &typed())?;
    ep.close()?;
    Ok(())
}

/// Until the input ends.
fn talk(
    ep: &Endpoint,
    people: &Mutex<People>,
    input: &Receiver<String>,
) -> Result<(), Box<dyn Error>> {
    loop {
        match ep.wait_timeout(PAUSE, || false) {
            Ok(()) | Err(WaitError::TimedOut) => {}
            Err(e) => return Err(e.into()),
        }
        let here = {
            let mut people = people.lock().expect("no handler panics");
            for peer in people.gone.drain(..) {
                // Its number may be somebody else's soon.
                let _ = ep.remove_peer(peer);
            }
            people.here.clone()
        };
        loop {
            let line = match input.try_recv() {
                Ok(line) => line,
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Ok(()),
            };
            for &peer in &here {
                // Nobody waits for one who does not listen.
                match ep.try_send(peer, LINES, line.as_bytes()) {
                    Ok(_) => {}
                    Err(SendError::NoCredit) => say(&format!("* {peer} does not listen")),
                    Err(SendError::PeerDead { .. }) => {}
                    Err(e) => return Err(e.into()),
                }
            }
        }
    }
}

/// Somebody comes or goes.
fn notice(people: &mut People, event: &Event) {
    match *event {
        Event::PeerCome { rank } => {
            people.here.insert(rank);
            say(&format!("* {rank} is here"));
        }
        Event::PeerDead { rank, why, .. } => {
            people.here.remove(&rank);
            people.gone.push(rank);
            say(&format!("* {rank} is gone: {why}"));
        }
        Event::PeerSilent { rank, .. } => say(&format!("* {rank} does not answer yet")),
        Event::Refused { to, .. } => say(&format!("* {to} did not take a line")),
        _ => {}
    }
}

/// The lines of standard input, read by a thread of its own.
fn typed() -> Receiver<String> {
    let (tell, told) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let cut = LINE_MAX.min(line.len());
            let end = (0..=cut).rev().find(|&at| line.is_char_boundary(at));
            let end = end.unwrap_or(0);
            if tell.send(line[..end].to_owned()).is_err() {
                return;
            }
        }
    });
    told
}

/// A line on standard output, or nothing if that is closed.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// What others wrote, without what a terminal would obey.
fn clean(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let shown = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    text.chars().map(shown).collect()
}

fn parse(hex: &str) -> Result<[u8; ADDRESS_BYTES], String> {
    let wrong = || {
        format!(
            "{hex:?} is no address: give the {} digits that chat prints",
            2 * ADDRESS_BYTES
        )
    };
    let digits = hex.as_bytes().chunks(2).map(std::str::from_utf8);
    let bytes = digits.map(|two| u8::from_str_radix(two.ok()?, 16).ok());
    let bytes = bytes.collect::<Option<Vec<u8>>>().ok_or_else(wrong)?;
    bytes.try_into().map_err(|_| wrong())
}
