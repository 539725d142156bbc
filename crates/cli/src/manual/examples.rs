//! The EXAMPLES of the commands' pages. A test reads each command line as
//! `portolan` would.

/// A sentence, and the command lines that do what it says.
pub type Example = (&'static str, &'static str);

/// Those of a page, by its name; none for an unknown one.
pub fn examples(page: &str) -> &'static [Example] {
    let found = EXAMPLES.iter().find(|(name, _)| *name == page);
    found.map_or(&[], |(_, examples)| examples)
}

const EXAMPLES: &[(&str, &[Example])] = &[
    (
        "portolan",
        &[
            (
                "Start four ranks of a program on this host, which talk over shared memory:",
                "portolan run -n 4 -- ./program",
            ),
            (
                "Try the same between the two hosts of a virtual cluster, of which 5 % of all \
                 packets are lost:",
                "sudo portolan lab up demo --hosts 2\n\
                 sudo portolan lab impair demo --loss 5\n\
                 sudo portolan run -n 4 --lab demo -- ./program\n\
                 sudo portolan lab down demo",
            ),
            (
                "See what this host can do, and what to change:",
                "portolan doctor",
            ),
        ],
    ),
    (
        "portolan-run",
        &[
            (
                "Start four ranks on this host:",
                "portolan run -n 4 -- ./program",
            ),
            (
                "Start two ranks on each of two hosts that ssh reaches:",
                "portolan run --hosts node1:2,node2:2 -- ./program",
            ),
            (
                "Start one master and three workers, and see at the end which link carried what:",
                "portolan run -v --hosts node1,node2:3 -n 1 -- ./master : -n 3 ./worker",
            ),
            (
                "Start the ranks of a host that is lost again on another:",
                "portolan run --respawn 2 --on-death notify --hosts a:2,b:2,c:2 -n 4 -- ./program",
            ),
            (
                "Give the ranks a setting and a variable, and end them after a minute:",
                "portolan run -n 2 --set close_ms=10000 -x DEBUG=1 --timeout 60 -- ./program",
            ),
        ],
    ),
    (
        "portolan-lab",
        &[(
            "Build a virtual cluster of four hosts, run a job on it, and remove it:",
            "sudo portolan lab up demo --hosts 4\n\
             sudo portolan run -n 8 --lab demo -- ./program\n\
             sudo portolan lab down demo",
        )],
    ),
    (
        "portolan-lab-up",
        &[
            (
                "Build two hosts on one switch:",
                "sudo portolan lab up demo",
            ),
            (
                "Build eight hosts with lines of 200 Mbit/s, before a switch with small buffers \
                 that marks packets:",
                "sudo portolan lab up slow --hosts 8 --rate 200mbit --buffer 64K --ecn 16K",
            ),
            (
                "Build two hosts on two networks, with jumbo frames and four queues:",
                "sudo portolan lab up wide --switches 2 --mtu 9000 --queues 4",
            ),
        ],
    ),
    (
        "portolan-lab-exec",
        &[(
            "Look at the addresses of host h0:",
            "sudo portolan lab exec demo h0 -- ip addr",
        )],
    ),
    (
        "portolan-lab-down",
        &[("Remove a lab:", "sudo portolan lab down demo")],
    ),
    (
        "portolan-lab-link",
        &[(
            "Pull out the cable of host h1, and plug it in again:",
            "sudo portolan lab link demo h1 down\n\
             sudo portolan lab link demo h1 up",
        )],
    ),
    (
        "portolan-lab-impair",
        &[
            (
                "Lose 5 % of all packets, the same ones in each run:",
                "sudo portolan lab impair demo --loss 5 --seed 7",
            ),
            (
                "Lose none any more:",
                "sudo portolan lab impair demo --loss 0",
            ),
        ],
    ),
    (
        "portolan-lab-list",
        &[("List all labs:", "portolan lab list")],
    ),
    (
        "portolan-lab-status",
        &[
            ("Look at one lab:", "sudo portolan lab status demo"),
            (
                "Write what is known of all labs to a file:",
                "sudo portolan lab status --json labs.json",
            ),
        ],
    ),
    (
        "portolan-bench",
        &[
            (
                "Measure the latency of a small message within this host, beside a bare ring in \
                 shared memory:",
                "portolan bench latency --link shm --vs shm-floor",
            ),
            (
                "Measure between the hosts of a lab, beside polled sockets, and make a page of \
                 the figures:",
                "mkdir figures\n\
                 sudo portolan lab up demo\n\
                 sudo portolan bench latency --lab demo --link udp --vs udp,tcp \
                 --json figures/latency.json\n\
                 portolan report figures",
            ),
        ],
    ),
    (
        "portolan-bench-latency",
        &[
            (
                "Within this host, beside a bare ring in shared memory and UCX:",
                "portolan bench latency --link shm --size 8 --vs shm-floor,ucx",
            ),
            (
                "Between the hosts of a lab, beside polled sockets:",
                "portolan bench latency --lab demo --link udp --vs udp,tcp",
            ),
        ],
    ),
    (
        "portolan-bench-bandwidth",
        &[(
            "What loss costs, beside TCP:",
            "portolan bench bandwidth --lab demo --link udp --loss 0,1,5,20 --vs tcp",
        )],
    ),
    (
        "portolan-bench-rate",
        &[(
            "Messages of 8 bytes through shared memory:",
            "portolan bench rate --link shm",
        )],
    ),
    (
        "portolan-bench-barrier",
        &[(
            "Eight ranks, beside two MPI libraries:",
            "portolan bench barrier -n 8 --vs openmpi,mpich",
        )],
    ),
    (
        "portolan-bench-incast",
        &[(
            "All hosts of a lab send to the first, beside TCP:",
            "portolan bench incast --lab slow --link udp --matched --vs tcp",
        )],
    ),
    (
        "portolan-bench-start",
        &[(
            "Beside two MPI libraries:",
            "portolan bench start -n 2,16 --vs openmpi,mpich",
        )],
    ),
    (
        "portolan-bench-pushpull",
        &[(
            "Matched messages within this host, beside other MPIs:",
            "portolan bench pushpull --link shm --size 8 --vs openmpi,mpich",
        )],
    ),
    (
        "portolan-bench-jitter",
        &[(
            "Watch each system for a minute, between the hosts of a lab:",
            "portolan bench jitter --lab demo --link udp --vs udp",
        )],
    ),
    (
        "portolan-bench-stalled",
        &[("Within this host:", "portolan bench stalled --link shm")],
    ),
    (
        "portolan-bench-ring",
        &[("Four ranks on a busy machine:", "portolan bench ring -n 4")],
    ),
    (
        "portolan-bench-alltoall",
        &[(
            "Between all hosts of a lab, beside TCP:",
            "portolan bench alltoall --lab slow --link udp --vs tcp",
        )],
    ),
    (
        "portolan-bench-idle",
        &[(
            "Four ranks for ten seconds in each state:",
            "portolan bench idle -n 4 --seconds 10",
        )],
    ),
    (
        "portolan-bench-networks",
        &[(
            "In a lab with two switches:",
            "sudo portolan lab up wide --switches 2\n\
             sudo portolan bench networks --lab wide --link udp",
        )],
    ),
    (
        "portolan-bench-lanes",
        &[(
            "With a peer on the other host of a lab:",
            "portolan bench lanes --lab demo",
        )],
    ),
    (
        "portolan-bench-fairness",
        &[(
            "On a line of 200 Mbit/s:",
            "portolan bench fairness --lab slow --link udp",
        )],
    ),
    (
        "portolan-bench-outage",
        &[(
            "Beside TCP:",
            "portolan bench outage --lab slow --link udp --vs tcp",
        )],
    ),
    (
        "portolan-bench-forged",
        &[(
            "A flood of 50,000 packets a second:",
            "portolan bench forged --lab demo --link udp --per-second 50000 --vs udp,tcp",
        )],
    ),
    (
        "portolan-bench-spray",
        &[(
            "Up to a million messages:",
            "portolan bench spray --messages 1000000",
        )],
    ),
    (
        "portolan-bench-logp",
        &[("Shared memory, then UDP:", "portolan bench logp")],
    ),
    (
        "portolan-bench-match",
        &[("The default numbers of entries:", "portolan bench match")],
    ),
    (
        "portolan-bench-netpipe",
        &[("Both MPIs:", "portolan bench netpipe")],
    ),
    (
        "portolan-bench-early-late",
        &[(
            "Through shared memory:",
            "portolan bench early-late --link shm",
        )],
    ),
    (
        "portolan-bench-overlap",
        &[(
            "Between the hosts of a lab, beside TCP:",
            "portolan bench overlap --lab slow --link udp --vs tcp",
        )],
    ),
    (
        "portolan-bench-rma",
        &[(
            "Small and large accesses:",
            "portolan bench rma --link shm --size 8,64K,1M",
        )],
    ),
    (
        "portolan-bench-threads",
        &[(
            "Through shared memory:",
            "portolan bench threads --link shm",
        )],
    ),
    (
        "portolan-bench-memory",
        &[(
            "Write the figures to a file:",
            "portolan bench memory --json memory.json",
        )],
    ),
    (
        "portolan-bench-death",
        &[("On two hosts of a lab:", "portolan bench death --lab demo")],
    ),
    (
        "portolan-doctor",
        &[
            (
                "See what this host can do, and what to change:",
                "portolan doctor",
            ),
            (
                "See which link two other hosts would be reached by, and why:",
                "portolan doctor --to node1,node2",
            ),
        ],
    ),
    (
        "portolan-tune",
        &[
            (
                "Measure shared memory on this host, and keep what was found:",
                "portolan tune",
            ),
            (
                "Measure between two hosts that ssh reaches, and keep nothing:",
                "portolan tune --hosts node1,node2 --dry-run",
            ),
        ],
    ),
    (
        "portolan-node",
        &[
            (
                "See what the settings allow, and what this host can do:",
                "sudo portolan node --check",
            ),
            (
                "Have systemd run the service from now on:",
                "sudo install -D -m 644 /usr/local/share/portolan/node.conf \
                 /etc/portolan/node.conf\n\
                 sudo systemd-sysusers\n\
                 sudo systemctl enable --now portolan-node",
            ),
        ],
    ),
    (
        "portolan-report",
        &[(
            "Measure something, and make a page of it:",
            "mkdir figures\n\
             portolan bench latency --link shm --json figures/latency.json\n\
             portolan report figures",
        )],
    ),
    (
        "portolan-top",
        &[
            (
                "Look at the only job that runs, until it ends:",
                "portolan top",
            ),
            (
                "List this user's jobs, and see what the ranks of one wait for:",
                "portolan top --list\n\
                 portolan top --dump 3f2a",
            ),
        ],
    ),
    (
        "portolan-job",
        &[(
            "Have a host leave a running job, which goes on:",
            "portolan job 3f2a exclude node2",
        )],
    ),
    (
        "portolan-job-exclude",
        &[(
            "Have a host leave a running job, which goes on:",
            "portolan job 3f2a exclude node2",
        )],
    ),
    (
        "portolan-man",
        &[(
            "Write all pages to a folder, and read one:",
            "portolan man pages\n\
             man -l pages/portolan-run.1",
        )],
    ),
    (
        "portolan-completions",
        &[(
            "Have bash complete Portolan's commands for this user:",
            "mkdir -p ~/.local/share/bash-completion/completions\n\
             portolan completions bash > ~/.local/share/bash-completion/completions/portolan",
        )],
    ),
];

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::CommandFactory;

    use super::*;
    use crate::command_line::read;

    /// The words that `portolan` is given, of a line that calls it.
    fn words(line: &str) -> Option<Vec<OsString>> {
        let line = line.strip_prefix("sudo ").unwrap_or(line);
        let line = line.split(" > ").next().unwrap_or_default();
        line.starts_with("portolan ")
            .then(|| line.split_whitespace().map(OsString::from).collect())
    }

    #[test]
    fn each_command_line_is_right() {
        for (page, examples) in EXAMPLES {
            for line in examples.iter().flat_map(|(_, lines)| lines.lines()) {
                let Some(words) = words(line) else { continue };
                let mut command = crate::Arguments::command();
                if let Err(answer) = read::<crate::Arguments>(&mut command, &words) {
                    panic!("{page}: {line}: {answer:?}");
                }
            }
        }
    }

    #[test]
    fn each_page_is_of_a_command_and_shows_it() {
        for (page, examples) in EXAMPLES {
            let pages = pages_of(&crate::Arguments::command(), "portolan");
            let (_, words) = pages.iter().find(|(name, _)| name == page).expect(page);
            // `job` names its job before the change.
            let shown = words.strip_suffix(" exclude").unwrap_or(words);
            let lines: String = examples.iter().map(|(_, lines)| *lines).collect();
            assert!(lines.contains(shown), "{page}: {lines}");
        }
    }

    #[test]
    fn each_command_has_examples() {
        for (page, _) in pages_of(&crate::Arguments::command(), "portolan") {
            assert!(!examples(&page).is_empty(), "{page}");
        }
    }

    /// The page of a command and those of all below it that are not hidden, with
    /// the words that call them.
    fn pages_of(command: &clap::Command, page: &str) -> Vec<(String, String)> {
        fn add(
            command: &clap::Command,
            page: String,
            words: String,
            to: &mut Vec<(String, String)>,
        ) {
            for below in command.get_subcommands().filter(|it| !it.is_hide_set()) {
                let name = below.get_name();
                add(
                    below,
                    format!("{page}-{name}"),
                    format!("{words} {name}"),
                    to,
                );
            }
            to.push((page, words));
        }
        let mut pages = Vec::new();
        add(command, page.to_owned(), page.to_owned(), &mut pages);
        pages
    }
}
