//! Steps that outlive the loss of a host:
//!
//! `portolan run --respawn 2 --hosts a:2,b:2,c -- ./steps 1000 /shared/folder`
//!
//! In each step every rank mixes its number with its left neighbour's, and
//! saves it in the folder, which all hosts must have in common. When a rank
//! dies with its host, the others wait until it is back and has read what it
//! saved; then all go on from the last step that each of them has done.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use portolan::{Binding, Config, Death, Endpoint, Event, SendOptions, WaitError};

/// Numbers of the neighbour; steps that others have done.
const VALUE: u16 = 1;
const DONE: u16 = 2;

/// What has been heard.
#[derive(Default)]
struct Heard {
    /// The neighbour's number, by step.
    values: BTreeMap<u64, u64>,
    /// Steps done, by how many returns there were when it was said, and rank.
    done: BTreeMap<(u64, u32), u64>,
    dead: BTreeSet<u32>,
}

struct Walk {
    ep: Endpoint,
    heard: Arc<Mutex<Heard>>,
    folder: PathBuf,
    /// Numbers after the last two steps: ranks are never further apart.
    saved: BTreeMap<u64, u64>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [steps, folder, rest @ ..] = &words[..] else {
        return Err("usage: steps STEPS FOLDER [MILLISECONDS OF WORK IN EACH]".into());
    };
    let steps: u64 = steps.parse()?;
    let work = Duration::from_millis(rest.first().map_or(Ok(0), |ms| ms.parse())?);
    let mut walk = Walk::open(Path::new(folder))?;
    let me = walk.ep.rank();
    if walk.ep.restarts(me)? > 0 {
        println!("rank {me} is here again, after step {}", walk.done());
        walk.meet()?;
    }
    while walk.done() < steps {
        std::thread::sleep(work);
        match walk.step() {
            Ok(()) => {}
            Err(WaitError::PeerDead { rank, why }) if why != Death::Closed => {
                println!("rank {me}: rank {rank} has died: {why}");
                walk.meet()?;
                println!("rank {me} goes on after step {}", walk.done());
            }
            Err(error) => return Err(error.into()),
        }
    }
    println!("rank {me} has {:016x}", walk.saved[&steps]);
    walk.ep.close()?;
    Ok(())
}

impl Walk {
    fn open(folder: &Path) -> Result<Self, Box<dyn Error>> {
        let ep = Endpoint::open(Config::default())?;
        let heard = Arc::new(Mutex::new(Heard::default()));
        let log = Arc::clone(&heard);
        ep.on_error(move |_, event| match *event {
            Event::PeerDead { rank, why, .. } if why != Death::Closed => {
                log.lock().unwrap().dead.insert(rank);
            }
            Event::PeerBack { rank } => _ = log.lock().unwrap().dead.remove(&rank),
            _ => {}
        })?;
        let log = Arc::clone(&heard);
        let value = Binding::to(move |_, m| {
            log.lock().unwrap().values.insert(m.arg(0), m.arg(1));
        });
        ep.bind(VALUE, value)?;
        let log = Arc::clone(&heard);
        let done = Binding::to(move |_, m| {
            let mut heard = log.lock().unwrap();
            heard.done.insert((m.arg(0), m.from), m.arg(1));
        });
        ep.bind(DONE, done)?;
        let mut saved = BTreeMap::from([(0, u64::from(ep.rank()) + 1)]);
        if ep.restarts(ep.rank())? > 0 {
            // What the life before has saved: a step and a number a line.
            let path = folder.join(format!("{}", ep.rank()));
            for line in std::fs::read_to_string(path).unwrap_or_default().lines() {
                let (step, value) = line.split_once(' ').ok_or("a torn line")?;
                saved.insert(step.parse()?, value.parse()?);
            }
        }
        Ok(Self {
            ep,
            heard,
            folder: folder.to_owned(),
            saved,
        })
    }

    /// The last step that this rank has done.
    fn done(&self) -> u64 {
        *self.saved.keys().next_back().expect("the beginning is one")
    }

    fn step(&mut self) -> Result<(), WaitError> {
        let (rank, size) = (self.ep.rank(), self.ep.size());
        let (step, value) = self.saved.last_key_value().expect("never empty");
        let (step, value) = (step + 1, *value);
        let options = SendOptions {
            args: &[step, value],
            ..SendOptions::default()
        };
        let right = (rank + 1) % size;
        self.ep.send_with(right, VALUE, &options, &[])?;
        let heard = Arc::clone(&self.heard);
        let has_come = || heard.lock().unwrap().values.contains_key(&step);
        self.ep.wait_until(has_come)?;
        let theirs = self.heard.lock().unwrap().values[&step];
        let mixed = (value ^ theirs.rotate_left(7)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.saved.insert(step, mixed);
        self.saved.retain(|done, _| *done + 1 >= step);
        self.save();
        // Nobody goes on before all have saved.
        self.ep.barrier()?;
        self.heard.lock().unwrap().values.remove(&(step - 1));
        Ok(())
    }

    fn save(&self) {
        let lines = self
            .saved
            .iter()
            .map(|(step, value)| format!("{step} {value}\n"));
        let path = self.folder.join(self.ep.rank().to_string());
        let new = path.with_extension("new");
        let written = std::fs::write(&new, lines.collect::<String>());
        written
            .and_then(|()| std::fs::rename(&new, &path))
            .expect("the folder can be written");
    }

    /// Waits until nobody is dead, and goes back to the last step that all have
    /// done.
    fn meet(&mut self) -> Result<(), WaitError> {
        let (size, me) = (self.ep.size(), self.ep.rank());
        loop {
            let heard = Arc::clone(&self.heard);
            let all_live = || heard.lock().unwrap().dead.is_empty();
            // Each death is told once; so is one at the barrier.
            let met = self.ep.wait_until(all_live);
            match met.and_then(|()| self.ep.barrier()) {
                Err(WaitError::PeerDead { why, .. }) if why != Death::Closed => continue,
                met => met?,
            }
            let mut returns = 0;
            for rank in 0..size {
                returns += u64::from(self.ep.restarts(rank)?);
            }
            let done = [returns, self.done()];
            let options = SendOptions {
                args: &done,
                ..SendOptions::default()
            };
            let all: Vec<u32> = (0..size).collect();
            let said = self.ep.broadcast(&all, DONE, &options, &[]);
            let of_all = |heard: &Heard| -> Option<Vec<u64>> {
                let of = |rank| heard.done.get(&(returns, rank)).copied();
                (0..size).map(of).collect()
            };
            let all_said = || of_all(&heard.lock().unwrap()).is_some();
            match said
                .map_err(WaitError::from)
                .and_then(|()| self.ep.wait_until(all_said))
            {
                Err(WaitError::PeerDead { why, .. }) if why != Death::Closed => continue,
                said => said?,
            }
            let last = of_all(&self.heard.lock().unwrap())
                .into_iter()
                .flatten()
                .min();
            let last = last.unwrap_or(0);
            self.saved.retain(|step, _| *step <= last);
            assert!(
                !self.saved.is_empty(),
                "rank {me} has forgotten step {last}"
            );
            return Ok(());
        }
    }
}
