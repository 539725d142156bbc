//! Opening an endpoint in a job that another launcher started. Each process has a
//! key pair, and memory is shared without an agent.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use portolan_boot::{Congestion, GuestOptions, Job, LinkChoice, Security, Suite};
use portolan_link::shm::{Segment, SegmentConfig};
use portolan_runtime as engine;
use portolan_runtime::{Address, EndpointId, Hidden, KeyAddress, Life};
use portolan_seal::{PUBLIC_KEY_BYTES, identity, mix_of, public_key};
use portolan_sys::features::Disabled;
use portolan_sys::memory::MemoryError;
use portolan_sys::process::is_our_user;
use rustix::fs::{Mode, OFlags};
use zeroize::Zeroizing;

use crate::interfaces;
use crate::open::{OpenError, fill_random};
use crate::settings::{Origin, SettingError, Settings};

/// Bounds of the length of a job's secret file, bytes.
const SECRET_BYTES_MIN: u64 = 32;
const SECRET_BYTES_MAX: u64 = 4096;
/// Share of a peer's dead-peer timeout (`silence_ms`) after which a host is lost.
const HOST_SILENCE: f64 = 5.0 / 6.0;
/// Timeout of the launcher's library for calls that need no other process,
/// unless `join_ms` is set.
const LIBRARY_LIMIT: Duration = Duration::from_secs(10);
/// Values of settings that count only without `portolan run`.
pub(crate) const SECURITY: [(&str, Security); 2] =
    [("encrypt", Security::Encrypt), ("none", Security::None)];
const SUITE: [(&str, Suite); 3] = {
    let [a, b, c] = Suite::ALL;
    [(a.name(), a), (b.name(), b), (c.name(), c)]
};
pub(crate) const CONGESTION: [(&str, Congestion); 3] = [
    ("auto", Congestion::Auto),
    ("lan", Congestion::Lan),
    ("shared", Congestion::Shared),
];
/// Mode bits of users other than the owner.
const OTHERS: u32 = 0o077;

/// Why the file that the setting `job_secret_file` names cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretFileError {
    /// The file cannot be opened or read.
    #[error("job_secret_file: {path} cannot be read: {error}; it is needed on every host")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        error: io::Error,
    },
    /// The path is a folder, a device or a pipe, not a regular file.
    #[error("job_secret_file: {0} is no ordinary file")]
    NotAFile(PathBuf),
    /// The file belongs to another user than the one who runs this process.
    #[error(
        "job_secret_file: {path} belongs to user {uid}, not to the one who runs this program: chown it"
    )]
    Owner {
        /// The file.
        path: PathBuf,
        /// Its owner.
        uid: u32,
    },
    /// The file's mode lets other users read, write or execute it.
    #[error(
        "job_secret_file: others may use {path} (mode {mode:04o}): chmod 600 it, and if others \
         could read it, make a new one"
    )]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The file is shorter than 32 bytes or longer than 4,096.
    #[error(
        "job_secret_file: {path} has {bytes} bytes: give it {SECRET_BYTES_MIN} to \
         {SECRET_BYTES_MAX} random ones (openssl rand -out FILE 32)"
    )]
    Length {
        /// The file.
        path: PathBuf,
        /// Its length, bytes.
        bytes: u64,
    },
}

fn read_secret(path: &Path) -> Result<Zeroizing<Vec<u8>>, SecretFileError> {
    let unreadable = |error| SecretFileError::Unreadable {
        path: path.to_owned(),
        error,
    };
    // Without NONBLOCK, opening a pipe would block.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags, Mode::empty());
    let file = File::from(file.map_err(|errno| unreadable(errno.into()))?);
    let about = file.metadata().map_err(unreadable)?;
    if !about.is_file() {
        return Err(SecretFileError::NotAFile(path.to_owned()));
    }
    if !is_our_user(about.uid()) {
        return Err(SecretFileError::Owner {
            path: path.to_owned(),
            uid: about.uid(),
        });
    }
    let mode = about.mode() & 0o7777;
    if mode & OTHERS != 0 {
        return Err(SecretFileError::Mode {
            path: path.to_owned(),
            mode,
        });
    }
    // Never grows, which would leave a copy of the secret in freed memory.
    let mut content = Zeroizing::new(Vec::with_capacity(2 * SECRET_BYTES_MAX as usize));
    let mut bounded = file.take(SECRET_BYTES_MAX + 1);
    bounded.read_to_end(&mut content).map_err(unreadable)?;
    let bytes = content.len() as u64;
    if !(SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&bytes) {
        return Err(SecretFileError::Length {
            path: path.to_owned(),
            bytes: bytes.max(about.len()),
        });
    }
    Ok(content)
}

fn no_memory(error: MemoryError) -> OpenError {
    OpenError::Engine(error.into())
}

/// Draws 32 secret random bytes.
pub(crate) fn fresh_secret() -> Result<Hidden<32>, OpenError> {
    let mut secret = Hidden::new().map_err(no_memory)?;
    fill_random(&mut secret[..])?;
    Ok(secret)
}

/// This process's key pair, fresh for its life, and the pre-shared key, if any.
pub(crate) struct Keys {
    private: Arc<Hidden<32>>,
    public: [u8; PUBLIC_KEY_BYTES],
    mix: Option<Arc<Hidden<32>>>,
}

impl Keys {
    pub fn make(settings: &Settings) -> Result<Self, OpenError> {
        let path = settings.text("job_secret_file").map(Path::new);
        let content = path.map(read_secret).transpose()?;
        let mix = content.map(|content| Hidden::copy_of(mix_of(&content).as_bytes()));
        let private = fresh_secret()?;
        Ok(Self {
            public: public_key(&private),
            private: Arc::new(private),
            mix: mix.transpose().map_err(no_memory)?.map(Arc::new),
        })
    }

    /// Enters the keys, and the identity from them, in a configuration.
    pub fn enter(&self, config: &mut engine::Config) {
        let (id, life) = identity(&self.public);
        config.id = EndpointId(id);
        config.life = Life(life);
        config.agreement = Some(engine::Agreement {
            private: Arc::clone(&self.private),
            mix: self.mix.clone(),
        });
    }

    /// The address to announce to the others.
    pub const fn address(&self, own: &Address) -> KeyAddress {
        KeyAddress {
            port: own.port,
            ip: own.ip,
            key: self.public,
            host: own.host,
        }
    }
}

impl Keys {
    /// Hash that differs between secret files; 0 without one.
    pub fn secret_hash(&self) -> u64 {
        self.mix.as_ref().map_or(0, |mix| identity(mix).1)
    }
}

/// The engine's address of a peer with a public key.
pub(crate) fn address_of(it: &KeyAddress) -> Address {
    let (id, life) = identity(&it.key);
    Address {
        port: it.port,
        ip: it.ip,
        id: EndpointId(id),
        life: Life(life),
        host: it.host,
    }
}

/// The suite of an endpoint that no launcher of ours has. No other takes its place: peers
/// would not understand it.
pub(crate) fn suite(settings: &Settings, security: Security) -> Result<Suite, SettingError> {
    let suite = settings.choice("suite", &SUITE)?;
    if security == Security::Encrypt && !suite.is_supported() {
        let instead = "chacha20-poly1305, for all peers too: this processor lacks the instructions \
                       (aegis-128l needs aes and avx, aes-128-gcm aes and pclmulqdq)";
        return Err(settings.refused_for("suite", instead.to_owned()));
    }
    Ok(suite)
}

/// Joins the job that another launcher has started.
pub(crate) fn join(settings: &Settings, keys: &Keys) -> Result<Job, OpenError> {
    let disabled = Disabled::from_env().map_err(OpenError::Disable)?;
    let link = [
        ("auto", LinkChoice::Auto),
        ("shm", LinkChoice::Shm),
        ("udp", LinkChoice::Udp),
    ];
    let told = interfaces::told(settings.text("interface"), settings.text("address"))?;
    let security = settings.choice("security", &SECURITY)?;
    let options = GuestOptions {
        security,
        suite: suite(settings, security)?,
        link: settings.choice("link", &link)?,
        congestion: settings.choice("congestion", &CONGESTION)?,
        mix: keys.mix.clone(),
        addresses: told.addresses,
        watches: !disabled.pidfd,
        agent: settings.text("agent").map(OsString::from),
        host_silence: settings.millis("silence_ms")?.mul_f64(HOST_SILENCE),
        join_timeout: settings.millis("join_ms")?,
        library_timeout: match settings.origin("join_ms") {
            Origin::Default => LIBRARY_LIMIT,
            _ => settings.millis("join_ms")?,
        },
    };
    let config = SegmentConfig {
        remote_barrier: !disabled.membarrier,
        ..SegmentConfig::default()
    };
    let mut make = |ranks: u32| -> io::Result<OwnedFd> {
        let made = Segment::create(ranks, &config).and_then(|segment| segment.duplicate_fd());
        made.map_err(|error| io::Error::other(error.to_string()))
    };
    Ok(Job::join(&options, &mut make)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use rustix::process::geteuid;

    #[test]
    fn the_secrets_file_is_read_with_care() {
        let folder = std::env::temp_dir().join(format!("portolan-secret-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = |name: &str, bytes: usize, mode: u32| {
            let path = folder.join(name);
            fs::write(&path, vec![7; bytes]).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        for (bytes, mode) in [(32, 0o600), (4096, 0o400)] {
            assert_eq!(
                read_secret(&file("good", bytes, mode)).unwrap().len(),
                bytes
            );
            fs::remove_file(folder.join("good")).unwrap();
        }
        let told = |path: &Path| read_secret(path).unwrap_err().to_string();
        for bytes in [0, 31, 4097, 10_000] {
            let text = told(&file("length", bytes, 0o600));
            assert!(text.contains(&format!("has {bytes} bytes")), "{text}");
        }
        for mode in [0o640, 0o604, 0o660, 0o777] {
            let text = told(&file("mode", 32, mode));
            assert!(text.contains(&format!("(mode 0{mode:o})")), "{text}");
        }
        assert!(told(&folder).contains("no ordinary file"));
        assert!(told(&folder.join("nowhere")).contains("every host"));
        let pipe = folder.join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            Mode::RUSR,
            0,
        )
        .unwrap();
        assert!(told(&pipe).contains("no ordinary file"));
        if geteuid().is_root() {
            let path = file("owner", 32, 0o600);
            std::os::unix::fs::chown(&path, Some(12_345), None).unwrap();
            assert!(told(&path).contains("belongs to user 12345"));
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
