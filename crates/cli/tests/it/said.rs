//! What the launcher and ranks say of what went strangely, and what ranks are
//! told in their environment.

use std::fs;
use std::process::{Command, Stdio};

use crate::common::{
    Rounds, Said, finish, job_id, need_root, own_name, portolan, probe, read_until, say, start,
    until,
};

/// Standard output and error in the order in which they were written.
fn merged(words: &[&str]) -> String {
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = portolan(words);
    command.stdout(writer.try_clone().unwrap()).stderr(writer);
    let mut child = command.spawn().unwrap();
    // Its ends of the pipe go with it.
    drop(command);
    let text = std::io::read_to_string(reader).unwrap();
    child.wait().unwrap();
    text
}

#[test]
fn a_ranks_last_words_come_before_the_news_of_its_end() {
    for stream in ["", ">&2"] {
        let script = format!("echo last words {stream}; exit 3");
        for _ in 0..20 {
            let text = merged(&["run", "-n", "1", "--", "sh", "-c", &script]);
            let words = text.find("[0] last words").unwrap();
            let end = text.find("portolan: rank 0 (process ").unwrap();
            assert!(words < end, "{text}");
        }
    }
}

#[test]
fn a_rank_that_leaves_without_a_word_is_told_of() {
    let said = say(&["run", "-n", "1", "--", &probe(), "die", "0", "0"]).expect(0);
    said.complains(&["rank 0 (", "ended without leaving the job: exit code 0"]);
    let said = say(&["run", "-n", "1", "--", &probe(), "table"]).expect(0);
    assert_eq!(said.err, "");
}

/// They end well themselves, but not as a job: each took the other for dead.
#[test]
fn ranks_whose_common_memory_makes_no_sense_have_failed() {
    let job = |on_death| {
        let words = ["run", "-n", "2", "--on-death", on_death];
        say(&[&words[..], &["--", &probe(), "spoilt"]].concat()).expect(1)
    };
    job("end").complains(&["the memory that ranks ", " share makes no sense"]);
    job("notify");
}

#[test]
fn messages_to_a_port_that_was_never_bound_are_told_of() {
    let rounds = Rounds::new("unbound");
    let program = rounds.program.replace("round", "unbound");
    let words = ["run", "-v", "-n", "3", "--", &program, &rounds.file];
    let mut job = start("unbound", &words);
    let id = job_id(&mut job);
    read_until(&mut job, "all is sent", 3);
    let seen = || say(&["top", "--dump", &id]).expect(0).out;
    let all = |text: &str| {
        let line = |rank| format!("from rank {rank}: 1 message to port 7, which is not bound");
        (0..3).all(|rank| text.contains(&line(rank))) && !text.contains("port 8")
    };
    until(seen, || all(&seen()));
    fs::write(&rounds.file, "").unwrap();
    let said = finish(job).expect(0);
    for rank in 0..3 {
        let line = format!(
            "[2] portolan: rank 2: 1 message from rank {rank} to port 7 was never taken, since \
             it was never bound: bind ports before others send to them\n"
        );
        assert!(said.err.contains(&line), "{said:#?}");
    }
    assert!(!said.err.contains("port 8"), "{said:#?}");
}

#[test]
fn ranks_have_their_numbers_and_this_machine_its_name() {
    let script = "echo $PORTOLAN_RANK of $PORTOLAN_SIZE, here $PORTOLAN_LOCAL_RANK";
    let said = say(&["run", "-v", "-n", "2", "--", "sh", "-c", script]).expect(0);
    assert_eq!(said.lines(), ["[0] 0 of 2, here 0", "[1] 1 of 2, here 1"]);
    let name = own_name();
    let said = said.complains(&[
        &format!(" on host {name}, "),
        "2 of 2 ranks on 1 host ended",
    ]);
    assert!(!said.err.contains("host 0"), "{said:#?}");
}

#[test]
fn variables_that_say_nothing_are_told_of_once() {
    let with = |pairs: &[(&str, &str)]| {
        let mut command = portolan(&["run", "-n", "2", "--", &probe(), "table"]);
        Said::from(command.envs(pairs.iter().copied()).output().unwrap()).expect(0)
    };
    let said = with(&[
        ("PORTOLAN_SECURTY", "none"),
        ("PORTOLAN_LOG", "inof"),
        ("PORTOLAN_FRAMES", "64"),
    ]);
    let mut lines: Vec<&str> = said.err.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "portolan: \"PORTOLAN_SECURTY\" says nothing to Portolan: PORTOLAN_SECURITY does, or \
             unset it",
            "portolan: PORTOLAN_LOG: \"inof\" is no level: info is",
        ]
    );
    assert_eq!(with(&[("PORTOLAN_RANK", "7")]).err, "");
    // Those for the ranks alone as well.
    let given = ["run", "-n", "2", "-x", "PORTOLAN_FRAMSE=64", "--"];
    let said = say(&[&given[..], &[&probe(), "table"]].concat()).expect(0);
    assert_eq!(said.err.lines().count(), 1, "{said:#?}");
    said.complains(&["\"PORTOLAN_FRAMSE\" says nothing", "PORTOLAN_FRAMES does"]);
}

#[test]
fn others_processes_without_pmi_are_no_jobs_of_one() {
    let rounds = Rounds::new("without-pmi");
    for (variable, launcher) in [
        ("OMPI_COMM_WORLD_SIZE", "Open MPI's mpirun"),
        ("SLURM_STEP_NUM_TASKS", "srun without --mpi=pmix or pmi2"),
    ] {
        let program = rounds.program.replace("round", "together");
        let alone = |size: &str| {
            let mut command = Command::new(&program);
            Said::from(command.arg("0").env(variable, size).output().unwrap())
        };
        alone("1").expect(0);
        alone("2").expect(1).complains(&[
            launcher,
            "2 processes",
            "portolan run",
            "mpiexec.hydra",
            variable,
        ]);
        // Ranks of ours know better.
        let mut job = portolan(&["run", "-n", "2", "--", &program, "0"]);
        Said::from(job.env(variable, "2").output().unwrap()).expect(0);
    }
}

/// Needs root, to have a file system of its own.
#[test]
fn without_dev_it_says_what_is_missing() {
    need_root();
    let script = "mount -t tmpfs none /dev && exec \"$0\" run -n 1 -- true";
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_portolan")])
        .stdin(Stdio::piped())
        .output();
    Said::from(output.unwrap())
        .expect(1)
        .complains(&["there is no /dev/null", "mount /dev"]);
}
