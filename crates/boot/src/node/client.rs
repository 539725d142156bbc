//! The side of those who ask the node service.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use portolan_sys::features::Disabled;
use portolan_sys::memory::SharedMemory;
use portolan_sys::process::peer;
use portolan_sys::socket::{self, Received};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, connect, shutdown,
    socket_with,
};

use super::wire::{Answer, Question};
use crate::host_port::HostPort;

/// A service that has not answered by then is done without. It answers sooner
/// also where the kernel is still taking a queue back.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// Why the service gave nothing. Each text names cause and remedy.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// Nobody listens there.
    #[error("no node service runs here ({0}): systemctl start portolan-node")]
    Absent(PathBuf),
    /// Nobody listens there, and this command cannot be started as the service, for
    /// this reason.
    #[error(
        "no node service runs here, and {0} cannot be started as one: {1} (systemctl start \
         portolan-node, or name the command in the setting agent)"
    )]
    NotStarted(String, String),
    /// Who listens there is neither root nor the owner of the folder.
    #[error("who listens at {0} is user {1}, neither root nor the owner of that folder: not asked")]
    Stranger(PathBuf, u32),
    /// It does not want to, for this reason.
    #[error("{0}")]
    Refused(String),
    /// It can do so for nobody here, for this reason.
    #[error("{0}")]
    Unserved(String),
    /// It has ended, or ended the connection.
    #[error("the node service ended the connection: see its log")]
    Gone,
    /// It has not answered in time.
    #[error("the node service has not answered within {} s: see its log", PATIENCE.as_secs())]
    Silent,
    /// It speaks another language.
    #[error("the node service is of another version: install one version and start it anew")]
    Garbled,
    /// The kernel refused a call.
    #[error("asking the node service: {0}")]
    System(io::Error),
}

/// A connection to the node service. It stays open as long as a host port that
/// came over it is in use.
#[derive(Debug)]
pub struct NodeService(OwnedFd);

impl NodeService {
    /// Connects to the service that listens at `path`.
    ///
    /// # Errors
    /// [`NodeError`].
    pub fn connect(path: &Path) -> Result<Arc<Self>, NodeError> {
        let system = |e: Errno| NodeError::System(e.into());
        let flags = SocketFlags::CLOEXEC;
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(system)?;
        for which in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&socket, which, Some(PATIENCE)).map_err(system)?;
        }
        let address = SocketAddrUnix::new(path).map_err(system)?;
        connect(&socket, &address).map_err(|e| match e {
            Errno::NOENT | Errno::CONNREFUSED => NodeError::Absent(path.to_owned()),
            Errno::AGAIN => NodeError::Silent,
            e => system(e),
        })?;
        let who = peer(socket.as_fd()).map_err(system)?;
        let is_owner = |folder: &Path| folder.metadata().is_ok_and(|it| it.uid() == who.uid);
        if who.uid != 0 && !path.parent().is_some_and(is_owner) {
            return Err(NodeError::Stranger(path.to_owned(), who.uid));
        }
        Ok(Arc::new(Self(socket)))
    }

    /// Whether this user may have host ports; within which bounds, for people
    /// to read.
    ///
    /// # Errors
    /// [`NodeError`].
    pub fn may(&self) -> Result<String, NodeError> {
        match self.ask(Question::May)? {
            (Answer::Bounds(bounds), _) => Ok(bounds),
            _ => Err(NodeError::Garbled),
        }
    }

    /// A host port in the calling thread's network, one of `ranks` that are
    /// asked for over this connection, or in this `group` of this user, and share a
    /// queue, on the interface with address `at`, or else the first that has one; it
    /// does without what is `disabled`. Dropping its lease gives it back.
    ///
    /// # Errors
    /// [`NodeError`].
    pub fn host_port(
        self: &Arc<Self>,
        at: Option<IpAddr>,
        ranks: u32,
        group: Option<u64>,
        disabled: &Disabled,
    ) -> Result<HostPort, NodeError> {
        let question = Question::Open {
            // As interfaces have them; of no address, any.
            at: at
                .map(|ip| ip.to_canonical())
                .filter(|ip| !ip.is_unspecified()),
            copy: disabled.zerocopy,
            one_buffer: disabled.multibuffer,
            ranks,
            group,
        };
        let mut answer = self.ask(question)?;
        if let (Answer::Allocate { bytes }, memory) = &answer {
            let memory = memory.first().ok_or(NodeError::Garbled)?;
            SharedMemory::allocate(memory.as_fd(), *bytes as usize)
                .map_err(|e| NodeError::System(io::Error::other(e)))?;
            answer = self.ask(question)?;
        }
        match answer {
            (Answer::Granted { number, info }, descriptors) => {
                let lease = Box::new(Lease(Arc::clone(self), number));
                let descriptors = descriptors.try_into().map_err(|_| NodeError::Garbled)?;
                Ok(HostPort {
                    info,
                    lease,
                    descriptors,
                    unbound: None,
                })
            }
            _ => Err(NodeError::Garbled),
        }
    }

    fn ask(&self, question: Question) -> Result<(Answer, Vec<OwnedFd>), NodeError> {
        let answer = self.exchange(question);
        if matches!(answer, Err(NodeError::Silent | NodeError::Garbled)) {
            // A late answer would be taken for that to the next question.
            let _ = shutdown(&self.0, Shutdown::Both);
        }
        answer
    }

    fn exchange(&self, question: Question) -> Result<(Answer, Vec<OwnedFd>), NodeError> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => NodeError::Gone,
            io::ErrorKind::WouldBlock => NodeError::Silent,
            _ => NodeError::System(error),
        };
        let sent = socket::send(self.0.as_fd(), &question.encode(), &[], true);
        let received = match socket::receive(self.0.as_fd(), true) {
            // Who is refused before its question is read finds a reset
            // connection, and behind that the reason.
            Ok(None) => socket::receive(self.0.as_fd(), true),
            received => received,
        };
        let Received {
            bytes, descriptors, ..
        } = match received {
            Ok(Some(received)) => received,
            Ok(None) => return Err(NodeError::Gone),
            Err(error) => return Err(failed(sent.err().unwrap_or(error))),
        };
        match Answer::decode(&bytes) {
            Some(Answer::Refused(why)) => Err(NodeError::Refused(why)),
            Some(Answer::Unserved(why)) => Err(NodeError::Unserved(why)),
            Some(answer) => Ok((answer, descriptors)),
            None => Err(NodeError::Garbled),
        }
    }
}

/// Gives a host port back.
struct Lease(Arc<NodeService>, u32);

impl Drop for Lease {
    fn drop(&mut self) {
        let question = Question::Release { number: self.1 };
        // A service that is gone finds out by itself.
        let _ = socket::send(self.0.0.as_fd(), &question.encode(), &[], false);
    }
}
