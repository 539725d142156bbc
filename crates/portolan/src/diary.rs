//! What is told of changes of state, on standard error, where the user asks for
//! it.

use std::io::Write;

use portolan_sys::tell::plain;

/// The variable that says how much is told, as `info` or
/// `portolan_engine=debug,portolan_boot=trace`.
const VARIABLE: &str = "PORTOLAN_LOG";

/// Begins to tell, if `PORTOLAN_LOG` is set and nobody in this process has
/// a logger of its own; [`crate::Endpoint::open`] does it. Nothing is ever
/// told on the way of a message.
pub fn begin_log() {
    if std::env::var_os(VARIABLE).is_some() {
        // A logger of the program's own goes over ours, and gets the same.
        let _ = env_logger::Builder::from_env(VARIABLE)
            .format(|out, record| {
                // Parts of it may come from other processes.
                let said = record.args().to_string();
                let (level, target) = (record.level(), record.target());
                writeln!(out, "[{level:<5} {target}] {}", plain(&said))
            })
            .try_init();
    }
}
