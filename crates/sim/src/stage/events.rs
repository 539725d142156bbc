//! What befalls the ranks from outside: their turns to send, deaths and returns, who is told
//! of them and when, and networks that fail.

use portolan_engine::Death;

use super::book::{Life, LifeId};
use super::ops::Parcel;
use super::parting::Parting;
use super::rank::Rank;
use super::{MS, Stage};

/// Numbers of matched messages: of no message to a port.
const FIRST_PARCEL: u64 = 1 << 24;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    Act(usize),
    /// A matched message is sent, or received: by its number.
    Send(usize),
    Receive(usize),
    Barrier,
    Part,
    Kill(usize),
    Revive(usize),
    /// The first is told that the second died in that life.
    Tell(usize, usize, LifeId),
    /// The first life is told that the second has given it up.
    GivenUp(LifeId, LifeId),
    /// The first is told that the second has closed.
    Left(usize, usize),
    /// The first is told that the second is back in that life.
    Return(usize, usize, LifeId),
    Cut(u32, bool),
    Fail(usize),
    Shrink,
    /// Who waits for a dead rank and cannot find out is told by its launcher.
    Announce,
}

impl Stage {
    pub(super) fn happen(&mut self, event: Event) {
        let (now, trace) = (self.now, self.trace);
        if !matches!(event, Event::Act(_)) {
            trace.note(now, 99, || format!("{event:?}"));
        }
        match event {
            Event::Act(rank) => self.act(rank),
            Event::Send(number) | Event::Receive(number) => self.go_on(number, event),
            Event::Barrier => {
                // One that was started again counts anew.
                if self.returned.iter().all(|it| it.0 == 0) {
                    for at in 0..self.ranks.len() {
                        if let Some(rank) = &mut self.ranks[at] {
                            rank.barriers_due += 1;
                        }
                        self.stir(at);
                    }
                }
            }
            Event::Part => {
                if self.returned.iter().all(|it| it.0 == 0) {
                    for at in 0..self.ranks.len() {
                        if let Some(rank) = &mut self.ranks[at] {
                            rank.parting = Parting::Due;
                        }
                        self.stir(at);
                    }
                }
            }
            Event::Kill(rank) => self.kill_some(rank),
            Event::Revive(rank) => self.revive(rank),
            Event::Tell(rank, dead, life) => {
                if self.lives[dead] == life
                    && let Some(it) = &mut self.ranks[rank]
                {
                    it.tell_of_death(dead, Death::Killed(9));
                }
                self.stir(rank);
            }
            Event::GivenUp(life, by) => {
                let book = self.book.lock();
                let [rank, by_rank] = [life, by].map(|life| book.lives[life].rank);
                drop(book);
                if self.lives[by_rank] == by
                    && let Some(it) = self.living(rank, life)
                {
                    it.tell_of_death(by_rank, Death::Silent);
                }
                self.stir(rank);
            }
            Event::Left(rank, left) => {
                if let Some(it) = &mut self.ranks[rank] {
                    it.tell_of_death(left, Death::Closed);
                }
                self.stir(rank);
            }
            Event::Return(rank, back, life) => {
                let (restarts, since) = self.returned[back];
                if self.lives[back] == life
                    && let Some(it) = &mut self.ranks[rank]
                {
                    it.tell_of_return(back, life, restarts, since);
                }
                self.stir(rank);
            }
            Event::Cut(mask, cut) => {
                let n = self.ranks.len();
                for at in 0..self.plan.networks * n * n {
                    let (network, a, b) = (at / n / n, at / n % n, at % n);
                    if mask >> a & 1 != mask >> b & 1 {
                        let (from, to) = (network * n + a, network * n + b);
                        self.net.lock().set_cut(from, to, cut);
                    }
                }
            }
            Event::Fail(network) => self.cut_network(network),
            Event::Announce => self.announce(),
            Event::Shrink => {
                let places = self.ranks.len() * self.plan.networks;
                for at in 0..places * places {
                    let mtu = self.plan.path_mtu;
                    self.net.lock().set_mtu(at / places, at % places, mtu);
                }
            }
        }
    }

    /// A rank's turn to send, and when its next one is.
    fn act(&mut self, rank: usize) {
        self.acts_left[rank] = self.acts_left[rank].saturating_sub(1);
        if self.acts_left[rank] == 0 {
            return;
        }
        if self.rng.one_in(4) {
            self.exchange(rank);
        } else if let Some(it) = &mut self.ranks[rank] {
            it.act();
        }
        self.stir(rank);
        // Bursts: a pause now and then, nothing in between.
        let gap = self.rng.below(2 * self.plan.gap_ns + 1);
        let gap = if self.rng.one_in(4) { gap * 4 } else { gap / 4 };
        self.at(self.now + gap, Event::Act(rank));
    }

    /// Sends a matched message, or receives it.
    fn go_on(&mut self, number: usize, event: Event) {
        let parcel = self.parcels[number];
        let book = self.book.lock();
        let [from, to] = [parcel.from, parcel.to].map(|life| book.lives[life].rank);
        let [sender, receiver] = [parcel.from, parcel.to].map(|life| &book.lives[life]);
        let late = match event {
            Event::Send(_) => sender.knows[to] < parcel.to,
            _ => receiver.knows[from] < parcel.from,
        };
        drop(book);
        if late && !self.calm {
            // It is yet to be told that the other is back.
            return self.at(self.now + MS, event);
        }
        if let Event::Send(_) = event {
            if let Some(rank) = self.living(from, parcel.from) {
                rank.send_parcel(to, parcel);
            }
            self.stir(from);
        } else {
            if let Some(rank) = self.living(to, parcel.to) {
                rank.receive_parcel(from, parcel);
            }
            self.stir(to);
        }
    }

    pub(super) fn cut_network(&mut self, network: usize) {
        let n = self.ranks.len();
        for at in 0..n * n {
            let (from, to) = (network * n + at / n, network * n + at % n);
            self.net.lock().set_cut(from, to, true);
        }
    }

    /// A rank, if it still lives that life.
    fn living(&mut self, rank: usize, life: LifeId) -> Option<&mut Rank> {
        self.ranks[rank].as_mut().filter(|it| it.life == life)
    }

    pub(super) fn stir(&mut self, rank: usize) {
        if let Some(it) = &mut self.ranks[rank] {
            it.next_pass = it.next_pass.min(self.now);
        }
        self.wake_host(rank);
    }

    /// Has a rank send a matched message to another, which receives it, late or early.
    fn exchange(&mut self, rank: usize) {
        let to = self.rng.index(self.ranks.len());
        let Some(of) = self.ranks[rank].as_ref().and_then(|it| it.known(to)) else {
            return;
        };
        let bytes = match self.rng.below(8) {
            0 => 0,
            1..=4 => self.rng.below(2_000),
            5 | 6 => self.rng.below(30_000),
            _ => self.rng.below(self.plan.long_max),
        };
        let number = self.parcels.len();
        self.parcels.push(Parcel {
            tag: FIRST_PARCEL + number as u64,
            from: self.lives[rank],
            to: of,
            bytes: bytes as usize,
        });
        let late = self.rng.scale(100, 2 * MS);
        let [first, second] = if self.rng.one_in(2) {
            [Event::Send(number), Event::Receive(number)]
        } else {
            [Event::Receive(number), Event::Send(number)]
        };
        self.at(self.now, first);
        self.at(self.now + late, second);
    }

    /// Kills a rank, or all of its host.
    pub(super) fn kill_some(&mut self, rank: usize) {
        for other in 0..self.ranks.len() {
            let dies = self.plan.respawn && self.plan.hosts[other] == self.plan.hosts[rank];
            if other == rank || dies {
                self.kill(other);
            }
        }
    }

    pub(super) fn kill(&mut self, at: usize) {
        let Some(rank) = self.ranks[at].take() else {
            return;
        };
        let life = rank.life;
        self.trace.note(self.now, at, || "killed".into());
        self.killed.push(rank);
        self.book.lock().lives[life].lost = true;
        for other in 0..self.ranks.len() {
            let near = self.plan.hosts[other] == self.plan.hosts[at];
            if near || self.plan.told {
                let late = self.rng.scale(1, 2 * MS);
                self.at(self.now + late, Event::Tell(other, at, life));
            }
        }
        if self.plan.supersteps > 0 {
            // When all others must have found out.
            self.at(self.now + 6 * self.plan.silence_ns, Event::Announce);
        }
        // A superstep cannot be taken up again.
        let again = self.plan.supersteps == 0 || self.returned[at].0 == 0;
        if self.plan.respawn && !self.calm && again {
            let after = self.rng.scale(1_000, 2 * self.plan.silence_ns);
            self.at(self.now + after, Event::Revive(at));
        }
    }

    fn revive(&mut self, at: usize) {
        if self.ranks[at].is_some() {
            return;
        }
        for rank in self.ranks.iter_mut().flatten() {
            rank.leave_barriers();
        }
        let since = 1 + self.returned.iter().map(|it| it.1).max().unwrap_or(0);
        self.returned[at] = (self.returned[at].0 + 1, since);
        let mut book = self.book.lock();
        let life = book.lives.len();
        self.lives[at] = life;
        book.lives.push(Life {
            rank: at,
            knows: self.lives.clone(),
            ..Life::default()
        });
        drop(book);
        self.start(at);
        if self.plan.supersteps > 0 {
            let late = self.rng.scale(1, 2 * MS);
            self.at(self.now + late, Event::Kill(at));
        }
        for other in 0..self.ranks.len() {
            if self.ranks[other].is_none() {
                let dead = self.lives[other];
                self.at(self.now, Event::Tell(at, other, dead));
            } else if other != at {
                let late = self.rng.scale(1, 3 * MS);
                self.at(self.now + late, Event::Return(other, at, life));
            }
        }
    }

    /// Whoever started the ranks tells the others of one that has closed.
    pub(super) fn leave(&mut self, rank: usize) {
        for other in (0..self.ranks.len()).filter(|other| *other != rank) {
            let late = self.rng.scale(1, 2 * MS);
            self.at(self.now + late, Event::Left(other, rank));
        }
    }

    fn announce(&mut self) {
        for (at, rank) in self.ranks.iter_mut().enumerate() {
            let Some(rank) = rank else { continue };
            for dead in self.killed.iter().map(|it| it.life) {
                if rank.cannot_notice(dead) {
                    let dead = self.book.lock().lives[dead].rank;
                    rank.tell_of_death(dead, Death::Killed(9));
                    rank.next_pass = self.now;
                    self.trace
                        .note(self.now, at, || format!("is told that {dead} is dead"));
                }
            }
        }
    }
}
