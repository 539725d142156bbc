//! A PMI-1 server over TCP, in the place of a launcher's: it hears all that
//! its processes say, and ends none of them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

use super::{MARK, marked, own_mark};

pub struct PmiServer {
    port: String,
    space: Arc<Mutex<BTreeMap<String, String>>>,
    marks: Mutex<BTreeSet<String>>,
}

/// No process outlives its test, also where that fails.
impl Drop for PmiServer {
    fn drop(&mut self) {
        for mark in self.marks.get_mut().unwrap().iter() {
            for pid in marked(mark) {
                let pid = Pid::from_raw(pid.cast_signed()).unwrap();
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

impl PmiServer {
    /// For a job of so many processes.
    pub fn start(size: usize) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap(), size)
    }

    /// The same where `listener` is.
    pub fn on(listener: TcpListener, size: usize) -> Self {
        let port = listener.local_addr().unwrap().to_string();
        let space = Arc::default();
        let server = Self {
            port,
            space: Arc::clone(&space),
            marks: Mutex::default(),
        };
        let all = Arc::new(Barrier::new(size));
        thread::spawn(move || {
            for stream in listener.incoming().take(size) {
                let (space, all) = (Arc::clone(&space), Arc::clone(&all));
                let stream = stream.unwrap();
                thread::spawn(move || serve(stream, size, &space, &all));
            }
        });
        server
    }

    /// Starts process `rank` of `command`.
    pub fn spawn(&self, rank: usize, mark: &str, command: &mut Command) -> Child {
        self.marks.lock().unwrap().insert(mark.to_owned());
        command
            .env("PMI_PORT", &self.port)
            .env("PMI_ID", rank.to_string())
            .env(MARK, own_mark(mark))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// All that was put, by key.
    pub fn heard(&self) -> BTreeMap<String, String> {
        self.space.lock().unwrap().clone()
    }
}

fn serve(stream: TcpStream, size: usize, space: &Mutex<BTreeMap<String, String>>, all: &Barrier) {
    let mut answers = stream.try_clone().unwrap();
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let value = |key: &str| {
            let key = format!("{key}=");
            let mut words = line.split(' ');
            let value = words.find_map(|word| word.strip_prefix(&key));
            value.unwrap_or_else(|| panic!("no {key} in {line}"))
        };
        let answer = match value("cmd") {
            "initack" => {
                let id = value("pmiid");
                format!("cmd=initack\ncmd=set size={size}\ncmd=set rank={id}\ncmd=set debug=0")
            }
            "init" => "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0".to_owned(),
            "get_maxes" => "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024".to_owned(),
            "get_my_kvsname" => "cmd=my_kvsname kvsname=all".to_owned(),
            "put" => {
                let (key, value) = (value("key").to_owned(), value("value").to_owned());
                space.lock().unwrap().insert(key, value);
                "cmd=put_result rc=0 msg=success".to_owned()
            }
            "barrier_in" => {
                all.wait();
                "cmd=barrier_out".to_owned()
            }
            "get" => format!(
                "cmd=get_result rc=0 value={}",
                space.lock().unwrap()[value("key")]
            ),
            "finalize" => "cmd=finalize_ack".to_owned(),
            other => panic!("unknown: {other}"),
        };
        if writeln!(answers, "{answer}").is_err() {
            return;
        }
    }
}
