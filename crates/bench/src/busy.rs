//! Busy loops beside the ranks, as other people's programs on the same cores.

use std::env::current_exe;
use std::process::{Child, Command, ExitCode, Stdio};

use portolan_hosts::failure::{Context, Failure, Result};
use portolan_hosts::ranks::{allowed_cores, bind_to, end_with};
use portolan_sys::children::Start;

use crate::loss::{Column, Loss};

/// The hidden command that is a busy loop.
pub const BENCH_LOOP_COMMAND: &str = "internal-bench-loop";
/// Most loops on each core.
pub const LOOPS_MAX: i64 = 8;

/// Of the hidden command that is a busy loop.
#[derive(clap::Args)]
pub struct LoopArguments {
    #[arg(long)]
    parent: u32,
    #[arg(long)]
    core: u32,
}

/// Becomes a busy loop.
pub fn busy_loop(arguments: &LoopArguments) -> Result<ExitCode> {
    end_with(arguments.parent)?;
    let core = arguments.core;
    bind_to(core).map_err(Failure::os(format!("binding to core {core}")))?;
    loop {
        std::hint::spin_loop();
    }
}

/// The loops: children of this process, so that a kernel that shares cores out
/// among sessions counts them with the ranks.
pub struct Busy {
    cores: Vec<u32>,
    /// How many run on each core.
    loops: u32,
    children: Vec<Child>,
}

impl Busy {
    /// On the cores that ranks are bound to; none runs yet.
    pub fn new() -> Result<Self> {
        let cores = allowed_cores().context("asking for the allowed cores")?;
        Ok(Self {
            cores,
            loops: 0,
            children: Vec::new(),
        })
    }

    fn end(&mut self) {
        self.loops = 0;
        for mut child in self.children.drain(..) {
            // An error would say that it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Loss for Busy {
    fn set(&mut self, column: &Column) -> Result<()> {
        if column.busy == self.loops {
            return Ok(());
        }
        self.end();
        let own = current_exe().context("finding the portolan command")?;
        for _ in 0..column.busy {
            for core in &self.cores {
                let child = Command::new(&own)
                    .arg(BENCH_LOOP_COMMAND)
                    .args(["--parent", &std::process::id().to_string()])
                    .args(["--core", &core.to_string()])
                    .stdin(Stdio::null())
                    .start()
                    .context("starting a busy loop")?;
                self.children.push(child);
            }
        }
        self.loops = column.busy;
        Ok(())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.end();
    }
}
