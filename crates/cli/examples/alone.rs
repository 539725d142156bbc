//! An endpoint outside of a job, for tests. `alone serve` prints its address, returns each
//! tagged message to its sender, and lets others access memory, until its input ends.
//! `alone ask ADDRESS` has it return messages of all sizes, puts and gets, and prints by
//! which link and how many packets its host port has sent and received.

use std::error::Error;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use portolan::{
    ADDRESS_BYTES, Config, Endpoint, Memory, Notify, Place, PutOptions, RemoteKey, Rights, Salt,
    Selector, TaggedOptions, WaitError,
};

const ASK: u64 = 3;
const ANSWER: u64 = 4;
const REGION: u64 = 5;
const LONGEST: usize = 1 << 20;

fn main() {
    if let Err(e) = run() {
        eprintln!("alone: {e}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let ep = Endpoint::open_standalone(Config::default())?;
    match std::env::args().nth(2) {
        None => serve(&ep)?,
        Some(hex) => ask(&ep, &hex)?,
    }
    ep.close()?;
    Ok(())
}

fn serve(ep: &Endpoint) -> Result<(), Box<dyn Error>> {
    let memory = vec![0_u8; LONGEST];
    let region = ep.register(memory, Some(REGION), Rights::Both.with(Salt::Any));
    region.map_err(|(e, _)| e)?;
    let hex: String = ep.address().iter().map(|b| format!("{b:02x}")).collect();
    println!("address {hex}");
    let over = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&over);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        told.store(true, Ordering::Relaxed);
    });
    loop {
        let memory = vec![0; LONGEST];
        let receive = ep.post_receive(&Selector::any(ASK), memory, Notify::NONE)?;
        let ended = loop {
            match ep.wait_end(receive, Some(Duration::from_millis(20))) {
                Err(WaitError::TimedOut) if over.load(Ordering::Relaxed) => return Ok(()),
                Err(WaitError::TimedOut) => {}
                ended => break ended?,
            }
        };
        let (from, bytes) = (ended.completion.peer, ended.completion.bytes as usize);
        let mut message = ended.into_received();
        message.truncate(bytes);
        // Who asks may be gone by now.
        let _ = ep.post_send(from, ANSWER, &TaggedOptions::default(), message);
    }
}

fn ask(ep: &Endpoint, hex: &str) -> Result<(), Box<dyn Error>> {
    let digits = hex.as_bytes().chunks(2).map(std::str::from_utf8);
    let bytes = digits.map(|two| Ok(u8::from_str_radix(two?, 16)?));
    let bytes = bytes.collect::<Result<Vec<u8>, Box<dyn Error>>>()?;
    let address: [u8; ADDRESS_BYTES] = bytes.try_into().map_err(|_| "no address")?;
    let there = ep.add_peer(&address)?;
    let pattern = |len: usize| (0..len).map(|at| (at * 7 + len) as u8).collect::<Vec<u8>>();
    let small = std::iter::repeat_n(8, 200);
    for len in small.chain([0, 1, 1_399, 1_500, 4_000, 9_000, 70_000, LONGEST]) {
        let (sent, mut room) = (pattern(len), vec![0; LONGEST]);
        ep.send_tagged(there, ASK, &sent)?;
        let done = ep.receive_tagged(&Selector::from(there, ANSWER), &mut room)?;
        done.result?;
        assert_eq!(done.bytes as usize, len);
        assert!(room[..len] == sent, "{len} bytes came back as others");
    }
    let key = RemoteKey::any(REGION);
    for len in [8, 3_000, 300_000] {
        let place = Place { key, offset: 16 };
        let put = ep.post_put(there, place, pattern(len), &PutOptions::default());
        let put = put.map_err(|(e, _)| e)?;
        ep.wait_end(put, None)?.completion.result?;
        let get = ep.post_get(there, place, vec![0_u8; len], Notify::NONE);
        let get = get.map_err(|(e, _)| e)?;
        let ended = ep.wait_end(get, None)?;
        ended.completion.result?;
        let Some(Memory::Sink(memory)) = ended.memory else {
            return Err("its memory comes back".into());
        };
        assert!(
            memory.into_buffers()[0].as_slice() == pattern(len),
            "{len} bytes"
        );
    }
    let counted = ep.with_host_port(|port| (port.counters().tx_frames, port.counters().rx_frames));
    let (sent, received) = counted?.unwrap_or_default();
    let (link, _) = ep.lane(there)?;
    println!("all is right by {link}, {sent} {received}");
    Ok(())
}
