//! A Slurm of two nodes, the hosts of a lab: a controller and a daemon each,
//! with files, ports and settings of its own and without munge.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{LIMIT, Said, TestLab, portolan, say, until};

const CONTROLLER: &str = "/usr/sbin/slurmctld";
const DAEMON: &str = "/usr/sbin/slurmd";

/// All of it is ended and removed when the test ends, well or not.
pub struct Slurm {
    pub lab: TestLab,
    folder: PathBuf,
    processes: Vec<Child>,
}

impl Slurm {
    pub fn up(name: &'static str) -> Self {
        for program in [CONTROLLER, DAEMON] {
            assert!(
                Path::new(program).exists(),
                "{program} is missing: install slurm-wlm, as `make test` does"
            );
        }
        let name = TestLab::own(name);
        let folder = PathBuf::from(format!("/tmp/portolan-{name}"));
        let mut slurm = Self {
            lab: TestLab::up(name, "2"),
            folder,
            processes: Vec::new(),
        };
        for part in ["state", "spool-h0", "spool-h1", "tmp-h0", "tmp-h1"] {
            fs::create_dir_all(slurm.folder.join(part)).unwrap();
        }
        slurm.configure();
        slurm.start("h0", &[CONTROLLER, "-D"]);
        slurm.start("h0", &[DAEMON, "-D", "-N", "h0"]);
        slurm.start("h1", &[DAEMON, "-D", "-N", "h1"]);
        slurm.wait_for_nodes();
        slurm
    }

    fn config(&self) -> String {
        self.folder.join("slurm.conf").to_str().unwrap().to_owned()
    }

    fn configure(&self) {
        let at = self.folder.to_str().unwrap();
        let text = format!(
            "ClusterName=portolan\nSlurmctldHost=h0\nSlurmctldPort=16817\nSlurmUser=root\n\
             SlurmdUser=root\nAuthType=auth/none\nCredType=cred/none\n\
             StateSaveLocation={at}/state\nSlurmdSpoolDir={at}/spool-%n\nTmpFS={at}/tmp-%n\n\
             SlurmctldPidFile={at}/controller.pid\nSlurmdPidFile={at}/daemon-%n.pid\n\
             SlurmctldLogFile={at}/controller.log\nSlurmdLogFile={at}/daemon-%n.log\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n\
             SelectType=select/linear\nSchedulerType=sched/builtin\n\
             JobAcctGatherType=jobacct_gather/none\nMpiDefault=none\nReturnToService=2\n\
             SlurmdParameters=config_overrides\nMailProg=/bin/true\n\
             PlugStackConfig={at}/plugstack.conf\nNodeName=h0,h1 CPUs=4 Port=16818\n\
             PartitionName=all Nodes=h0,h1 Default=YES State=UP\n"
        );
        fs::write(self.config(), text).unwrap();
        fs::write(self.folder.join("plugstack.conf"), "").unwrap();
        fs::write(self.folder.join("cgroup.conf"), "").unwrap();
    }

    fn start(&mut self, host: &str, program: &[&str]) {
        let config = self.config();
        let before = ["lab", "exec", self.lab.0, host, "--"];
        let output = format!("said-{host}-{}", self.processes.len());
        let output = fs::File::create(self.folder.join(output)).unwrap();
        let words = [&before, program, &["-f", &config]].concat();
        let process = portolan(&words)
            .env("SLURM_CONF", &config)
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap();
        self.processes.push(process);
    }

    fn wait_for_nodes(&self) {
        let nodes = || self.command(&["sinfo", "-h", "-N", "-o", "%N %t"]);
        until(
            || format!("{:#?} {}", nodes(), self.logs()),
            || nodes().out == "h0 idle\nh1 idle\n",
        );
    }

    /// What controller and daemons have written.
    pub fn logs(&self) -> String {
        let files = ["controller.log", "daemon-h0.log", "daemon-h1.log"];
        files
            .map(|file| fs::read_to_string(self.folder.join(file)).unwrap_or_default())
            .join("\n")
    }

    /// Runs a command on the first host.
    pub fn command(&self, words: &[&str]) -> Said {
        let before = ["lab", "exec", self.lab.0, "h0", "--"];
        let config = format!("SLURM_CONF={}", self.config());
        let env = ["env", &config, "timeout", LIMIT];
        say(&[&before[..], &env, words].concat())
    }

    /// Runs processes under srun, which offers them `mpi`.
    pub fn srun(&self, mpi: &str, words: &[&str]) -> Said {
        let mpi = format!("--mpi={mpi}");
        self.command(&[&["srun", "-Q", &mpi], words].concat())
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        // Its jobs end with their node's daemon only when they are cancelled.
        self.command(&["scancel", "-Q", "-s", "KILL", "-u", "root"]);
        // In order, so that what they have started ends too.
        for process in &mut self.processes {
            let pid = Pid::from_raw(process.id().cast_signed()).unwrap();
            let _ = kill_process(pid, Signal::TERM);
            let start = Instant::now();
            while matches!(process.try_wait(), Ok(None)) {
                if start.elapsed() > Duration::from_secs(5) {
                    let _ = process.kill();
                }
                sleep(Duration::from_millis(5));
            }
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}
