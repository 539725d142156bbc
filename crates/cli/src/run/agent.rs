//! The agent on another host: what the launcher's ssh starts there.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::process::{Command, ExitCode, Stdio};
use std::rc::Rc;

use portolan_boot::launch::{
    Greeting, Keeper, Prepared, RankPlace, SharedMemory, StartFailure, Starter, Task, Wanted, serve,
};
use portolan_boot::{HostPort, Suite, Versions};
use portolan_hosts::detached::{leave, start_again};
use portolan_hosts::failure::{Failure, Result};
use portolan_hosts::ranks::{Local, allowed_cores, check_program, core_in_turn};
use portolan_sys::features::{DISABLE_VARIABLE, Disabled};

use super::guard::Guard;
use super::ssh;

#[derive(Debug, clap::Args)]
pub struct AgentArguments {
    /// Serve processes of this host that another launcher has started
    #[arg(long)]
    guests: bool,
    /// Run detached from the process that started it
    #[arg(long, requires = "guests")]
    detached: bool,
}

/// Serves whoever is at the other end of standard input.
pub fn agent(arguments: &AgentArguments) -> Result<ExitCode> {
    match (arguments.guests, arguments.detached) {
        (false, _) => serve_launcher(),
        (true, false) => start_again(),
        (true, true) => serve_guests(),
    }
}

fn serve_guests() -> Result<ExitCode> {
    leave()?;
    let failed = || Failure::io("taking over standard input");
    let input = io::stdin().as_fd().try_clone_to_owned().map_err(failed())?;
    portolan_boot::serve_guests(input)
        .map(|()| ExitCode::SUCCESS)
        .map_err(|error| Failure::new(error.to_string()))
}

/// Serves the launcher at the other end of standard input and output.
fn serve_launcher() -> Result<ExitCode> {
    let failed = || Failure::io("taking over standard input and output");
    let input = io::stdin().as_fd().try_clone_to_owned().map_err(failed())?;
    let output = io::stdout()
        .as_fd()
        .try_clone_to_owned()
        .map_err(failed())?;
    let greeting = Greeting {
        versions: Versions::ours(),
        aes: Suite::Aes128Gcm.is_supported(),
        aegis: Suite::Aegis128L.is_supported(),
        ip: ssh::own_address(),
    };
    let own = std::env::current_exe().map_err(Failure::io("finding the portolan command"))?;
    let guard = Guard::start(&own)?;
    let guard = Rc::new(RefCell::new(guard));
    let mut here = Here(Rc::clone(&guard));
    let served = serve(input, output, greeting, &mut here);
    // No rank is left either way.
    guard.borrow_mut().dismiss();
    served
        .map(|()| ExitCode::SUCCESS)
        .map_err(|error| Failure::new(error.to_string()))
}

/// This host, and who guards what runs on it.
struct Here(Rc<RefCell<Guard>>);

impl Keeper for Here {
    fn prepare(&mut self, task: &Task, ranks: u32) -> std::result::Result<Prepared, StartFailure> {
        prepare(task, ranks, &self.0).map_err(|failure| StartFailure {
            code: failure.code(),
            why: failure.to_string(),
        })
    }

    fn reached(&mut self, pid: u32) {
        self.0.borrow_mut().watch(pid);
    }
}

/// Finds out whether the ranks can be started here.
fn prepare(task: &Task, ranks: u32, guard: &Rc<RefCell<Guard>>) -> Result<Prepared> {
    let variable = |name: &str| {
        let set = task.environment.iter().rev().find(|(n, _)| n == name);
        set.map(|(_, value)| value.clone())
            .or_else(|| std::env::var_os(name))
    };
    let list = variable(DISABLE_VARIABLE).unwrap_or_default();
    let disabled = Disabled::parse(&list.to_string_lossy())
        .map_err(|error| Failure::usage(error.to_string()))?;
    std::env::set_current_dir(&task.folder).map_err(|error| {
        Failure::new(format!(
            "the folder {} cannot be entered there: {error}; start the job from a folder that \
             all hosts have",
            task.folder.display()
        ))
    })?;
    let path = variable("PATH");
    for (_, program) in task.programs.iter().chain(&task.others) {
        let name = program.first().map_or(OsStr::new(""), OsString::as_os_str);
        check_program(name, path.as_deref())?;
    }
    let mut local = Local::new(None, &disabled)?;
    local.set_group(guard.borrow().group());
    let cores = if task.bind {
        let cores = allowed_cores().map_err(Failure::io("asking for the allowed cores"))?;
        let core = |rank: u32| Some(cores[rank as usize % cores.len()]);
        (0..ranks).map(core).collect()
    } else {
        vec![None; ranks as usize]
    };
    let starter = Ranks {
        local,
        task: task.clone(),
        guard: Rc::clone(guard),
    };
    Ok(Prepared {
        starter: Box::new(starter),
        cores,
    })
}

/// Starts the ranks of this host.
struct Ranks {
    local: Local,
    task: Task,
    guard: Rc<RefCell<Guard>>,
}

impl Starter for Ranks {
    fn segment(&mut self, _host_index: u16, ranks: u32) -> io::Result<SharedMemory> {
        self.local.segment(ranks)
    }

    fn host_ports(&mut self, wanted: &[Wanted]) -> Vec<std::result::Result<HostPort, String>> {
        self.local.host_ports(wanted, |_| 0)
    }

    fn command(&mut self, place: &RankPlace) -> Command {
        let program = match place.restarts {
            0 => self.task.program(place.local_index),
            _ => self.task.program_of(place.rank),
        };
        let program = program.unwrap_or_default();
        let mut command = self.local.command(place, 0, program);
        let gets_input = self.task.input && (place.rank, place.restarts) == (0, 0);
        command
            .envs(self.task.environment.iter().map(|(n, v)| (n, v)))
            .stdin(if gets_input {
                Stdio::piped()
            } else {
                Stdio::null()
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn spare_core(&mut self, _host_index: u16, local_index: u16) -> Option<u32> {
        let bind = self.task.bind;
        bind.then(|| core_in_turn(local_index)).flatten()
    }

    fn started(&mut self, _place: &RankPlace, pid: u32) {
        self.guard.borrow_mut().watch(pid);
    }
}
