//! Which hosts a job runs on: lists, files, slots.

use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

use portolan_boot::launch::RANKS_MAX;
use portolan_hosts::failure::{Failure, Result};
use portolan_hosts::file;
use portolan_hosts::lab::Lab;
use portolan_hosts::print::counted;

use super::arguments::{Arguments, Block};

/// Longest hostfile, bytes: more than twice what 4,096 hosts with the longest
/// names take.
const HOSTFILE_BYTES_MAX: u64 = 4 << 20;

/// How long a program may write hosts into a pipe that is given as hostfile.
const PIPE_PATIENCE: Duration = Duration::from_secs(30);

/// Where a host is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPlace {
    /// This one.
    Here,
    /// A host of the lab.
    Lab(u32),
    /// Reached through ssh, by its name.
    Remote,
}

/// A host that takes part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// For the user to read; of a remote one also what ssh is given.
    pub name: String,
    pub place: HostPlace,
    pub ranks: u32,
    /// Ranks that it is meant to have at most; 0 where nothing says.
    pub slots: u32,
}

/// A host as a list names it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    name: String,
    slots: u32,
}

/// What is wrong in a list, and at which character of it, from 0.
#[derive(Debug, PartialEq, Eq)]
struct Fault {
    at: usize,
    what: String,
}

impl Fault {
    fn new(at: usize, what: impl fmt::Display) -> Self {
        let what = what.to_string();
        Self { at, what }
    }
}

/// The hosts of the job, with at least one rank each, and, where ranks may be
/// started again, those that have none yet.
///
/// # Errors
/// What is wrong in a list or file, and where; more ranks than slots.
pub fn choose(arguments: &Arguments, lab: Option<&Lab>, blocks: &[Block]) -> Result<Vec<Host>> {
    let asked = asked(blocks)?;
    let entries = match (&arguments.hosts, &arguments.hostfile) {
        (Some(list), _) => Some((read_list(list)?, "--hosts")),
        (_, Some(file)) => Some((read_file(file)?, "the hostfile")),
        _ => None,
    };
    let mut hosts = match (entries, lab) {
        (Some((entries, source)), _) => {
            let entries = exclude(entries, &arguments.exclude, |e| &e.name)?;
            let all: Vec<u32> = entries.iter().map(|entry| entry.slots).collect();
            slots_for(entries, asked, source)?
                .into_iter()
                .zip(all)
                .map(|(Entry { name, slots: ranks }, slots)| {
                    let place = match lab {
                        Some(lab) => HostPlace::Lab(lab.find_host(&name)?),
                        None if is_here(&name) => HostPlace::Here,
                        None => HostPlace::Remote,
                    };
                    Ok(Host {
                        name,
                        place,
                        ranks,
                        slots,
                    })
                })
                .collect::<Result<Vec<_>>>()?
        }
        (None, Some(lab)) => {
            let all = (0..lab.hosts()).map(|host| (host, format!("h{host}")));
            let left = exclude(all.collect(), &arguments.exclude, |(_, name)| name)?;
            let ranks = asked.ok_or_else(need_number)?;
            let count = u32::try_from(left.len()).unwrap_or(u32::MAX).min(ranks);
            let blocks = portolan_boot::launch::JobSpec::blocks(ranks, count);
            left.into_iter()
                .zip(blocks.into_iter().chain(std::iter::repeat(0)))
                .map(|((host, name), ranks)| Host {
                    name,
                    place: HostPlace::Lab(host),
                    ranks,
                    slots: 0,
                })
                .collect()
        }
        (None, None) if !arguments.exclude.is_empty() => {
            return Err(Failure::usage(
                "--exclude leaves hosts out of a list: give one with --hosts, --hostfile or --lab",
            ));
        }
        (None, None) => vec![Host {
            name: own_name(),
            place: HostPlace::Here,
            ranks: asked.ok_or_else(need_number)?,
            slots: 0,
        }],
    };
    hosts.retain(|host| host.ranks > 0 || arguments.respawn > 0);
    if arguments.respawn > 0 && hosts.len() < 2 {
        return Err(Failure::usage(format!(
            "--respawn {}: ranks are started again on other hosts, and there is only one: name \
             more with --hosts, --hostfile or --lab",
            arguments.respawn
        )));
    }
    Ok(hosts)
}

fn need_number() -> Failure {
    Failure::usage("how many ranks? Give -n N, or hosts with slots (--hosts a:2,b:2)")
}

/// The number of ranks that the user names, if so.
fn asked(blocks: &[Block]) -> Result<Option<u32>> {
    let sum = blocks.iter().map(|b| b.ranks.map(u64::from)).sum();
    Option::<u64>::map(sum, super::arguments::rank_count).transpose()
}

/// The partition of each host, from lists of the form NAME=HOST,...; whoever
/// is in none is in one with all such. Empty without lists.
pub fn partitions(lists: &[String], hosts: &[Host]) -> Result<Vec<u16>> {
    if lists.is_empty() {
        return Ok(Vec::new());
    }
    let mut of_host: Vec<Option<usize>> = vec![None; hosts.len()];
    let mut names: Vec<&str> = Vec::new();
    for list in lists {
        let wrong = |why: &str| Failure::usage(format!("--partition {list}: {why}"));
        let (name, members) = list
            .split_once('=')
            .filter(|(name, members)| !name.is_empty() && !members.is_empty())
            .ok_or_else(|| wrong("give it as NAME=HOST,HOST"))?;
        if names.contains(&name) {
            return Err(wrong(
                "this name was given before; name all its hosts there",
            ));
        }
        names.push(name);
        for member in members.split(',') {
            let mut known = false;
            for (host, of) in hosts.iter().zip(&mut of_host) {
                if host.name != member {
                    continue;
                }
                known = true;
                if of
                    .replace(names.len())
                    .is_some_and(|other| other != names.len())
                {
                    return Err(wrong(&format!("{member} is in another partition too")));
                }
            }
            if !known {
                let known: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
                let known = known.join(", ");
                return Err(wrong(&format!(
                    "no rank is on {member} (the hosts are {known})"
                )));
            }
        }
    }
    let number = |of: &Option<usize>| {
        u16::try_from(of.unwrap_or_default())
            .map_err(|_| Failure::usage("--partition: there are too many"))
    };
    of_host.iter().map(number).collect()
}

/// Leaves out the named ones.
fn exclude<T>(all: Vec<T>, names: &[String], name_of: impl Fn(&T) -> &String) -> Result<Vec<T>> {
    if let Some(unknown) = names.iter().find(|n| !all.iter().any(|e| name_of(e) == *n)) {
        let known: Vec<&str> = all.iter().map(|e| name_of(e).as_str()).collect();
        return Err(Failure::usage(format!(
            "--exclude {unknown}: there is no such host in the list ({})",
            known.join(", ")
        )));
    }
    let left: Vec<T> = all
        .into_iter()
        .filter(|e| !names.contains(name_of(e)))
        .collect();
    if left.is_empty() {
        return Err(Failure::usage(
            "--exclude leaves no host: leave one of them in",
        ));
    }
    Ok(left)
}

/// Fills slots in order with the ranks asked for.
fn slots_for(mut entries: Vec<Entry>, asked: Option<u32>, source: &str) -> Result<Vec<Entry>> {
    let slots: u64 = entries.iter().map(|e| u64::from(e.slots)).sum();
    let ranks = match asked {
        Some(ranks) => ranks,
        None => super::arguments::rank_count(slots)?,
    };
    if u64::from(ranks) > slots {
        let list: Vec<String> = entries
            .iter()
            .map(|e| format!("{}:{}", e.name, e.slots))
            .collect();
        return Err(Failure::usage(format!(
            "{}, and {source} has {} ({}): give hosts more slots (NAME:N), more hosts, or a \
             smaller -n",
            counted(ranks as usize, "rank"),
            counted(usize::try_from(slots).unwrap_or(usize::MAX), "slot"),
            list.join(",")
        )));
    }
    let mut left = ranks;
    for entry in &mut entries {
        entry.slots = entry.slots.min(left);
        left -= entry.slots;
    }
    Ok(entries)
}

fn read_list(list: &str) -> Result<Vec<Entry>> {
    parse_list(list).map_err(|Fault { at, what }| {
        Failure::usage(format!("--hosts {list}, column {}: {what}", at + 1))
    })
}

fn parse_list(list: &str) -> std::result::Result<Vec<Entry>, Fault> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut at = 0;
    for word in list.split(',') {
        let (name, slots) = parse_host(word, at)?;
        check_new(&entries, &name, at)?;
        let slots = slots.unwrap_or(1);
        entries.push(Entry { name, slots });
        at += word.chars().count() + 1;
    }
    Ok(entries)
}

fn read_file(path: &Path) -> Result<Vec<Entry>> {
    let name = path.display();
    let unreadable = |error: io::Error| {
        Failure::usage(format!(
            "cannot read the hostfile {name}: {error}; give --hostfile the path of a text file"
        ))
    };
    let bytes = file::read_or_await(path, HOSTFILE_BYTES_MAX + 1, PIPE_PATIENCE);
    let text = bytes.and_then(|bytes| {
        let wrong = |_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8");
        String::from_utf8(bytes).map_err(wrong)
    });
    let text = text.map_err(unreadable)?;
    if text.len() as u64 > HOSTFILE_BYTES_MAX {
        return Err(Failure::usage(format!(
            "the hostfile {name} is longer than {} MiB: give --hostfile a file with a host a line",
            HOSTFILE_BYTES_MAX >> 20
        )));
    }
    read_text(path, &text)
}

fn read_text(path: &Path, text: &str) -> Result<Vec<Entry>> {
    parse_file(text).map_err(|(line, Fault { at, what })| {
        Failure::usage(format!("{}:{line}:{}: {what}", path.display(), at + 1))
    })
}

/// Reads a host a line; an error says which line, from 1.
fn parse_file(text: &str) -> std::result::Result<Vec<Entry>, (usize, Fault)> {
    // Some editors begin a file with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut entries: Vec<Entry> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if let Some((entry, at)) = parse_line(line).map_err(|fault| (number, fault))? {
            check_new(&entries, &entry.name, at).map_err(|fault| (number, fault))?;
            entries.push(entry);
        }
    }
    if entries.is_empty() {
        let fault = Fault::new(0, "no host stands here: write one a line, as in `node1:2`");
        return Err((1, fault));
    }
    Ok(entries)
}

/// Reads `name`, `name:slots` or `name slots=N`; none for a line without host.
fn parse_line(line: &str) -> std::result::Result<Option<(Entry, usize)>, Fault> {
    let line = line.split('#').next().unwrap_or_default();
    let mut words = Vec::new();
    let mut at = 0;
    for word in line.split(|c: char| c.is_whitespace()) {
        if !word.is_empty() {
            words.push((at, word));
        }
        at += word.chars().count() + 1;
    }
    let mut words = words.into_iter();
    let Some((start, word)) = words.next() else {
        return Ok(None);
    };
    let (name, mut slots) = parse_host(word, start)?;
    if let Some((at, word)) = words.next() {
        let Some(number) = word.strip_prefix("slots=") else {
            return Err(Fault::new(
                at,
                format!("{word:?} is not understood: after the name may stand slots=N"),
            ));
        };
        if slots.is_some() {
            return Err(Fault::new(at, "the slots are given twice: leave one out"));
        }
        slots = Some(parse_slots(number, at + "slots=".len())?);
    }
    if let Some((at, word)) = words.next() {
        return Err(Fault::new(
            at,
            format!("{word:?} is too much: a line has one host (# begins a comment)"),
        ));
    }
    let slots = slots.unwrap_or(1);
    Ok(Some((Entry { name, slots }, start)))
}

/// Reads `name` or `name:slots`; an IPv6 address stands in brackets.
fn parse_host(word: &str, at: usize) -> std::result::Result<(String, Option<u32>), Fault> {
    let (name, slots) = match word.strip_prefix('[') {
        Some(rest) => {
            let Some((name, rest)) = rest.split_once(']') else {
                return Err(Fault::new(at, "a bracket is not closed: write [fd00::1]:2"));
            };
            match rest.strip_prefix(':') {
                Some(slots) => (name, Some(slots)),
                None if rest.is_empty() => (name, None),
                None => {
                    let at = at + name.chars().count() + 2;
                    return Err(Fault::new(at, "after ] may stand :slots"));
                }
            }
        }
        None => match word.split_once(':') {
            Some((_, rest)) if rest.contains(':') => {
                return Err(Fault::new(
                    at,
                    format!("{word:?}: an IPv6 address stands in brackets, as in [fd00::1]:2"),
                ));
            }
            Some((name, slots)) => (name, Some(slots)),
            None => (word, None),
        },
    };
    check_host_name(name, at)?;
    let before = |text: &str| at + word.chars().count() - text.chars().count();
    let slots = slots.map(|text| parse_slots(text, before(text)));
    Ok((name.to_owned(), slots.transpose()?))
}

/// A name goes to ssh, which must not take it for an option.
fn check_host_name(name: &str, at: usize) -> std::result::Result<(), Fault> {
    let good = |c: char| c.is_ascii_alphanumeric() || "._-@:%".contains(c);
    if name.is_empty() {
        return Err(Fault::new(at, "a host's name is missing"));
    }
    if let Some(index) = name.chars().position(|c| !good(c)) {
        let c = name.chars().nth(index).unwrap_or_default();
        return Err(Fault::new(
            at + index,
            format!("{c:?} cannot be in a host's name"),
        ));
    }
    if name.starts_with('-') {
        return Err(Fault::new(at, "a host's name does not begin with -"));
    }
    Ok(())
}

fn parse_slots(text: &str, at: usize) -> std::result::Result<u32, Fault> {
    match text.parse() {
        Ok(slots) if (1..=RANKS_MAX).contains(&slots) => Ok(slots),
        _ => Err(Fault::new(
            at,
            format!("{text:?} cannot be a number of slots: give 1 to {RANKS_MAX}"),
        )),
    }
}

fn check_new(entries: &[Entry], name: &str, at: usize) -> std::result::Result<(), Fault> {
    if entries.iter().any(|e| e.name == name) {
        return Err(Fault::new(
            at,
            format!("host {name} stands here for the second time: give its slots once"),
        ));
    }
    Ok(())
}

/// This machine's name.
fn own_name() -> String {
    let own = rustix::system::uname();
    // It goes into lines: no name of a host has control characters.
    let name = own.nodename().to_string_lossy();
    name.replace(char::is_control, "?")
}

/// Whether a name means this host.
fn is_here(name: &str) -> bool {
    let own = own_name();
    let short = own.split('.').next().unwrap_or_default();
    name == "localhost" || name == own || (!short.is_empty() && name == short)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::values::tried;

    fn entry(name: &str, slots: u32) -> Entry {
        let name = name.to_owned();
        Entry { name, slots }
    }

    #[test]
    fn a_list_names_hosts_and_slots() {
        let got = parse_list("a:2,b,user@c.d:10,[fd00::1]:3,[::2]").unwrap();
        let wanted = [
            entry("a", 2),
            entry("b", 1),
            entry("user@c.d", 10),
            entry("fd00::1", 3),
            entry("::2", 1),
        ];
        assert_eq!(got, wanted);
    }

    #[test]
    fn a_list_says_where_it_is_wrong() {
        for (list, at, what) in [
            ("a:2,b:x", 6, "\"x\" cannot be a number"),
            ("a:0", 2, "give 1 to 4096"),
            ("a:5000", 2, "give 1 to 4096"),
            ("a,,b", 2, "name is missing"),
            ("a,-oProxyCommand=x", 16, "'='"),
            ("a,-b", 2, "begin with -"),
            ("a,b c", 3, "' '"),
            ("a,b,a:2", 4, "second time"),
            ("fd00::1", 0, "in brackets"),
            ("[fd00::1", 0, "not closed"),
            ("[::1]x", 5, "after ]"),
        ] {
            let fault = parse_list(list).unwrap_err();
            assert!(
                fault.at == at && fault.what.contains(what),
                "{list}: {fault:?}"
            );
        }
    }

    #[test]
    fn a_file_has_a_host_a_line() {
        let text = "\u{feff}# all\na\nb:2 # two\n\n  c  slots=3\n\t[::1]:4\r\n";
        let wanted = [entry("a", 1), entry("b", 2), entry("c", 3), entry("::1", 4)];
        assert_eq!(parse_file(text).unwrap(), wanted);
    }

    #[test]
    fn a_file_says_where_it_is_wrong() {
        for (text, line, at, what) in [
            ("a\nb slot=2", 2, 2, "slots=N"),
            ("a\n\n b slots=two", 3, 9, "\"two\""),
            ("a:2 slots=3", 1, 4, "twice"),
            ("[::1]:2 slots=3", 1, 8, "twice"),
            ("a slots=3 b", 1, 10, "too much"),
            ("a\nb\na", 3, 0, "second time"),
            ("# nothing\n", 1, 0, "no host"),
            ("a!", 1, 1, "'!'"),
        ] {
            let (got, fault) = parse_file(text).unwrap_err();
            assert!(
                got == line && fault.at == at && fault.what.contains(what),
                "{text:?}: {got} {fault:?}"
            );
        }
    }

    #[test]
    fn random_lists_and_files_are_read_or_refused_in_a_sentence() {
        let words = [
            "a",
            "h0",
            "node1",
            "a:2",
            "h1:",
            "[fd00::1]",
            "[::1]:3",
            "u@c.d",
            "10.1.2.3",
            " slots=2",
            "slots=",
            "\n",
            "# note\n",
            "b\n",
        ];
        tried(&words, read_list);
        tried(&words, |text| read_text(Path::new("hosts"), text));
    }

    #[test]
    fn slots_are_filled_in_order() {
        let list = || parse_list("a:2,b:3,c:1").unwrap();
        let ranks = |asked| -> Vec<u32> {
            let entries = slots_for(list(), asked, "--hosts").unwrap();
            entries.iter().map(|e| e.slots).collect()
        };
        assert_eq!(ranks(None), [2, 3, 1]);
        assert_eq!(ranks(Some(4)), [2, 2, 0]);
        let error = slots_for(list(), Some(7), "--hosts").unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("6 slots (a:2,b:3,c:1)") && text.contains("smaller -n"),
            "{text}"
        );
        let one = slots_for(parse_list("a").unwrap(), Some(2), "--hosts").unwrap_err();
        assert!(one.to_string().contains("has 1 slot (a:1)"), "{one}");
    }

    #[test]
    fn partitions_have_a_number_each() {
        let host = |name: &str| Host {
            name: name.to_owned(),
            place: HostPlace::Remote,
            ranks: 1,
            slots: 1,
        };
        let hosts = [host("a"), host("b"), host("c"), host("b")];
        let of = |lists: &[&str]| {
            let lists: Vec<String> = lists.iter().map(|l| (*l).to_owned()).collect();
            partitions(&lists, &hosts).map_err(|failure| failure.to_string())
        };
        assert_eq!(of(&[]).unwrap(), [0; 0]);
        assert_eq!(of(&["x=b"]).unwrap(), [0, 1, 0, 1]);
        assert_eq!(of(&["x=b", "y=a,c"]).unwrap(), [2, 1, 2, 1]);
        for (lists, part) in [
            (&["x"][..], "NAME=HOST"),
            (&["x="], "NAME=HOST"),
            (&["x=d"], "(the hosts are a, b, c, b)"),
            (&["x=a", "y=a"], "a is in another partition too"),
            (&["x=a", "x=b"], "given before"),
        ] {
            let failure = of(lists).unwrap_err();
            assert!(failure.contains(part), "{failure}");
        }
    }

    #[test]
    fn hosts_are_left_out_by_name() {
        let left = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
            exclude(parse_list("a:2,b").unwrap(), &names, |e| &e.name)
        };
        assert_eq!(left(&["a"]).unwrap(), [entry("b", 1)]);
        assert!(left(&["x"]).unwrap_err().to_string().contains("(a, b)"));
        assert!(
            left(&["a", "b"])
                .unwrap_err()
                .to_string()
                .contains("no host")
        );
    }
}
