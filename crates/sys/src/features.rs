//! Kernel features that can be switched off by name, so that tests (and
//! users with a broken kernel) can do without them.

use crate::environment;

/// The environment variable that names what to leave off.
pub const DISABLE_VARIABLE: &str = "PORTOLAN_DISABLE";

macro_rules! features {
    ($($field:ident: $help:literal,)*) => {
        /// Features that are to be left alone; all `false` by default. A plain
        /// value: read it once at start and pass it on.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Disabled {
            $(#[doc = $help] pub $field: bool,)*
        }

        /// Name and meaning of each feature, in the order that `doctor` shows.
        pub const FEATURES: &[(&str, &str)] = &[$((stringify!($field), $help),)*];

        impl Disabled {
            fn field_mut(&mut self, name: &str) -> Option<&mut bool> {
                match name {
                    $(stringify!($field) => Some(&mut self.$field),)*
                    _ => None,
                }
            }

            /// Whether the feature of that name is switched off; `None` for an
            /// unknown name.
            #[must_use]
            pub fn get(&self, name: &str) -> Option<bool> {
                match name {
                    $(stringify!($field) => Some(self.$field),)*
                    _ => None,
                }
            }
        }
    };
}

features! {
    gso: "UDP segmentation offload on send (UDP_SEGMENT)",
    gro: "UDP coalescing on receive (UDP_GRO)",
    mmsg: "several datagrams in one system call (sendmmsg, recvmmsg)",
    ecn: "explicit congestion notification on sent packets",
    ipv6: "IPv6 sockets; only IPv4 is used",
    cma: "copying straight between processes (process_vm_readv, process_vm_writev)",
    waitv: "waiting on several futexes at once (futex_waitv)",
    robust: "hearing at once that a process ends (robust futexes)",
    membarrier: "one process's memory barrier in the place of many (membarrier); the launcher's",
    xdp: "packets past the kernel's network stack (AF_XDP); the launcher's",
    zerocopy: "AF_XDP without a copy where the driver can; the launcher's",
    remap: "mapping the rings of AF_XDP sockets that are bound; the launcher's",
    multibuffer: "AF_XDP packets in several buffers (XDP_USE_SG); the launcher's",
    slice: "short time slices for threads that wait beside busy programs (from Linux 6.12)",
    pidfd: "watching a process by descriptor (pidfd_open)",
    tcx: "faults in labs by links (tcx, from Linux 6.6), not by filters as on older kernels",
    passrights: "refusing descriptors that are sent (SO_PASSRIGHTS, from Linux 6.16); the launcher's",
    tsc: "time by the processor's counter, where the kernel's clock goes by it too",
}

/// A name that is no feature.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{DISABLE_VARIABLE}: there is no feature {:?}; known are {}",
    .0,
    FEATURES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
)]
pub struct UnknownFeature(pub String);

impl Disabled {
    /// Reads a list of names with commas between; blanks and empty entries
    /// are ignored.
    ///
    /// # Errors
    /// [`UnknownFeature`] for the first name that is none.
    pub fn parse(list: &str) -> Result<Self, UnknownFeature> {
        let mut disabled = Self::default();
        for name in list
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
        {
            match disabled.field_mut(name) {
                Some(field) => *field = true,
                None => return Err(UnknownFeature(name.to_owned())),
            }
        }
        Ok(disabled)
    }

    /// Reads `PORTOLAN_DISABLE`; unset means nothing is off.
    ///
    /// # Errors
    /// [`UnknownFeature`] as [`Disabled::parse`] gives it.
    pub fn from_env() -> Result<Self, UnknownFeature> {
        match environment::var_os(DISABLE_VARIABLE) {
            None => Ok(Self::default()),
            Some(list) => Self::parse(&list.to_string_lossy()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_switch_fields() {
        let disabled = Disabled::parse(" gso,,waitv ,").unwrap();
        assert_eq!(
            disabled,
            Disabled {
                gso: true,
                waitv: true,
                ..Disabled::default()
            }
        );
        assert_eq!(Disabled::parse(""), Ok(Disabled::default()));
        for (name, _) in FEATURES {
            assert_eq!(
                Disabled::parse(name).unwrap().get(name),
                Some(true),
                "{name}"
            );
            assert_eq!(Disabled::default().get(name), Some(false), "{name}");
        }
    }

    #[test]
    fn an_unknown_name_is_an_error_that_lists_the_known() {
        let error = Disabled::parse("gso,gos").unwrap_err();
        assert_eq!(error, UnknownFeature("gos".into()));
        let text = error.to_string();
        assert!(
            text.contains("\"gos\"") && text.contains("gso, gro"),
            "{text}"
        );
    }
}
