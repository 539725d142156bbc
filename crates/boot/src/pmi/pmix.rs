//! PMIx, by the launcher's own library: what `mpirun` of Open MPI and `srun
//! --mpi=pmix` offer. The protocol between library and launcher is not
//! specified, so the library is needed.
//!
//! A call of the library may block as long as the launcher likes. So a thread
//! of its own makes all calls; it is given up if one does not return.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::Builder;
use std::time::Duration;

use portolan_sys::pmix::{Client, Failed, Library, LoadError};
use portolan_sys::socket;
use portolan_sys::tell::tell;
use rustix::net::{Shutdown, shutdown};
use rustix::process::{Signal, getpid, kill_process};

use super::error::FENCE;
use super::{GETTING, LEAVING, OPENING, PUTTING, PmiError};
use crate::message::{How, ToRank};

/// Versions whose declarations match the calls made here.
const MAJOR_MIN: u32 = 4;
const MAJOR_MAX: u32 = 5;

/// A call that the thread makes.
type Call = Box<dyn FnOnce(&mut Option<Client>) + Send>;

/// The thread that calls the library; it ends when this is dropped.
pub(super) struct Speaker {
    calls: Sender<Call>,
    /// Timeout of calls that need no other process.
    limit: Duration,
}

impl fmt::Debug for Speaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Speaker").finish_non_exhaustive()
    }
}

/// Opens the exchange; also returns rank and size.
pub(super) fn open(limit: Duration) -> Result<(Speaker, u32, u32), PmiError> {
    static JOINED: AtomicBool = AtomicBool::new(false);
    let (calls, received) = mpsc::channel::<Call>();
    let work = move || {
        let mut client = None;
        for call in received {
            call(&mut client);
        }
    };
    let thread = Builder::new().name("portolan-pmix".to_owned()).spawn(work);
    thread.map_err(|error| PmiError::Io {
        doing: OPENING,
        error,
    })?;
    let speaker = Speaker { calls, limit };
    let (rank, size) = speaker.run(OPENING, limit, |client| {
        let library = Library::load().map_err(|error| match error {
            LoadError::Missing(error) => PmiError::NoLibrary { error },
            LoadError::Lacks(symbol) => PmiError::Library {
                what: format!("has no {symbol}"),
            },
        })?;
        let version = library.version();
        if !major(&version).is_some_and(|it| (MAJOR_MIN..=MAJOR_MAX).contains(&it)) {
            return Err(PmiError::Library {
                what: format!("says that it is {version:?}"),
            });
        }
        if JOINED.swap(true, Ordering::Relaxed) {
            return Err(PmiError::AlreadyJoined);
        }
        let come = library.init().map_err(|error| {
            JOINED.store(false, Ordering::Relaxed);
            failed(OPENING)(error)
        })?;
        come.on_loss(end_without_launcher);
        let size = come.size().map_err(failed(OPENING))?;
        let rank = come.rank();
        *client = Some(come);
        Ok((rank, size))
    })?;
    Ok((speaker, rank, size))
}

/// Ends this process, whose launcher is gone without having ended it: nothing else would.
fn end_without_launcher() {
    tell(format_args!(
        "portolan: the launcher is gone, and its job ends with it"
    ));
    let _ = kill_process(getpid(), Signal::TERM);
}

/// Returns the first number of a version, which stands between words.
fn major(version: &str) -> Option<u32> {
    let number = version.split_whitespace().find(|word| {
        let mut letters = word.chars();
        letters.next().is_some_and(|first| first.is_ascii_digit())
    })?;
    number.split('.').next()?.parse().ok()
}

fn failed(doing: &'static str) -> impl Fn(Failed) -> PmiError {
    move |failed| PmiError::LibraryFailed {
        doing,
        answer: failed.to_string(),
    }
}

impl Speaker {
    /// Has the thread make a call, and waits for it at most `limit`.
    fn run<T: Send + 'static>(
        &self,
        doing: &'static str,
        limit: Duration,
        call: impl FnOnce(&mut Option<Client>) -> Result<T, PmiError> + Send + 'static,
    ) -> Result<T, PmiError> {
        let (tell, told) = mpsc::channel();
        let call = move |client: &mut Option<Client>| drop(tell.send(call(client)));
        // A thread that is gone does not answer.
        let _ = self.calls.send(Box::new(call));
        let waited = limit;
        told.recv_timeout(limit).unwrap_or_else(|why| {
            Err(match why {
                RecvTimeoutError::Disconnected => PmiError::Gone { doing },
                RecvTimeoutError::Timeout if doing == FENCE => PmiError::TimedOut { doing, waited },
                RecvTimeoutError::Timeout => PmiError::Stuck { doing, waited },
            })
        })
    }

    /// Has the thread call the library, which must have been initialized.
    fn ask<T: Send + 'static>(
        &self,
        doing: &'static str,
        limit: Duration,
        call: impl FnOnce(&Client) -> Result<T, Failed> + Send + 'static,
    ) -> Result<T, PmiError> {
        self.run(doing, limit, move |client| {
            let client = client.as_ref().ok_or(PmiError::Gone { doing })?;
            call(client).map_err(failed(doing))
        })
    }

    pub fn put(&self, key: &str, value: &str) -> Result<(), PmiError> {
        let (key, value) = (key.to_owned(), value.to_owned());
        self.ask(PUTTING, self.limit, move |it| it.put(&key, &value))
    }

    pub fn fence(&self, limit: Duration) -> Result<(), PmiError> {
        self.ask(FENCE, limit, Client::fence)
    }

    /// Returns what `rank` has put under a key.
    pub fn get(&self, rank: u32, key: &str) -> Result<String, PmiError> {
        let owned = key.to_owned();
        let got = self.ask(GETTING, self.limit, move |it| it.text(rank, &owned));
        got.map_err(|error| match error {
            // The library waits for a value that was never put.
            PmiError::LibraryFailed { .. } | PmiError::Stuck { .. } => PmiError::NotThere {
                key: key.to_owned(),
            },
            error => error,
        })
    }

    /// Returns a socket that reports deaths as an agent does, where the
    /// launcher reports them. Writing to it fails.
    pub fn deaths(&self) -> Option<OwnedFd> {
        let (ours, theirs) = socket::pair().ok()?;
        shutdown(&theirs, Shutdown::Read).ok()?;
        let told = move |rank| {
            let died = ToRank::Died {
                rank,
                how: How::Gone,
            };
            // A reader that is gone needs no report, and one that reads nothing
            // finds the dead by their silence.
            let _ = socket::send(theirs.as_fd(), &died.encode(), &[], false);
        };
        let registered = self.ask(OPENING, self.limit, move |it| {
            it.on_death(told);
            Ok(())
        });
        registered.ok().map(|()| ours)
    }

    pub fn finalize(&self) -> Result<(), PmiError> {
        self.run(LEAVING, self.limit, |client| {
            let client = client.take().ok_or(PmiError::Gone { doing: LEAVING })?;
            client.finalize().map_err(failed(LEAVING))
        })
    }

    pub fn abort(&self, code: u8) -> Result<(), PmiError> {
        self.ask(LEAVING, self.limit, move |it| it.abort(code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_between_words() {
        for (version, number) in [
            (
                "OpenPMIx 4.2.2rc2 (PMIx Standard: 4.2, Stable ABI: 0.0)",
                Some(4),
            ),
            ("OpenPMIx 5.0.11rc1 (PMIx Standard: 5.1)", Some(5)),
            ("3.2", Some(3)),
            ("OpenPMIx", None),
            ("", None),
        ] {
            assert_eq!(major(version), number, "{version}");
        }
    }

    #[test]
    fn a_call_that_does_not_return_is_given_up() {
        let (calls, received) = mpsc::channel::<Call>();
        let limit = Duration::from_millis(20);
        let speaker = Speaker { calls, limit };
        for (doing, part) in [
            (OPENING, "libpmix.so.2 has not returned within 0.02 s"),
            (FENCE, "join_ms"),
        ] {
            let error = speaker.run(doing, limit, |_| Ok(())).unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
        }
        drop(received);
        let error = speaker.put("key", "value").unwrap_err();
        assert!(matches!(error, PmiError::Gone { .. }), "{error}");
    }
}
