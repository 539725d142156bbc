//! What stands in the place of ssh in a lab, for launchers of others: it is called with a
//! host and a command.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::Lab;
use crate::failure::{Context, Failure, Result, fail};
use crate::nameless::{Nameless, keep, path_of};
use crate::ranks::execute;

/// The hidden command that is the shell.
pub const SHELL_COMMAND: &str = "internal-lab-shell";

/// Of the hidden command.
#[derive(clap::Args)]
pub struct ShellArguments {
    /// The mount namespace in which the lab is known; its hosts do not see it.
    #[arg(long)]
    mounts: PathBuf,
    #[arg(long)]
    lab: String,
    /// Options for ssh, a host, and a command for its shell.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// A program to give to a launcher.
pub struct RemoteShell {
    script: Nameless,
    mounts: File,
    /// The lab's hosts, a line each.
    hosts: Nameless,
}

impl RemoteShell {
    /// That of a lab. To be made outside of its hosts.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn new(lab: &Lab) -> Result<Self> {
        let mounts = File::open("/proc/self/ns/mnt").context("opening this mount namespace")?;
        let own = std::env::current_exe().context("finding the portolan command")?;
        let script = format!(
            "#!/bin/sh\nexec {} {SHELL_COMMAND} --mounts {} --lab {} -- \"$@\"\n",
            quoted(own.as_os_str()),
            path_of(&mounts).display(),
            lab.name(),
        );
        let hosts: String = (0..lab.hosts()).map(|host| format!("h{host}\n")).collect();
        Ok(Self {
            script: Nameless::new(&script)?,
            mounts,
            hosts: Nameless::new(&hosts)?,
        })
    }

    /// Its path.
    pub fn path(&self) -> PathBuf {
        self.script.path()
    }

    /// Variables by which launchers take it, and the lab's hosts, without options: those of
    /// MPICH and of Open MPI.
    pub fn variables(&self) -> [(&'static str, PathBuf); 5] {
        let hosts = self.hosts.path();
        [
            ("HYDRA_LAUNCHER", "ssh".into()),
            ("HYDRA_LAUNCHER_EXEC", self.path()),
            ("HYDRA_HOST_FILE", hosts.clone()),
            ("OMPI_MCA_plm_rsh_agent", self.path()),
            ("OMPI_MCA_orte_default_hostfile", hosts),
        ]
    }

    /// Keeps it when this process executes another program.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn keep(&self) -> Result<()> {
        self.script.keep()?;
        self.hosts.keep()?;
        keep(&self.mounts)
    }
}

/// For a shell.
fn quoted(word: &OsStr) -> String {
    format!("'{}'", word.to_string_lossy().replace('\'', "'\\''"))
}

/// The host, and the command for its shell: what ssh makes of its words.
fn read(words: &[OsString]) -> Option<(&OsString, OsString)> {
    let options = words
        .iter()
        .take_while(|it| it.as_bytes().starts_with(b"-"));
    let (host, command) = words[options.count()..].split_first()?;
    Some((host, command.join(OsStr::new(" "))))
}

/// Runs a command on a host of a lab; returns only if that fails.
pub fn remote_shell(arguments: &ShellArguments) -> Result<ExitCode> {
    let Some((host, command)) = read(&arguments.words) else {
        return fail("give a host and a command");
    };
    let mounts = File::open(&arguments.mounts);
    let mounts = mounts.context(format!("opening {}", arguments.mounts.display()))?;
    move_into_link_name_space(mounts.as_fd(), Some(LinkNameSpaceType::Mount))
        .map_err(Failure::os("leaving the lab's host"))?;
    let lab = Lab::open(&arguments.lab)?;
    lab.enter(lab.find_host(&host.to_string_lossy())?)?;
    Err(execute(&["sh".into(), "-c".into(), command]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_options_a_host_and_a_command() {
        let of = |text: &str| {
            let words: Vec<OsString> = text.split_whitespace().map(Into::into).collect();
            read(&words).map(|(host, command)| (host.clone(), command))
        };
        let pair = |host: &str, command: &str| Some((host.into(), command.into()));
        assert_eq!(of("-x h1 a -b c"), pair("h1", "a -b c"));
        assert_eq!(of("h1 a;b"), pair("h1", "a;b"));
        assert_eq!(of("h1"), pair("h1", ""));
        assert_eq!(of("-x -y"), None);
        assert_eq!(quoted(OsStr::new("/a b/it's")), r"'/a b/it'\''s'");
    }
}
