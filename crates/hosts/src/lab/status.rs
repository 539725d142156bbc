//! `lab status`: what a lab is, what its switch did, and whether the machine
//! keeps up with it.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::geteuid;
use serde_json::{Value, json};

use super::cable::Cable;
use super::impair::{self, Current};
use super::{Lab, LossCounters, PLAIN_XDP_MTU_MAX, remove, store, tool, wires};
use crate::failure::{Failure, Result};
use crate::node::ONE_BUFFER_MAX;
use crate::print::print;
use crate::table::table;

/// How long the cores are looked at.
const LOOK: Duration = Duration::from_millis(200);
/// Percent of a core's time from which on cores and not wires limit.
const BUSY_PERCENT: u32 = 80;

/// Where the answer goes.
pub(super) enum Form {
    Text,
    /// To standard output.
    Json,
    File(PathBuf),
}

impl Form {
    /// As `--json [FILE]` asks.
    pub(super) fn new(json: Option<Option<PathBuf>>) -> Self {
        match json {
            None => Self::Text,
            Some(None) => Self::Json,
            Some(Some(file)) => Self::File(file),
        }
    }

    pub(super) fn is_json(&self) -> bool {
        !matches!(self, Self::Text)
    }

    /// Writes JSON.
    pub(super) fn write(&self, value: &Value) -> Result<()> {
        let line = format!("{value}\n");
        match self {
            Self::File(path) => {
                fs::write(path, line).map_err(Failure::io(format!("writing {}", path.display())))
            }
            _ => print(line).map(drop),
        }
    }
}

/// What the switch's side of a host's line did, packets.
#[derive(Clone, Copy, Default)]
struct Port {
    /// Its cable is plugged in.
    up: bool,
    /// Dropped by the port's full buffer.
    dropped: u64,
    /// Dropped before the host's own line, which should never be.
    own_dropped: u64,
    /// Bytes in the port's buffer.
    backlog: u64,
    /// Marked by the port.
    marked: u64,
}

impl Port {
    fn about(&self) -> Value {
        json!({
            "dropped": self.dropped,
            "backlog_bytes": self.backlog,
            "marked": self.marked,
            "own_dropped": self.own_dropped,
        })
    }
}

impl Lab {
    /// Packets that its full ports have dropped since they were made.
    ///
    /// # Errors
    /// What `ip` and `tc` say.
    pub fn dropped(&self) -> Result<u64> {
        Ok(ports(self)?.iter().map(|port| port.dropped).sum())
    }
}

/// Tells about lab `name`, or about all of them.
pub(super) fn status(name: Option<&str>, form: &Form) -> Result<()> {
    let labs = match name {
        Some(name) => vec![Lab::open(name)?],
        None => store::list()?.into_iter().filter(|lab| lab.ready).collect(),
    };
    let cores = busy()?;
    // One of all that is damaged, or just being taken down, hides no other.
    let all = name.is_none();
    if form.is_json() {
        let or_error = |lab| match about(lab) {
            Err(why) if all => {
                let mut shape = shape(lab);
                shape["error"] = json!(why.to_string());
                Ok(shape)
            }
            told => told,
        };
        let labs: Result<Vec<Value>> = labs.iter().map(or_error).collect();
        return form.write(&json!({ "labs": labs?, "cores_busy_percent": cores }));
    }
    let mut text = String::new();
    for lab in &labs {
        let mut one = String::new();
        match show(&mut one, lab) {
            Err(why) if all => one = format!("lab {}: {why}\n", lab.name),
            told => told?,
        }
        text.push_str(&one);
    }
    show_cores(&mut text, &cores);
    print(text).map(drop)
}

/// What a lab was made as.
pub(super) fn shape(lab: &Lab) -> Value {
    let cable = |cable| {
        json!({
            "ipv4": lab.ipv4_of(cable),
            "ipv6": lab.ipv6_of(cable),
            "mac": lab.mac_of(cable),
        })
    };
    let host = |host| {
        let mut about = cable(Cable { host, switch: 0 });
        about["name"] = json!(format!("h{host}"));
        about["namespace"] = json!(lab.host_namespace(host));
        if lab.shape.switches > 1 {
            about["second"] = cable(Cable { host, switch: 1 });
        }
        about
    };
    let line = lab.shape.line;
    json!({
        "name": lab.name,
        "ready": lab.ready,
        "mtu": lab.shape.mtu,
        "queues": lab.shape.queues,
        "switches": lab.shape.switches,
        "cable": lab.shape.cable,
        "rate_bits_per_s": line.map(|line| line.rate.bits_per_s()),
        "buffer_bytes": line.map(|line| line.buffer),
        "ecn_bytes": line.and_then(|line| line.ecn),
        "hosts": (0..lab.shape.hosts).map(host).collect::<Vec<_>>(),
    })
}

/// What a lab is, and what happens in it.
fn about(lab: &Lab) -> Result<Value> {
    let ports = ports(lab)?;
    let mut about = shape(lab);
    for host in 0..lab.shape.hosts {
        let here = &mut about["hosts"][host as usize];
        here["processes"] = json!(processes(lab, host)?);
        for switch in 0..lab.shape.switches {
            let cable = Cable { host, switch };
            let Some(port) = ports.get(lab.place_of(cable) as usize) else {
                continue;
            };
            let end = match switch {
                0 => &mut *here,
                _ => &mut here["second"],
            };
            end["up"] = json!(port.up);
            if lab.shape.line.is_some() {
                end["port"] = port.about();
            }
        }
    }
    about["impaired"] = json!(impair::current(lab)?.as_ref().map(harm));
    Ok(about)
}

fn harm(current: &Current) -> Value {
    let with = &current.with;
    let mut about = json!(with);
    if let Some(counted) = current.counters {
        about["dropped"] = json!(counted.dropped);
        about["passed"] = json!(counted.passed);
        about["repeated"] = json!(counted.repeated);
    }
    if with.needs_wire() {
        about["wire"] = json!(current.late.as_ref().map(|(late, _)| late));
        if let Some((_, overrun)) = &current.late {
            about["wire"]["overrun"] = json!(overrun);
        }
    }
    about
}

fn show(text: &mut String, lab: &Lab) -> Result<()> {
    let _ = writeln!(text, "lab {}: {}", lab.name, lab.shape);
    let ports = ports(lab)?;
    let line = |cable: Cable| {
        let host = cable.host;
        let mut about = match cable.switch {
            0 => format!("{:>3} processes", processes(lab, host)?.len()),
            _ => format!("on {}", cable.interface()),
        };
        if let Some(port) = ports.get(lab.place_of(cable) as usize) {
            if !port.up {
                about.push_str("; unplugged");
            }
            if lab.shape.line.is_some() {
                let _ = write!(about, "; port: {} dropped", port.dropped);
            }
            if lab.marks() {
                let _ = write!(about, ", {} marked", port.marked);
            }
            if port.own_dropped > 0 {
                let _ = write!(about, "; own line: {} dropped", port.own_dropped);
            }
        }
        let [v4, v6] = [
            lab.ipv4_of(cable).to_string(),
            lab.ipv6_of(cable).to_string(),
        ];
        Ok(vec![format!("h{host}"), v4, v6, about])
    };
    let lines = lab.cables().map(line).collect::<Result<_>>()?;
    text.push_str(&table("l", 2, &[], lines));
    if lab.shape.mtu > PLAIN_XDP_MTU_MAX {
        let _ = writeln!(text, "{}", large_mtu());
    }
    if lab.shape.line.is_some() && ports.is_empty() {
        let _ = writeln!(text, "what the ports dropped only root sees (sudo)");
    }
    if let Some(current) = impair::current(lab)? {
        show_impaired(text, &current);
    }
    Ok(())
}

fn show_impaired(text: &mut String, current: &Current) {
    let Current { with, .. } = current;
    let _ = write!(text, "{with}");
    if let Some(counted) = current.counters {
        let LossCounters {
            dropped,
            passed,
            repeated,
        } = counted;
        let _ = write!(text, ": {dropped} packets dropped, {passed} passed");
        if with.repeat > 0.0 {
            let _ = write!(text, ", {repeated} repeated");
        }
    }
    match current.late {
        Some((late, overrun)) => {
            let _ = write!(
                text,
                "; {} packets went by the process that holds them back, {} corrupted, {} reordered",
                late.carried, late.corrupted, late.reordered
            );
            if overrun > 0 {
                let _ = write!(text, ", {overrun} lost because it was too slow");
            }
        }
        None if with.needs_wire() => text.push_str(
            "; the process that holds packets back was killed: all go their straight way until \
             `portolan lab impair` starts another",
        ),
        None => {}
    }
    text.push('\n');
}

fn processes(lab: &Lab, host: u32) -> Result<Vec<i32>> {
    let pids = remove::processes(&[lab.host_namespace(host)])?;
    Ok(pids.iter().map(|pid| pid.as_raw_nonzero().get()).collect())
}

/// What a lab's MTU means for XDP, where it is large.
pub(super) fn large_mtu() -> String {
    format!(
        "MTU above {PLAIN_XDP_MTU_MAX}: native XDP takes programs that understand packets in \
         several buffers only, as those of host ports, which before Linux 6.6 send packets of \
         up to {ONE_BUFFER_MAX} bytes"
    )
}

/// How the cables are and what their ports did; empty for others than root.
fn ports(lab: &Lab) -> Result<Vec<Port>> {
    if !geteuid().is_root() {
        return Ok(Vec::new());
    }
    let mut ports = vec![Port::default(); lab.cables().count()];
    if lab.shape.cable {
        // Nobody can pull it out.
        ports.iter_mut().for_each(|port| port.up = true);
        return Ok(ports);
    }
    let said = lab.in_switch(|| tool::run("ip", &["-j", "link", "show"], &[]))?;
    for device in &parse(&said)? {
        let name = device["ifname"].as_str().unwrap_or_default();
        let flags = device["flags"].as_array();
        let is_up = flags.is_some_and(|flags| flags.iter().any(|flag| flag == "UP"));
        if let Some(cable) = Cable::of_device(name, 'h') {
            ports[lab.place_of(cable) as usize].up = is_up;
        }
    }
    if lab.shape.line.is_none() {
        return Ok(ports);
    }
    let said = lab.in_switch(|| tool::run("tc", &["-s", "-j", "qdisc", "show"], &[]))?;
    for queue in parse(&said)?.iter().filter(|queue| queue["kind"] == "tbf") {
        let device = queue["dev"].as_str().unwrap_or_default();
        let count = |key: &str| queue[key].as_u64().unwrap_or(0);
        let place = |kind| Cable::of_device(device, kind).map(|c| lab.place_of(c) as usize);
        if let Some(place) = place('p') {
            ports[place].dropped = count("drops");
            ports[place].backlog = count("backlog");
        } else if let Some(place) = place('l') {
            ports[place].own_dropped = count("drops");
        }
    }
    if lab.marks() {
        for (port, marked) in ports.iter_mut().zip(wires::marked(lab)?) {
            port.marked = marked;
        }
    }
    Ok(ports)
}

fn parse(said: &str) -> Result<Vec<Value>> {
    serde_json::from_str(said)
        .map_err(|error| Failure::new(format!("reading what ip and tc say: {error}")))
}

fn show_cores(text: &mut String, busy: &[u32]) {
    let shares: Vec<String> = busy.iter().map(|share| format!("{share} %")).collect();
    let _ = writeln!(text, "cores busy: {}", shares.join(", "));
    let over = busy.iter().filter(|&&share| share > BUSY_PERCENT).count();
    if over > 0 {
        let _ = writeln!(
            text,
            "warning: {over} of {} cores are more than {BUSY_PERCENT} % busy, so cores and not \
             wires limit: use fewer hosts or a lower --rate, or end what else runs",
            busy.len()
        );
    }
}

/// How busy each core of this machine is for a moment, percent.
fn busy() -> Result<Vec<u32>> {
    let look = || {
        fs::read_to_string(Path::new("/proc/stat"))
            .map(|text| times(&text))
            .map_err(Failure::io("reading /proc/stat"))
    };
    let before = look()?;
    sleep(LOOK);
    let after = look()?;
    Ok(before
        .iter()
        .zip(&after)
        .map(|(a, b)| share(*a, *b))
        .collect())
}

/// Time of each core since the machine started: all of it, and idle.
fn times(stat: &str) -> Vec<(u64, u64)> {
    let is_core = |word: &str| word.strip_prefix("cpu").is_some_and(|n| !n.is_empty());
    let cores = stat.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        is_core(words.next()?).then(|| {
            let times: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
            // Idle, and waiting for a disk; after the eighth come parts of others.
            let idle = times.iter().skip(3).take(2).sum();
            (times.iter().take(8).sum(), idle)
        })
    });
    cores.collect()
}

fn share(before: (u64, u64), after: (u64, u64)) -> u32 {
    let all = after.0.saturating_sub(before.0);
    let idle = after.1.saturating_sub(before.1).min(all);
    u32::try_from((all - idle) * 100 / all.max(1)).expect("at most 100")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_is_busy_when_it_neither_idles_nor_waits() {
        let stat = |user: u32, idle: u32, wait: u32| {
            format!(
                "cpu  9 9 9 9 9 9 9 9 0 0\n\
                 cpu0 {user} 0 10 {idle} {wait} 0 0 10 7 7\n\
                 cpu1 0 0 0 5 0 0 0 0 0 0\nintr 3 4\n"
            )
        };
        let (before, after) = (times(&stat(100, 200, 50)), times(&stat(160, 230, 60)));
        assert_eq!(before, [(370, 250), (5, 5)]);
        // 100 ticks, of which 40 idle or waiting; of the other none passed.
        let shares: Vec<u32> = before
            .iter()
            .zip(&after)
            .map(|(a, b)| share(*a, *b))
            .collect();
        assert_eq!(shares, [60, 0]);
    }
}
