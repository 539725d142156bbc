//! A process's side of its job.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use portolan_sys::environment;
use portolan_sys::lives::{Lives, Pulse};
use portolan_sys::memory::{Hidden, MemoryError};
use portolan_sys::socket::{self, MESSAGE_BYTES_MAX, Received};
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};

use crate::JOB_VARIABLE;
use crate::codec::{self, decode};
use crate::error::BootError;
use crate::guest::{Guest, GuestOptions, Joined, Met};
use crate::host_port::OwnHostPort;
use crate::message::{
    Congestion, GaveUp, How, Lane, LinkChoice, Membership, Security, Suite, Table, ToLauncher,
    ToRank, Versions, decode_membership, key_check,
};

/// Most given-up ranks that one message reports.
const GIVEN_UP_MAX: usize = 1024;

/// Another process of the job, or this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerInfo {
    /// Address of its endpoint, the bytes of a `wire::Address`.
    #[serde(with = "codec::bytes")]
    pub address: [u8; 64],
    /// Process id on its host.
    pub pid: u32,
    /// Number of its host in the job.
    pub host_index: u16,
    /// Number among the job's ranks on that host.
    pub local_index: u16,
    /// Number of restarts.
    pub restarts: u32,
    /// Number of its last return, counted over the job's from 1; 0 in its first life.
    pub since: u32,
}

/// Notice of the launcher or an agent to a running rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A rank has ended without leaving the job first.
    Died {
        /// Its number.
        rank: u32,
        /// How it ended.
        how: How,
    },
    /// A rank of this host has given this one up: the memory that they share is corrupt.
    GivenUp {
        /// The other rank.
        by: u32,
    },
    /// A rank's process is stopped, so its silence is no sign of death.
    /// Repeated as long as it is.
    Stopped {
        /// Its number.
        rank: u32,
    },
    /// This host's agent has heard nothing of the host of these ranks for a
    /// while, and asks whether this process has: [`Job::has_heard`].
    Doubted {
        /// The ranks of that host.
        ranks: Vec<u32>,
    },
    /// A rank has closed its endpoint in good order. Sent only to a rank that
    /// was started again: others hear it from the rank itself.
    Left {
        /// Its number.
        rank: u32,
    },
    /// A rank that had died was started again and has joined the job.
    Back {
        /// Its number.
        rank: u32,
        /// Its entry in the table from now on.
        peer: PeerInfo,
    },
    /// The job is being ended, or the launcher is gone, for this reason. SIGTERM follows.
    Abort(String),
}

/// The job that this process belongs to.
///
/// A process that no launcher started is a job of one rank with a random
/// secret. A job dereferences to its [`Membership`], this process's place in
/// it.
pub struct Job {
    membership: Membership,
    /// The job's secret (a guest's own), until it is taken.
    secret: Option<Hidden<32>>,
    /// Key check: shows that this process had the secret.
    check: u64,
    /// The host's shared segment, made by the launcher or the host's first
    /// guest. None where no memory is shared: in a job of one, with
    /// [`LinkChoice::Udp`] or [`LinkChoice::Xdp`], after a restart.
    pub segment: Option<OwnedFd>,
    /// Share of the host's doorbells
    /// ([`SharedDoorbells::of`](portolan_sys::shared_doorbell::SharedDoorbells::of)): what rings
    /// each rank, by local index, then this rank's own receiving end. Empty where `segment` is
    /// none.
    pub doorbells: Vec<OwnedFd>,
    /// Futex word that this process holds as long as it lives; none without a
    /// launcher or agent, or where that watches no words. A guest has it after
    /// the exchange.
    pub pulse: Option<Pulse>,
    /// Host port that this process was given.
    pub host_port: Option<OwnHostPort>,
    /// Why the host port could not be bound, if that was left until all had
    /// mapped theirs. Known after the exchange.
    pub not_bound: Option<String>,
    control: Option<OwnedFd>,
    guest: Option<Guest>,
    solo: bool,
    pid: u32,
    notices: VecDeque<Notice>,
    /// Given-up ranks that are not reported to the launcher yet, with their
    /// restarts and the reason.
    given_up: VecDeque<((u32, u32), GaveUp)>,
}

impl Deref for Job {
    type Target = Membership;

    fn deref(&self) -> &Membership {
        &self.membership
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("membership", &self.membership)
            .finish_non_exhaustive()
    }
}

impl Job {
    /// Joins the job that `PORTOLAN_JOB` names, or makes one of this process
    /// alone if it is not set. Call it once in a process.
    ///
    /// # Errors
    /// [`BootError`]; nothing to retry.
    pub fn attach() -> Result<Self, BootError> {
        match environment::var_os(JOB_VARIABLE) {
            None => Self::solo(),
            Some(value) => {
                let text = value.to_string_lossy();
                let number = text
                    .strip_prefix("fd:")
                    .and_then(|n| n.parse().ok())
                    .ok_or_else(|| BootError::BadVariable(text.to_string()))?;
                let socket =
                    portolan_sys::inherit::adopt_inherited(number).map_err(|error| match error
                        .kind()
                    {
                        io::ErrorKind::AlreadyExists => BootError::AlreadyAttached,
                        io::ErrorKind::NotFound => BootError::NoDescriptor(number),
                        _ => BootError::io("taking over the launcher's socket")(error),
                    })?;
                if !socket::is_ours(socket.as_fd()) {
                    return Err(BootError::NoDescriptor(number));
                }
                Self::attach_over(socket)
            }
        }
    }

    /// Makes a job of this process alone.
    ///
    /// # Errors
    /// [`BootError::Io`]: the kernel gave no random bytes.
    pub fn solo() -> Result<Self, BootError> {
        let drawing = || BootError::io("asking the kernel for random bytes");
        let mut random = [0; 16];
        fill_random(&mut random).map_err(drawing())?;
        let (job_id, life) = random.split_first_chunk::<8>().expect("16 bytes");
        let membership = Membership {
            rank: 0,
            size: 1,
            job_id: u64::from_le_bytes(*job_id),
            security: Security::Encrypt,
            suite: Suite::default(),
            link: LinkChoice::Auto,
            congestion: Congestion::Auto,
            life: u64::from_le_bytes(life.try_into().expect("8 bytes")),
            restarts: 0,
            host_index: 0,
            hosts: 1,
            local_index: 0,
            partitions: Vec::new(),
            local_ranks: vec![0],
            core: None,
            core_shared: false,
            settings: BTreeMap::new(),
            ip: None,
            host_port: None,
            shared: false,
            watched: false,
        };
        Ok(Self {
            membership,
            secret: Some(random_secret().map_err(drawing())?),
            check: 0,
            pulse: None,
            segment: None,
            doorbells: Vec::new(),
            host_port: None,
            not_bound: None,
            control: None,
            guest: None,
            solo: true,
            pid: std::process::id(),
            notices: VecDeque::new(),
            given_up: VecDeque::new(),
        })
    }

    /// Joins the processes that another launcher started beside this one (see
    /// [`is_guest`](crate::is_guest)), and returns when all have come. Call it
    /// once in a process. `make` makes the segment of a host for a number of
    /// processes; it is called in one process of each host.
    ///
    /// # Errors
    /// [`BootError::Pmi`], [`BootError::Guest`], [`BootError::Io`]; nothing to
    /// retry.
    pub fn join(
        options: &GuestOptions,
        make: &mut dyn FnMut(u32) -> io::Result<OwnedFd>,
    ) -> Result<Self, BootError> {
        let Joined {
            guest,
            membership,
            secret,
            shared,
        } = Guest::join(options, make)?;
        let (segment, doorbells) = match shared {
            Some((segment, doorbells)) => (Some(segment), doorbells),
            None => (None, Vec::new()),
        };
        Ok(Self {
            membership,
            secret: Some(secret),
            check: 0,
            pulse: None,
            segment,
            doorbells,
            host_port: None,
            not_bound: None,
            control: None,
            guest: Some(guest),
            solo: false,
            pid: std::process::id(),
            notices: VecDeque::new(),
            given_up: VecDeque::new(),
        })
    }

    /// Takes the job's secret (a guest's own), to be kept in memory that
    /// nothing else reaches; none if it was taken before.
    pub fn take_secret(&mut self) -> Option<Hidden<32>> {
        self.secret.take()
    }

    /// Returns this process's place in the job.
    #[must_use]
    pub const fn membership(&self) -> &Membership {
        &self.membership
    }

    /// Whether another launcher than Portolan's has started this job.
    #[must_use]
    pub const fn is_guest(&self) -> bool {
        self.guest.is_some()
    }

    /// Why no memory is shared with a rank of this host, though the job's link
    /// allows it; none if it is. Valid after the exchange.
    #[must_use]
    pub fn apart(&self, rank: u32) -> Option<String> {
        self.guest.as_ref()?.apart(rank)
    }

    /// Joins over a socket from a launcher.
    pub(crate) fn attach_over(socket: OwnedFd) -> Result<Self, BootError> {
        let pid = std::process::id();
        let hello = ToLauncher::Hello {
            versions: Versions::ours(),
            pid,
        }
        .encode();
        say(socket.as_fd(), &hello)?;
        let mapping = |error: MemoryError| BootError::io("mapping memory")(error.into());
        let mut answer = Hidden::<MESSAGE_BYTES_MAX>::new().map_err(mapping)?;
        let got = socket::receive_into(socket.as_fd(), &mut answer[..], true);
        let (length, descriptors) = got.map_err(listening())?.ok_or(BootError::LauncherGone)?;
        let (membership, secret) = match decode_membership(&answer[..length]) {
            Some((membership, secret)) => (membership, Hidden::copy_of(secret).map_err(mapping)?),
            None => match decode(&answer[..length]) {
                Some(ToRank::Refused(refusal)) => return Err(BootError::Refused(refusal)),
                Some(ToRank::Abort { why }) => return Err(BootError::Aborted(why)),
                _ => return Err(BootError::Garbled),
            },
        };
        drop(answer);
        let mut descriptors = descriptors.into_iter();
        // Announced descriptors come first, the rest are doorbells.
        let mut announced = |is: bool| match is.then(|| descriptors.next()) {
            Some(None) => Err(BootError::Garbled),
            given => Ok(given.flatten()),
        };
        let segment = announced(membership.shared)?;
        let lives = announced(membership.watched)?;
        let host_port = match &membership.host_port {
            Some(Ok(info)) => {
                let mut next = || announced(true)?.ok_or(BootError::Garbled);
                let descriptors = [next()?, next()?, next()?, next()?];
                Some(OwnHostPort {
                    info: info.clone(),
                    descriptors,
                    first: announced(info.unbound)?,
                })
            }
            _ => None,
        };
        let mut doorbells: Vec<OwnedFd> = descriptors.collect();
        let pulse = lives.map(|lives| {
            let lives = Lives::from_fd(lives).ok();
            let index = usize::from(membership.local_index);
            lives.and_then(|lives| Pulse::new(lives, index))
        });
        let pulse = pulse
            .map(|pulse| pulse.ok_or(BootError::Garbled))
            .transpose()?;
        let mut notices = VecDeque::new();
        while segment.is_some() && doorbells.len() <= membership.local_ranks.len() {
            let Received {
                bytes, descriptors, ..
            } = hear(socket.as_fd())?;
            match decode(&bytes).ok_or(BootError::Garbled)? {
                ToRank::Doorbells => doorbells.extend(descriptors),
                ToRank::Abort { why } => return Err(BootError::Aborted(why)),
                other => notices.push_back(notice(other).ok_or(BootError::Garbled)?),
            }
        }
        Ok(Self {
            check: key_check(
                &secret,
                membership.job_id,
                membership.security,
                membership.suite,
            ),
            secret: Some(secret),
            membership,
            pulse,
            segment,
            doorbells,
            host_port,
            not_bound: None,
            control: Some(socket),
            guest: None,
            solo: false,
            pid,
            notices,
            given_up: VecDeque::new(),
        })
    }

    /// Publishes this process's address (the bytes of a `wire::Address`), waits
    /// until all ranks have, and returns all, by rank. The launcher limits the
    /// wait and reports which ranks are missing.
    ///
    /// # Errors
    /// - [`BootError::Aborted`]: a rank ended or did not come; its reason.
    /// - [`BootError::Refused`]: the launcher saw a wrong key.
    /// - [`BootError::LauncherGone`].
    pub fn exchange(&mut self, address: [u8; 64]) -> Result<Vec<PeerInfo>, BootError> {
        if self.solo {
            return Ok(vec![PeerInfo {
                address,
                pid: self.pid,
                host_index: 0,
                local_index: 0,
                restarts: 0,
                since: 0,
            }]);
        }
        if let Some(guest) = &mut self.guest {
            let Met { table, agent } = guest.exchange(address, self.segment.is_some())?;
            if let Some((control, pulse)) = agent {
                (self.control, self.pulse) = (Some(control), pulse);
            }
            return Ok(table);
        }
        let Some(control) = &self.control else {
            return Err(BootError::LauncherGone);
        };
        let check = self.check;
        say(
            control.as_fd(),
            &ToLauncher::Join { address, check }.encode(),
        )?;
        let size = self.size as usize;
        let mut table = Vec::with_capacity(size);
        while table.len() < size {
            let Received { bytes, .. } = hear(control.as_fd())?;
            match decode(&bytes).ok_or(BootError::Garbled)? {
                ToRank::Table { first, peers } if first as usize == table.len() => {
                    table.extend(peers);
                }
                ToRank::NotBound { why } => self.not_bound = Some(why),
                ToRank::Abort { why } => return Err(BootError::Aborted(why)),
                ToRank::Refused(refusal) => return Err(BootError::Refused(refusal)),
                other => self
                    .notices
                    .push_back(notice(other).ok_or(BootError::Garbled)?),
            }
        }
        if table.len() > size {
            return Err(BootError::Garbled);
        }
        Ok(table)
    }

    /// Readable when [`Job::poll_notice`] has a notice. None without a launcher
    /// or agent, and once that is gone.
    #[must_use]
    pub fn control_fd(&self) -> Option<BorrowedFd<'_>> {
        self.control.as_ref().map(AsFd::as_fd)
    }

    /// Returns the next notice. Does not wait.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        if let Some(notice) = self.notices.pop_front() {
            return Some(notice);
        }
        self.tell_given_up();
        let control = self.control.as_ref()?;
        match socket::receive(control.as_fd(), false) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Ok(Some(Received { bytes, .. })) => decode(&bytes)
                .and_then(notice)
                .or_else(|| self.lost(&BootError::Garbled)),
            Ok(None) | Err(_) => self.lost(&BootError::LauncherGone),
        }
    }

    fn lost(&mut self, why: &BootError) -> Option<Notice> {
        self.control = None;
        if self.guest.is_some() {
            log::info!("this host's agent is gone: deaths on others are known by silence");
            return None;
        }
        Some(Notice::Abort(why.to_string()))
    }

    /// Reports that this process has given up a rank, with its number of
    /// restarts, though its end was not reported. Does not wait: what finds no
    /// room goes with the next report or notice.
    pub fn give_up(&mut self, rank: u32, restarts: u32, why: GaveUp) {
        if self.control.is_some() {
            self.given_up.push_back(((rank, restarts), why));
            self.tell_given_up();
        }
    }

    /// Reports how long ago something was heard of a rank. Does not wait: if
    /// the report finds no room, the agent asks again.
    pub fn has_heard(&mut self, rank: u32, ago: Duration) {
        if let Some(control) = &self.control {
            let ago_ms = u64::try_from(ago.as_millis()).unwrap_or(u64::MAX);
            let message = ToLauncher::Heard { rank, ago_ms }.encode();
            let _ = socket::send(control.as_fd(), &message, &[], false);
        }
    }

    fn tell_given_up(&mut self) {
        while let (Some(&(_, why)), Some(control)) = (self.given_up.front(), &self.control) {
            let alike = self.given_up.iter().take_while(|(_, other)| *other == why);
            let ranks: Vec<_> = alike.take(GIVEN_UP_MAX).map(|(rank, _)| *rank).collect();
            let count = ranks.len();
            let message = ToLauncher::GaveUp { ranks, why }.encode();
            match socket::send(control.as_fd(), &message, &[], false) {
                Ok(()) => drop(self.given_up.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // poll_notice reports that the launcher is gone.
                Err(_) => self.given_up.clear(),
            }
        }
    }

    /// Reports that this process has closed its endpoint in good order: its end
    /// is then no death. Call it last.
    pub fn leave(&mut self) {
        if let Some(guest) = &mut self.guest {
            guest.leave();
        }
        self.send(&ToLauncher::Leave);
    }

    /// Asks the launcher to end the whole job, this process too, with exit
    /// code `code`. Returns at once; without a launcher it does nothing.
    pub fn abort(&mut self, code: u8) {
        if let Some(guest) = &mut self.guest {
            guest.abort(code);
        }
        self.send(&ToLauncher::Abort { code });
    }

    /// Returns a handle that reports to the launcher after this job was moved
    /// elsewhere; none without a launcher.
    ///
    /// # Errors
    /// [`BootError::Io`]: no descriptor is left.
    pub fn reporter(&self) -> Result<Option<Reporter>, BootError> {
        let control = self.control.as_ref().map(OwnedFd::try_clone).transpose();
        let control = control.map_err(BootError::io("duplicating the launcher's socket"))?;
        Ok(control.map(Reporter))
    }

    fn send(&mut self, message: &ToLauncher) {
        if let Some(control) = &self.control
            && socket::send(control.as_fd(), &message.encode(), &[], true).is_err()
        {
            // poll_notice reports that the launcher is gone.
        }
    }
}

/// A connection to the launcher; see [`Job::reporter`].
#[derive(Debug)]
pub struct Reporter(OwnedFd);

impl Reporter {
    /// Reports which link carries messages to each rank and why, for the job's
    /// summary: rank, link, reason, by ascending rank. `own`: the address that
    /// is published to others, if there is one, with the reason.
    pub fn lanes(
        &self,
        each: impl IntoIterator<Item = (u32, String, String)>,
        own: Option<(IpAddr, String)>,
    ) {
        let mut lanes = Lane::gather(each);
        lanes.extend(own.map(|(ip, why)| Lane::told(ip, why)));
        self.send(&ToLauncher::Lanes(lanes));
    }

    /// Reports where in this process's memory the launcher or agent finds
    /// counters and state. They must stay there until [`Job::leave`].
    pub fn tables(&self, tables: Vec<Table>) {
        self.send(&ToLauncher::Tables(tables));
    }

    fn send(&self, message: &ToLauncher) {
        let message = message.encode();
        // A longer message is left out. `poll_notice` reports that the launcher is gone.
        if message.len() <= socket::MESSAGE_BYTES_MAX {
            let _ = socket::send(self.0.as_fd(), &message, &[], true);
        }
    }
}

/// Converts a message to a running rank; none if it is not meant for one.
fn notice(said: ToRank) -> Option<Notice> {
    Some(match said {
        ToRank::Doubted { ranks } => Notice::Doubted { ranks },
        ToRank::Died { rank, how } => Notice::Died { rank, how },
        ToRank::GivenUp { by } => Notice::GivenUp { by },
        ToRank::Stopped { rank } => Notice::Stopped { rank },
        ToRank::Left { rank } => Notice::Left { rank },
        ToRank::Back { rank, peer } => Notice::Back { rank, peer },
        ToRank::Abort { why } => Notice::Abort(why),
        _ => return None,
    })
}

/// Returns 32 random bytes from the kernel, in memory that nothing else reaches.
pub(crate) fn random_secret() -> io::Result<Hidden<32>> {
    let mut secret = Hidden::new()?;
    fill_random(&mut secret[..])?;
    Ok(secret)
}

/// Fills `bytes` with random ones from the kernel.
pub(crate) fn fill_random(mut bytes: &mut [u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let n = getrandom(&mut *bytes, GetRandomFlags::empty())?;
        bytes = &mut bytes[n..];
    }
    Ok(())
}

fn say(socket: BorrowedFd<'_>, bytes: &[u8]) -> Result<(), BootError> {
    socket::send(socket, bytes, &[], true).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => BootError::LauncherGone,
        _ => BootError::Io {
            doing: "talking to the launcher",
            error,
        },
    })
}

fn hear(socket: BorrowedFd<'_>) -> Result<Received, BootError> {
    socket::receive(socket, true)
        .map_err(listening())?
        .ok_or(BootError::LauncherGone)
}

fn listening() -> impl FnOnce(io::Error) -> BootError {
    BootError::io("listening to the launcher")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Refusal;
    use crate::message::encode_membership;

    /// A launcher that reads one message and answers with others.
    fn attach_to(answers: Vec<Vec<u8>>) -> (Result<Job, BootError>, OwnedFd) {
        let (ours, theirs) = socket::pair().unwrap();
        let launcher = std::thread::spawn(move || {
            let hello = hear(theirs.as_fd()).unwrap().bytes;
            assert!(hello.starts_with(b"J{\"Hello\""));
            for answer in answers {
                socket::send(theirs.as_fd(), &answer, &[], true).unwrap();
            }
            theirs
        });
        let job = Job::attach_over(ours);
        (job, launcher.join().unwrap())
    }

    fn membership(size: u32) -> Vec<u8> {
        let membership = Membership {
            rank: 0,
            size,
            job_id: 3,
            security: Security::Encrypt,
            suite: Suite::Aes128Gcm,
            link: LinkChoice::Udp,
            congestion: Congestion::Auto,
            life: 4,
            restarts: 0,
            host_index: 0,
            hosts: 1,
            local_index: 0,
            partitions: Vec::new(),
            local_ranks: (0..size).collect(),
            core: None,
            core_shared: false,
            settings: BTreeMap::new(),
            ip: None,
            host_port: None,
            shared: false,
            watched: false,
        };
        [encode_membership(&membership), vec![7; 32]].concat()
    }

    fn table(first: u32, peers: Vec<PeerInfo>) -> Vec<u8> {
        ToRank::Table { first, peers }.encode()
    }

    fn peer(rank: u8) -> PeerInfo {
        PeerInfo {
            address: [rank; 64],
            pid: 1,
            host_index: 0,
            local_index: rank.into(),
            restarts: 0,
            since: 0,
        }
    }

    #[test]
    fn a_table_comes_in_parts_and_notices_between_are_kept() {
        let died = ToRank::Died {
            rank: 1,
            how: How::Killed(9),
        }
        .encode();
        let left = ToRank::Left { rank: 2 }.encode();
        let first = table(0, vec![peer(0), peer(1)]);
        let second = table(2, vec![peer(2)]);
        let (rank, peer7) = (1, peer(7));
        let back = ToRank::Back { rank, peer: peer7 }.encode();
        let (job, launcher) = attach_to(vec![membership(3), left, first, died, second, back]);
        let mut job = job.unwrap();
        assert_eq!((job.size, *job.take_secret().unwrap()), (3, [7; 32]));
        assert_eq!(job.exchange([0; 64]).unwrap(), [peer(0), peer(1), peer(2)]);
        assert_eq!(job.poll_notice(), Some(Notice::Left { rank: 2 }));
        assert_eq!(
            job.poll_notice(),
            Some(Notice::Died {
                rank: 1,
                how: How::Killed(9)
            })
        );
        let back = Notice::Back { rank, peer: peer7 };
        assert_eq!(job.poll_notice(), Some(back));
        assert_eq!(job.poll_notice(), None);
        drop(launcher);
        assert!(matches!(job.poll_notice(), Some(Notice::Abort(why)) if why.contains("gone")));
        assert!(job.control_fd().is_none());
        assert_eq!(job.poll_notice(), None);
        assert!(matches!(
            job.exchange([0; 64]),
            Err(BootError::LauncherGone)
        ));
    }

    #[test]
    fn a_table_with_a_hole_or_too_long_is_garbled() {
        for part in [
            table(1, vec![peer(1)]),
            table(0, vec![peer(0), peer(1), peer(2)]),
        ] {
            let (job, _launcher) = attach_to(vec![membership(2), part]);
            let got = job.unwrap().exchange([0; 64]);
            assert!(matches!(got, Err(BootError::Garbled)), "{got:?}");
        }
    }

    #[test]
    fn a_refusal_an_abort_and_garbage_are_told_apart() {
        let refusal = Refusal::KeyCheck { rank: 0 };
        let (job, _) = attach_to(vec![ToRank::Refused(refusal.clone()).encode()]);
        assert!(matches!(job, Err(BootError::Refused(got)) if got == refusal));
        let (job, _) = attach_to(vec![
            ToRank::Abort {
                why: "late".to_owned(),
            }
            .encode(),
        ]);
        assert!(matches!(job, Err(BootError::Aborted(why)) if why == "late"));
        let (job, _) = attach_to(vec![b"?".to_vec()]);
        assert!(matches!(job, Err(BootError::Garbled)));
        let (ours, theirs) = socket::pair().unwrap();
        drop(theirs);
        assert!(matches!(
            Job::attach_over(ours),
            Err(BootError::LauncherGone)
        ));
    }

    #[test]
    fn whom_a_rank_has_given_up_is_told_though_nobody_listens_for_a_while() {
        let (job, launcher) = attach_to(vec![membership(2)]);
        let mut job = job.unwrap();
        let many = 5000;
        for rank in 0..many {
            job.give_up(rank, 1, GaveUp::Silent);
        }
        job.give_up(7, 2, GaveUp::Corrupt);
        assert!(!job.given_up.is_empty(), "the socket holds all of it");
        let mut told = Vec::new();
        while told.len() <= many as usize {
            let bytes = hear(launcher.as_fd()).unwrap().bytes;
            match decode(&bytes) {
                Some(ToLauncher::GaveUp { ranks, why }) => {
                    told.extend(ranks.into_iter().map(|rank| (rank, why)));
                }
                _ => panic!("{bytes:?}"),
            }
            assert_eq!(job.poll_notice(), None);
        }
        let silent = (0..many).map(|rank| ((rank, 1), GaveUp::Silent));
        assert!(told.drain(..many as usize).eq(silent));
        assert_eq!(told, [((7, 2), GaveUp::Corrupt)]);
    }

    #[test]
    fn a_job_of_one_needs_nobody() {
        let (mut one, mut two) = (Job::solo().unwrap(), Job::solo().unwrap());
        let secrets = [one.take_secret(), two.take_secret()];
        let [one_secret, two_secret] = secrets.map(Option::unwrap);
        assert_ne!(*one_secret, *two_secret);
        assert_ne!(one.life, two.life);
        assert_eq!(one.exchange([9; 64]).unwrap()[0].address, [9; 64]);
        assert_eq!(one.poll_notice(), None);
        one.leave();
    }
}
