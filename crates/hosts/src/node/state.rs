//! What the service writes down, so that its successor takes up what it has
//! given: who got which host port. Whether that is held still is the kernel's
//! word, by the sockets that went with it.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use portolan_boot::node::NODE_FOLDER;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::file::{self, FOLDER};

/// A host port that was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// Whose it is.
    pub uid: u32,
    /// Who asked for it, for people to read: a process number.
    pub pid: u32,
    /// Index and name of the interface.
    pub interface: u32,
    pub name: String,
    /// Its UDP port.
    pub udp: u16,
    /// The inode of the UDP socket there.
    pub inode: u64,
    /// Its packet area, bytes.
    pub bytes: u64,
}

impl Given {
    /// Whether its UDP socket is among those that are open.
    pub fn is_bound(&self, open: &BTreeSet<(u16, u64)>) -> bool {
        open.contains(&(self.udp, self.inode))
    }
}

/// All that is written down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The service has mounted the file system for BPF.
    pub mounted: bool,
    pub given: Vec<Given>,
}

/// The service's files, all in one folder.
#[derive(Clone, Debug)]
pub struct Files {
    pub socket: PathBuf,
    state: PathBuf,
    lock: PathBuf,
}

impl Files {
    /// Those beside `socket`.
    pub fn beside(socket: &Path) -> Self {
        Self {
            socket: socket.to_owned(),
            state: socket.with_extension("state"),
            lock: socket.with_extension("lock"),
        }
    }

    /// Makes the folder and takes the lock that one service at a time has; none
    /// if another has it.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn lock(&self) -> io::Result<Option<File>> {
        let make = || {
            if let Some(folder) = self.lock.parent().filter(|folder| !folder.exists()) {
                fs::create_dir_all(folder)?;
                // All users are to reach the socket, whatever the mask is.
                fs::set_permissions(folder, Permissions::from_mode(0o755))?;
            }
            file::open_lock(&self.lock)
        };
        // One that ends may remove the folder between two steps.
        let file = make().or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => make(),
            _ => Err(error),
        })?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // The one that had it may have removed it meanwhile.
            Ok(()) => {
                let now = fs::metadata(&self.lock).map(|it| it.ino());
                Ok((now.ok() == Some(file.metadata()?.ino())).then_some(file))
            }
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// What is written down; nothing where there is none.
    ///
    /// # Errors
    /// Why it cannot be read: then host ports that are held go on through the
    /// kernel, and nobody knows of them.
    pub fn read(&self) -> Result<State, String> {
        let place = self.state.display();
        let bytes = match file::read(&self.state) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(State::default()),
            read => read.map_err(|error| format!("{place}: {error}"))?,
        };
        let damaged = |_| match bytes.len() {
            0 => format!("{place} is empty"),
            _ => format!("{place} is damaged"),
        };
        serde_json::from_slice(&bytes).map_err(damaged)
    }

    /// Writes it down; readers find the old or the new.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn write(&self, state: &State) -> io::Result<()> {
        let bytes = serde_json::to_vec(state).expect("plain data in memory");
        let new = self.state.with_extension("state.new");
        // Never through a link that somebody else has put there.
        let _ = fs::remove_file(&new);
        let mut file = File::create_new(&new)?;
        file.write_all(&bytes)?;
        fs::rename(&new, &self.state)
    }

    /// Removes the socket, whether it is there or not; nothing else that has its name.
    pub fn remove_socket(&self) {
        let about = fs::symlink_metadata(&self.socket);
        if about.is_ok_and(|about| about.file_type().is_socket()) {
            let _ = fs::remove_file(&self.socket);
        }
    }

    /// Removes all, and the folders that nobody else uses.
    pub fn remove(&self) {
        self.remove_socket();
        let new = self.state.with_extension("state.new");
        for file in [&self.state, &new, &self.lock] {
            let _ = fs::remove_file(file);
        }
        if let Some(folder) = self.lock.parent() {
            let _ = fs::remove_dir(folder);
            // Any other has its parent from somebody else.
            if folder == Path::new(NODE_FOLDER) {
                let _ = fs::remove_dir(FOLDER);
            }
        }
    }
}

/// UDP port and inode of each UDP socket of this network that is open.
///
/// # Errors
/// Without /proc.
pub fn open_sockets() -> io::Result<BTreeSet<(u16, u64)>> {
    let mut open = parse(&fs::read_to_string("/proc/thread-self/net/udp")?);
    // Not there without IPv6.
    let six = fs::read_to_string("/proc/thread-self/net/udp6");
    open.extend(parse(&six.unwrap_or_default()));
    Ok(open)
}

/// See proc_pid_net(5): a line begins with number and own address, its tenth
/// field is the inode.
fn parse(table: &str) -> BTreeSet<(u16, u64)> {
    let socket = |line: &str| {
        let mut fields = line.split_whitespace();
        let port = fields.nth(1)?.rsplit(':').next()?;
        let inode = fields.nth(7)?.parse().ok()?;
        Some((u16::from_str_radix(port, 16).ok()?, inode))
    };
    table.lines().filter_map(socket).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn a_socket_is_open_until_its_last_descriptor_is_closed() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let socket = UdpSocket::bind(address).unwrap();
            let inode = rustix::fs::fstat(socket.as_fd()).unwrap().st_ino;
            let key = (socket.local_addr().unwrap().port(), inode);
            assert!(open_sockets().unwrap().contains(&key), "{key:?}");
            let copy = socket.try_clone().unwrap();
            drop(socket);
            assert!(open_sockets().unwrap().contains(&key), "{key:?}");
            drop(copy);
            assert!(!open_sockets().unwrap().contains(&key), "{key:?}");
        }
    }

    #[test]
    fn what_others_put_in_its_place_is_left_alone() {
        let folder =
            std::env::temp_dir().join(format!("portolan-node-links-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let files = Files::beside(&folder.join("node.sock"));
        let (victim, new) = (
            folder.join("victim"),
            files.state.with_extension("state.new"),
        );
        fs::write(&victim, "precious").unwrap();
        fs::write(&files.socket, "precious").unwrap();
        for link in [&new, &files.lock] {
            std::os::unix::fs::symlink(&victim, link).unwrap();
        }
        files.lock().unwrap_err();
        files.write(&State::default()).unwrap();
        assert_eq!(files.read(), Ok(State::default()));
        files.remove_socket();
        for file in [&victim, &files.socket] {
            assert_eq!(fs::read(file).unwrap(), b"precious");
        }
        assert!(!fs::symlink_metadata(&files.state).unwrap().is_symlink());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn one_at_a_time_has_the_lock_and_what_is_damaged_is_told() {
        let name = format!("portolan-node-state-{}", std::process::id());
        let files = Files::beside(&std::env::temp_dir().join(name).join("node.sock"));
        let first = files.lock().unwrap();
        assert!(first.is_some() && files.lock().unwrap().is_none());
        drop(first);
        assert!(files.lock().unwrap().is_some());
        let state = State {
            mounted: true,
            given: vec![Given {
                uid: 7,
                pid: 8,
                interface: 2,
                name: "eth0".to_owned(),
                udp: 4000,
                inode: 99,
                bytes: 5 << 20,
            }],
        };
        assert_eq!(files.read(), Ok(State::default()));
        files.write(&state).unwrap();
        assert_eq!(files.read(), Ok(state));
        for (left, why) in [("{\"mounted\":true,\"giv", "is damaged"), ("", "is empty")] {
            fs::write(&files.state, left).unwrap();
            assert!(files.read().unwrap_err().ends_with(why), "{left:?}");
        }
        files.remove();
        assert!(!files.state.parent().unwrap().exists());
    }
}
