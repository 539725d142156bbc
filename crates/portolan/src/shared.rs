//! The endpoint that all interfaces of a process share: the first one opens it, and it
//! closes with the last.

use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::sleep;
use std::time::Duration;

use portolan_runtime::{Misuse, Opener, SpaceId, Threads};

use crate::open::{Config, Endpoint, OpenError, Opened};

/// The endpoint of this process's job, if one was opened.
struct Known {
    opener: Opener,
    opened: Arc<Opened>,
}

static KNOWN: Mutex<Option<Known>> = Mutex::new(None);
/// Id of the process that holds the lock, or held it last.
static HOLDER: AtomicU32 = AtomicU32::new(0);

fn known() -> Result<MutexGuard<'static, Option<Known>>, OpenError> {
    loop {
        let held = match KNOWN.try_lock() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(held)) => PoisonError::into_inner(held),
            // The holder is a thread of this process's parent, which does not run here.
            Err(TryLockError::WouldBlock)
                if ![0, process::id()].contains(&HOLDER.load(Ordering::Relaxed)) =>
            {
                return Err(OpenError::Space(Misuse::Forked));
            }
            Err(TryLockError::WouldBlock) => {
                sleep(Duration::from_millis(1));
                continue;
            }
        };
        HOLDER.store(process::id(), Ordering::Relaxed);
        return Ok(held);
    }
}

const fn name(threads: Threads) -> &'static str {
    match threads {
        Threads::Single => "single",
        Threads::Serialized => "serialized",
        Threads::Multiple => "multiple",
    }
}

impl Known {
    /// Opens a space of the endpoint. `None`: the endpoint is closed, or the program's own space
    /// is open already: then the caller opens a further endpoint.
    fn space(&self, id: SpaceId, config: &Config) -> Result<Option<Endpoint>, OpenError> {
        // Without a launcher a process may open several endpoints.
        let Some(threads) =
            (self.opener.threads()).filter(|_| id != SpaceId::PROGRAM || self.opener.is_free(id))
        else {
            return Ok(None);
        };
        if config.threads as u8 > threads as u8 {
            return Err(OpenError::OtherThreads {
                opened: name(threads),
                asked: name(config.threads),
            });
        }
        for (setting, asked) in config.settings() {
            let all = self.opened.settings.iter();
            let here = all
                .filter(|(name, ..)| name == setting)
                .map(|(_, value, _)| value);
            if let Some(opened) = here.last().filter(|opened| opened != asked) {
                return Err(OpenError::OtherSetting {
                    name: setting.clone(),
                    opened: opened.to_owned(),
                    asked: asked.clone(),
                });
            }
        }
        let space = self
            .opener
            .space(id)
            .transpose()
            .map_err(OpenError::Space)?;
        Ok(space.map(|inner| Endpoint::of(inner, &self.opened)))
    }
}

impl Endpoint {
    /// Opens a space of the endpoint of this process's job, for an interface beside the
    /// program's own calls. If the endpoint is not open yet, this opens it, as
    /// [`Endpoint::open`].
    ///
    /// # Errors
    /// As [`Endpoint::open`], and
    /// - [`OpenError::Space`]: the space is open already, or the endpoint may not be called
    ///   from here;
    /// - [`OpenError::OtherThreads`], [`OpenError::OtherSetting`]: the endpoint is open
    ///   with other values than requested.
    pub fn attach(space: SpaceId, config: Config) -> Result<Self, OpenError> {
        let mut known = known()?;
        if let Some(it) = &*known
            && let Some(endpoint) = it.space(space, &config)?
        {
            return Ok(endpoint);
        }
        let opened = Self::open_job(config)?;
        *known = Some(Known {
            opener: opened.opener(),
            opened: Arc::clone(&opened.opened),
        });
        opened.instead_of_own(space).map_err(OpenError::Space)
    }
}
