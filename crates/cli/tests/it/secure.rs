//! A program that has rights which whoever started it lacks believes nothing of its
//! environment: no variable counts, no command is started.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use crate::common::{executable, install, need_root};
use portolan::{Config, Endpoint, tuned};
use portolan_sys::environment::is_secure;
use portolan_sys::inherit::unshare_network;
use rustix::fs::{StatVfsMountFlags, XattrFlags, setxattr, statvfs};

/// Has the copy open an endpoint: in a job, or outside of one.
const OPENS: &str = "PORTOLAN_TEST_SECURE";
/// What is said of a tuned file that makes no sense.
const UNUSED: &str = "is not used";
/// Who may do nothing.
const NOBODY: u32 = 65_534;

/// What a copy of this program does.
#[test]
fn opens_an_endpoint() {
    let Ok(what) = std::env::var(OPENS) else {
        return;
    };
    println!("secure: {}", is_secure());
    let opened = match &*what {
        "job" => Endpoint::open(Config::default()),
        _ => Endpoint::open_standalone(Config::default()),
    };
    match opened {
        Ok(_) => println!("opened"),
        Err(why) => println!("refused: {why}"),
    }
}

/// A folder where set-user-id programs may be, and all that a caller has prepared.
struct Trap {
    folder: PathBuf,
}

impl Trap {
    fn new(name: &str) -> Self {
        let honours = |folder: &&str| {
            let flags = statvfs(*folder).unwrap().f_flag;
            !flags.intersects(StatVfsMountFlags::NOSUID | StatVfsMountFlags::NOEXEC)
        };
        let folder = ["/tmp", "/var/tmp", "/opt"].into_iter().find(honours);
        let folder = folder.expect("a folder without nosuid and noexec");
        let folder = Path::new(folder).join(format!("portolan-{name}-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        let trap = Self { folder };
        let script = format!("echo caught >{}", trap.at("mark-agent"));
        executable(trap.at("agent"), &script);
        let nonsense = tuned::path_in(&trap.folder.join("portolan/tuned.d"), tuned::Link::Udp);
        fs::create_dir_all(nonsense.parent().unwrap()).unwrap();
        fs::write(nonsense, "nonsense").unwrap();
        trap
    }

    fn at(&self, name: &str) -> String {
        self.folder.join(name).to_str().unwrap().to_owned()
    }

    /// A copy of this program with a mode of its own.
    fn copy(&self, name: &str, mode: u32) -> String {
        let copy = self.at(name);
        install(std::env::current_exe().unwrap(), &copy, mode);
        copy
    }

    /// What a copy says that a user started, with these variables.
    fn says(&self, copy: &str, user: u32, what: &str, variables: &[(&str, &str)]) -> String {
        let mut command = Command::new(copy);
        command
            .args(["secure::opens_an_endpoint", "--exact", "--nocapture"])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env(OPENS, what)
            .envs(variables.iter().copied())
            .current_dir("/")
            .uid(user)
            .gid(user);
        let said = command.output().unwrap();
        String::from_utf8([said.stdout, said.stderr].concat()).unwrap()
    }

    /// The marks that are there, which are taken away.
    fn marks(&self) -> Vec<String> {
        let all = fs::read_dir(&self.folder).unwrap();
        let names = all.map(|it| it.unwrap().file_name().into_string().unwrap());
        let marks: Vec<String> = names.filter(|name| name.starts_with("mark")).collect();
        for mark in &marks {
            fs::remove_file(self.at(mark)).unwrap();
        }
        marks
    }
}

impl Drop for Trap {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.folder).unwrap();
    }
}

/// Where an endpoint of root asks for a host port, and so for a node service.
fn in_a_network_of_its_own(test: impl FnOnce() + Send + 'static) {
    let inside = thread::spawn(move || {
        unshare_network().unwrap();
        for line in [
            "link set lo up",
            "link add v0 type veth peer name v1",
            "addr add 10.77.0.1/24 dev v0",
            "link set v0 up",
            "link set v1 up",
            "route add default via 10.77.0.2",
        ] {
            let status = Command::new("ip").args(line.split(' ')).status();
            assert!(status.unwrap().success(), "ip {line}");
        }
        test();
    });
    inside.join().unwrap();
}

#[test]
fn a_set_user_id_program_does_nothing_that_its_caller_says() {
    need_root();
    in_a_network_of_its_own(|| {
        let trap = Trap::new("secure");
        let (agent, node) = (trap.at("agent"), trap.at("no-service"));
        let (trace, config) = (trap.at("mark-trace"), trap.at("no-config"));
        let marking = [
            ("PORTOLAN_AGENT", &*agent),
            ("PORTOLAN_NODE", &node),
            ("PORTOLAN_TRACE", &trace),
        ];
        // Where they count, they do all that.
        let plain = trap.copy("plain", 0o755);
        let said = trap.says(&plain, 0, "alone", &marking);
        assert!(said.contains("secure: false"), "{said}");
        let marks = trap.marks();
        assert_eq!(marks.len(), 2, "{marks:?} {said}");
        let (folder, tuned) = (trap.at(""), trap.at("portolan/tuned.d"));
        let nonsense = [
            ("PORTOLAN_CONFIG", &*config),
            ("PORTOLAN_SECURITY", "nonsense"),
            ("PORTOLAN_DISABLE", "nonsense"),
            ("PORTOLAN_TUNED", &tuned),
            ("XDG_CONFIG_HOME", &folder),
        ];
        for variable in &nonsense {
            let said = trap.says(&plain, 0, "alone", &[*variable]);
            let heeded = said.contains("refused: ") || said.contains(UNUSED);
            assert!(heeded, "{variable:?}: {said}");
        }

        let owned = trap.copy("set-user-id", 0o4755);
        let said = trap.says(&owned, NOBODY, "alone", &marking);
        assert!(said.contains("secure: true"), "is no_new_privs set? {said}");
        assert!(said.contains("opened"), "{said}");
        assert_eq!(trap.marks(), [""; 0]);
        for what in ["alone", "job"] {
            let said = trap.says(&owned, NOBODY, what, &nonsense);
            assert!(said.contains("opened") && !said.contains(UNUSED), "{said}");
            assert!(said.contains("PORTOLAN_SECURITY does not count"), "{said}");
        }
    });
}

#[test]
fn a_program_with_rights_of_its_file_says_why_it_is_in_no_job() {
    need_root();
    let trap = Trap::new("capable");
    let owned = trap.copy("set-user-id", 0o4755);
    // CAP_NET_BIND_SERVICE, permitted and effective, as capabilities(7) lays it out.
    let capable = trap.copy("capable", 0o755);
    let words = [0x0200_0001_u32, 1 << 10, 0, 0, 0];
    let value: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
    setxattr(
        &*capable,
        "security.capability",
        &value,
        XattrFlags::empty(),
    )
    .unwrap();
    for copy in [owned, capable] {
        for variables in [
            &[("PORTOLAN_JOB", "fd:7")][..],
            &[("PMI_FD", "7"), ("PMI_RANK", "0"), ("PMI_SIZE", "2")],
            &[("PMI_PORT", "127.0.0.1:1"), ("PMI_ID", "0")],
            &[("PMIX_NAMESPACE", "it"), ("PMIX_RANK", "0")],
            &[("OMPI_COMM_WORLD_SIZE", "2")],
        ] {
            let said = trap.says(&copy, NOBODY, "job", variables);
            assert!(said.contains("secure: true"), "is no_new_privs set? {said}");
            let why = "the variables by which a launcher names the job do not count";
            assert!(said.contains(why), "{variables:?}: {said}");
        }
        let said = trap.says(&copy, NOBODY, "job", &[]);
        assert!(said.contains("opened"), "{said}");
    }
}
