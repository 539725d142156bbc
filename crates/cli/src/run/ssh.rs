//! Reaching other hosts by the user's ssh.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;

use portolan_boot::launch::HostFailure;
use portolan_hosts::failure::{Failure, Result};

use super::AGENT_COMMAND;
use super::arguments::Arguments;

/// The variable that names the program, unless `--ssh` does.
pub const SSH_VARIABLE: &str = "PORTOLAN_SSH";

/// Exit code of ssh for its own errors.
const SSH_FAILED: i32 = 255;

/// How other hosts are reached.
#[derive(Clone)]
pub struct Ssh {
    program: OsString,
    options: Vec<OsString>,
    /// What is run there.
    remote: String,
}

impl Ssh {
    /// As the arguments and the environment say.
    ///
    /// # Errors
    /// An empty program; a prefix that is no text.
    pub fn new(arguments: &Arguments) -> Result<Self> {
        let line = match &arguments.ssh {
            Some(line) => line.clone(),
            None => match std::env::var_os(SSH_VARIABLE) {
                Some(line) => line.to_string_lossy().into_owned(),
                None => "ssh".to_owned(),
            },
        };
        let mut words = line.split_ascii_whitespace().map(OsString::from);
        let program = words.next().ok_or_else(|| {
            Failure::usage(format!(
                "--ssh (or {SSH_VARIABLE}) is empty: name a program, as in --ssh 'ssh -p 2222'"
            ))
        })?;
        // The user's come first: ssh takes the first value of an option.
        let mut options: Vec<OsString> = words.collect();
        options.extend(["-T", "-x"].map(OsString::from));
        let connect = format!("ConnectTimeout={}", arguments.connect_timeout);
        let seconds = arguments.host_silence.div_ceil(1_000).max(3);
        let silence = format!("ServerAliveCountMax={seconds}");
        for option in [
            // Never ask: nobody may be there to answer.
            "BatchMode=yes",
            &connect,
            // A host that vanishes is noticed in time, and none before.
            "ServerAliveInterval=1",
            &silence,
        ] {
            options.extend(["-o", option].map(OsString::from));
        }
        Ok(Self {
            program,
            options,
            remote: format!(
                "{} {AGENT_COMMAND}",
                portolan_there(arguments.prefix.as_deref())?
            ),
        })
    }

    /// The command that runs the agent on `host`.
    pub fn command(&self, host: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.options).args([host, "--", &self.remote]);
        command
    }

    /// Cause and remedy.
    pub fn explain(&self, host: &str, failure: &HostFailure) -> String {
        let by_hand = format!("{} {host}", self.by_hand());
        match failure {
            HostFailure::Command { error, program } => match error.kind() {
                std::io::ErrorKind::NotFound => format!(
                    "{program} is not installed, and host {host} is reached by it: install it \
                     (Debian: apt install openssh-client), or name another with --ssh"
                ),
                _ => format!("{program} cannot be run: {error}; --ssh names another"),
            },
            HostFailure::Ended {
                status,
                said,
                greeted: false,
            } => {
                let code = status.and_then(|status| status.code());
                explain_end(host, code, said, &by_hand)
            }
            HostFailure::Ended {
                status: _,
                said,
                greeted: true,
            } => {
                let last = match said.trim() {
                    "" => String::new(),
                    said => format!(" ({})", said.lines().last().unwrap_or_default()),
                };
                format!(
                    "host {host} is lost: the connection to its agent ended{last}; the agent was \
                     killed, or the host or the network is down"
                )
            }
            failure => format!("host {host}: {failure}"),
        }
    }

    fn by_hand(&self) -> String {
        let user = self.options.iter().take_while(|option| *option != "-T");
        let words = std::iter::once(&self.program).chain(user);
        let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }
}

/// `portolan` as the login shell of another host is to find it.
fn portolan_there(prefix: Option<&Path>) -> Result<String> {
    let Some(prefix) = prefix else {
        return Ok("portolan".to_owned());
    };
    let path = prefix.join("bin/portolan");
    let text = path.to_str().filter(|text| !text.contains('\''));
    let text = text.ok_or_else(|| {
        Failure::usage(format!(
            "--prefix {}: give a path without quotes and of UTF-8 letters",
            prefix.display()
        ))
    })?;
    Ok(format!("'{text}'"))
}

/// Why a connection ended before the agent greeted.
fn explain_end(host: &str, code: Option<i32>, said: &str, by_hand: &str) -> String {
    let has = |text: &str| said.contains(text);
    let last = said.trim().lines().last().unwrap_or_default().trim();
    if code == Some(SSH_FAILED) || code.is_none() {
        return if has("REMOTE HOST IDENTIFICATION HAS CHANGED") {
            format!(
                "host {host} shows another host key than before: somebody may be listening. If \
                 the host was installed anew, forget its old key (ssh-keygen -R {host}) and \
                 accept the new one by hand (`{by_hand} true`)"
            )
        } else if has("Host key verification failed") {
            format!(
                "the host key of {host} is not known: compare and accept it once by hand \
                 (`{by_hand} true`)"
            )
        } else if has("Permission denied") {
            format!(
                "host {host} wants a password or knows no key of yours, and nobody can be asked \
                 here: allow a key (`ssh-copy-id {host}`, ssh-agent) until `{by_hand} true` asks \
                 for nothing; ssh says: {last}"
            )
        } else if has("Connection refused") {
            format!(
                "host {host} refuses ssh: start sshd there, or name its port \
                 (--ssh 'ssh -p PORT'); ssh says: {last}"
            )
        } else if has("Could not resolve hostname") {
            format!(
                "host {host} is not known by that name: correct it, or add it to DNS, /etc/hosts \
                 or ~/.ssh/config; ssh says: {last}"
            )
        } else if has("timed out") || has("No route to host") || has("Network is unreachable") {
            format!(
                "host {host} does not answer: is it up, and does the network or a firewall let \
                 ssh through? ssh says: {last}"
            )
        } else {
            format!(
                "host {host} cannot be reached: try `{by_hand} true`; ssh says: {}",
                if last.is_empty() { "nothing" } else { last }
            )
        };
    }
    match code {
        Some(127) => format!(
            "`portolan` was not found on host {host}: install it there, where ssh's PATH finds \
             it (/usr/local/bin), or name its folder with --prefix DIR; its shell says: {last}"
        ),
        Some(126) => format!(
            "`portolan` on host {host} cannot be executed: was it built for that machine? Its \
             shell says: {last}"
        ),
        Some(2) if has("unrecognized subcommand") => format!(
            "`portolan` on host {host} is an older version without agent: install the version \
             that is here ({})",
            portolan_boot::Versions::ours()
        ),
        code => format!(
            "the agent on host {host} ended before it greeted (exit code {}): try \
             `{by_hand} portolan --version`; it says: {}",
            code.unwrap_or_default(),
            if last.is_empty() { "nothing" } else { last }
        ),
    }
}

/// The address of this host through which ssh came, if it did.
pub fn own_address() -> Option<std::net::IpAddr> {
    server_address(&std::env::var_os("SSH_CONNECTION")?)
}

/// The third word of four: client's address and port, server's address and
/// port (ssh(1), ENVIRONMENT).
fn server_address(connection: &OsStr) -> Option<std::net::IpAddr> {
    connection.to_str()?.split(' ').nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_address_is_the_third_word() {
        let of = |text: &str| server_address(OsStr::new(text)).map(|ip| ip.to_string());
        assert_eq!(of("10.0.0.1 5000 10.0.0.2 22"), Some("10.0.0.2".to_owned()));
        assert_eq!(of("fd00::1 5000 fd00::2 22"), Some("fd00::2".to_owned()));
        assert_eq!(of("fe80::1%eth0 5000 fe80::2%eth0 22"), None);
        assert_eq!(of(""), None);
    }

    #[test]
    fn each_way_to_fail_has_a_remedy() {
        for (code, said, cause, remedy) in [
            (
                255,
                "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.\n",
                "another host key",
                "ssh-keygen -R b",
            ),
            (
                255,
                "Host key verification failed.\n",
                "not known",
                "by hand",
            ),
            (
                255,
                "me@b: Permission denied (publickey,password).\n",
                "wants a password",
                "ssh-copy-id b",
            ),
            (
                255,
                "ssh: connect to host b port 22: Connection refused\n",
                "refuses ssh",
                "start sshd",
            ),
            (
                255,
                "ssh: Could not resolve hostname b: Name or service not known\n",
                "not known by that name",
                "/etc/hosts",
            ),
            (
                255,
                "ssh: connect to host b port 22: Connection timed out\n",
                "does not answer",
                "firewall",
            ),
            (
                255,
                "kex_exchange_identification: reset\n",
                "cannot be reached",
                "ssh b true",
            ),
            (
                127,
                "bash: line 1: portolan: command not found\n",
                "not found",
                "--prefix",
            ),
            (
                126,
                "bash: Exec format error\n",
                "cannot be executed",
                "built for",
            ),
            (
                2,
                "error: unrecognized subcommand 'internal-agent'\n",
                "older version",
                "install the version",
            ),
            (1, "", "before it greeted", "portolan --version"),
        ] {
            let text = explain_end("b", Some(code), said, "ssh b");
            assert!(text.contains(cause) && text.contains(remedy), "{text}");
        }
    }
}
