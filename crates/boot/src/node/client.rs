//! The client's side of the node service.

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

/// Timeout of an answer. The service is sooner also where the kernel is still taking a queue
/// back, but its host may be busy.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// Why the service granted nothing. Each text names cause and remedy.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// No service listens at this path.
    #[error("no node service runs here ({0}): systemctl start portolan-node")]
    Absent(PathBuf),
    /// No service listens there, and this command cannot be started as one, for
    /// this reason.
    #[error(
        "no node service runs here, and {0} cannot be started as one: {1} (systemctl start \
         portolan-node, or name the command in the setting agent)"
    )]
    NotStarted(String, String),
    /// The process that listens there belongs to neither root nor the owner of the folder.
    #[error("who listens at {0} is user {1}, neither root nor the owner of that folder: not asked")]
    Stranger(PathBuf, u32),
    /// The service refuses, for this reason.
    #[error("{0}")]
    Refused(String),
    /// The service can grant none here, to any user, for this reason.
    #[error("{0}")]
    Unserved(String),
    /// The service has ended, or ended the connection.
    #[error("the node service ended the connection: see its log")]
    Gone,
    /// The service has not answered in time.
    #[error("the node service has not answered within {} s: see its log", TIMEOUT.as_secs())]
    Silent,
    /// The service is of another version.
    #[error("the node service is of another version: install one version and start it anew")]
    Garbled,
    /// The kernel refused a call.
    #[error("asking the node service: {0}")]
    System(io::Error),
}

/// A connection to the node service. It stays open as long as one of its host
/// ports is in use.
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
            set_socket_timeout(&socket, which, Some(TIMEOUT)).map_err(system)?;
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

    /// Returns the bounds within which this user may have host ports, for people to read.
    ///
    /// # Errors
    /// [`NodeError`].
    pub fn may(&self) -> Result<String, NodeError> {
        match self.ask(Question::May)? {
            (Answer::Bounds(bounds), _) => Ok(bounds),
            _ => Err(NodeError::Garbled),
        }
    }

    /// Asks for a host port in the calling thread's network namespace, on the interface with
    /// address `at`, or else the first that has one. It shares a queue with the others of `ranks`
    /// that are asked for over this connection, or in this `group` of this user. Features that are
    /// `disabled` are not used. Dropping its lease releases it.
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
            // In the form that interfaces have; an unspecified address means any.
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
        let Received {
            bytes, descriptors, ..
        } = match socket::receive(self.0.as_fd(), true) {
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

/// Releases a host port when dropped.
struct Lease(Arc<NodeService>, u32);

impl Drop for Lease {
    fn drop(&mut self) {
        let question = Question::Release { number: self.1 };
        // A service that is gone needs no message.
        let _ = socket::send(self.0.0.as_fd(), &question.encode(), &[], false);
    }
}
