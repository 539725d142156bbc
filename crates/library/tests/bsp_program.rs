//! BSPlib's interface in Rust, in jobs of several processes. This program starts itself as
//! their processes, with a word for what they do; without one it is the test.

#[allow(dead_code, reason = "the tests of C use more of it")]
#[path = "it/programs/mod.rs"]
mod programs;

use std::fs::{self, File};
use std::path::Path;

use bsp::Bsp;
use portolan_boot::LinkChoice;
use programs::run;

/// Each puts its number to all, and gets that of all.
fn puts_and_gets(bsp: &mut Bsp) {
    let (p, me) = (bsp.nprocs(), bsp.pid());
    let all = bsp.push_reg::<u32>(p as usize);
    let own = bsp.push_reg::<u32>(1 + me as usize);
    let got = bsp.push_reg::<u32>(p as usize + 1);
    assert_eq!(bsp[all], vec![0; p as usize]);
    bsp[own][0] = me;
    bsp.sync();
    for i in 0..p {
        bsp.put(i, &bsp[own][..1], all, me as usize);
        bsp.get(i, own, 0..1, got, i as usize + 1);
        bsp.put(i, &[], all, 1000);
    }
    // A put has copied; a get reads when the superstep ends.
    bsp[own][0] += 100;
    bsp.sync();
    let numbers: Vec<u32> = (0..p).collect();
    assert_eq!(bsp[all], numbers);
    assert!(bsp[got][1..].iter().zip(0..).all(|(&it, i)| it == i + 100));
    assert_eq!(bsp[got][0], 0);
    for area in [all, own, got] {
        bsp.pop_reg(area);
    }
    // It is there until the superstep ends.
    assert_eq!(bsp[all], numbers);
    bsp.sync();
}

/// Items of several bytes, without copying, and areas in some processes only.
fn long_puts(bsp: &mut Bsp) {
    const ITEMS: usize = 40_000;
    let (p, me) = (bsp.nprocs(), bsp.pid());
    let next = (me + 1) % p;
    let area = bsp.push_reg::<[f64; 3]>(ITEMS + 1);
    let some = bsp.push_reg::<u8>(if me == 0 { p as usize } else { 0 });
    bsp.sync();
    for round in 0..3_u32 {
        let item = |i: usize| [f64::from(me), f64::from(round), i as f64];
        bsp.hpput(next, (0..ITEMS).map(item).collect(), area, 1);
        bsp.put(0, &[7], some, me as usize);
        bsp.sync();
        let before = f64::from((me + p - 1) % p);
        assert_eq!(bsp[area][0], [0.0; 3]);
        for (i, it) in bsp[area][1..].iter().enumerate() {
            assert_eq!(*it, [before, f64::from(round), i as f64]);
        }
        assert!(bsp[some].iter().all(|&it| it == 7));
    }
    bsp.pop_reg(area);
    bsp.pop_reg(some);
    bsp.sync();
}

fn messages(bsp: &mut Bsp) {
    let (p, me) = (bsp.nprocs(), bsp.pid());
    assert_eq!(bsp.qsize(), (0, 0));
    assert!(bsp.hpmove::<(), u8>().is_none());
    assert_eq!(bsp.set_tagsize(size_of::<[u16; 2]>()), 0);
    // This one has no tag yet.
    bsp.send(me, &(), b"none");
    bsp.sync();
    assert_eq!(bsp.get_tag::<()>(), Some(((), 4)));
    for i in 0..p {
        bsp.send(i, &[me as u16, i as u16], &vec![u64::from(me); me as usize]);
    }
    bsp.sync();
    // What was not taken is gone.
    let bytes = u64::from(p * (p - 1) / 2) * 8;
    assert_eq!(bsp.qsize(), (u64::from(p), bytes));
    let mut seen = Vec::new();
    while let Some((tag, bytes)) = bsp.get_tag::<[u16; 2]>() {
        let (again, items) = bsp.hpmove::<[u16; 2], u64>().unwrap();
        assert_eq!((again, items.len() * 8), (tag, bytes));
        assert_eq!(tag[1], me as u16);
        assert!(items.iter().all(|&it| it == u64::from(tag[0])));
        seen.push((tag[0], items));
    }
    seen.sort_unstable();
    // All payloads stay until the superstep ends.
    for (from, (tag, items)) in seen.into_iter().enumerate() {
        assert_eq!((usize::from(tag), items.len()), (from, from));
    }
    assert_eq!(bsp.set_tagsize(0), size_of::<[u16; 2]>());
    bsp.sync();
    assert_eq!(bsp.qsize(), (0, 0));
    bsp.sync();
}

fn all(bsp: &mut Bsp) -> f64 {
    let began = bsp.time();
    for _ in 0..3 {
        puts_and_gets(bsp);
        long_puts(bsp);
        messages(bsp);
    }
    bsp.time() - began
}

fn misuse(bsp: &mut Bsp, how: &str) {
    let area = bsp.push_reg::<u32>(4);
    match how {
        "early" => bsp.put(0, &[1], area, 0),
        "huge" => drop(bsp.push_reg::<[u64; 8]>(usize::MAX / 8)),
        "pop-twice" => {
            bsp.pop_reg(area);
            bsp.pop_reg(area);
        }
        _ => {}
    }
    bsp.sync();
    match how {
        "popped" => {
            bsp.pop_reg(area);
            bsp.sync();
            assert_eq!(bsp[area].len(), 4);
        }
        "nobody" => bsp.put(3, &[1], area, 0),
        "beyond" => bsp.put(2, &[1, 2], area, 3),
        "far" => bsp.put(2, &[1], area, usize::MAX),
        "no-room" => bsp.get(2, area, 0..2, area, 3),
        "tag" => bsp.send(0, &1_u8, b""),
        "tag-of-none" | "payload" => {
            bsp.send(bsp.pid(), &(), b"abc");
            bsp.sync();
            if how == "payload" {
                bsp.hpmove::<(), u16>();
            }
            bsp.get_tag::<u8>();
        }
        "abort" => bsp.abort("that was all\n"),
        "again" => bsp::run(1, |_| ()),
        "panic" => panic!("that was a panic"),
        _ => {}
    }
    bsp.sync();
}

/// What is refused, the exit code, and a part of what is said of it.
const MISUSES: [(&str, i32, &str); 14] = [
    (
        "early",
        1,
        "bsp_put: the area is registered from the next bsp_sync on",
    ),
    (
        "huge",
        1,
        "bsp_push_reg: there is no memory for 2305843009213693951 items of 64 bytes",
    ),
    (
        "pop-twice",
        1,
        "bsp_pop_reg: the area was popped in this superstep",
    ),
    ("popped", 1, "bsp[area]: the area was popped"),
    ("nobody", 1, "bsp_put: there is no process 3, of 3"),
    (
        "beyond",
        1,
        "puts 8 bytes at offset 12 of an area of process 2: its area has 16 bytes",
    ),
    (
        "far",
        1,
        "puts 4 bytes at offset 18446744073709551615 of an area of process 2",
    ),
    ("no-room", 1, "bsp_get: 2 items do not fit at 3 in 4"),
    ("tag", 1, "bsp_send: the tag has 1 bytes, not 0"),
    ("tag-of-none", 1, "bsp_get_tag: the tag has 0 bytes, not 1"),
    (
        "payload",
        1,
        "bsp_hpmove: the payload has 3 bytes, not a multiple of 2",
    ),
    ("abort", 1, "of 3, bsp_abort: that was all\n"),
    ("again", 1, "bsp_begin: it is called once"),
    ("nothing", 0, ""),
];

/// The exit code of three processes, and what they say.
fn refused(program: &Path, how: &str) -> (i32, String) {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bsp-program-{how}"));
    let file = File::create(&path).unwrap();
    let (code, told) = run(program, how, 3, LinkChoice::Auto, Some(&file));
    let said = fs::read_to_string(&path).unwrap();
    (code, format!("{said}\n{told}"))
}

fn test() {
    let itself = std::env::current_exe().unwrap();
    for link in [LinkChoice::Auto, LinkChoice::Udp] {
        for ranks in [1, 2, 3, 5] {
            let (code, told) = run(&itself, "all", ranks, link, None);
            assert_eq!(code, 0, "{ranks} processes over {link:?}: {told}");
        }
    }
    let (code, told) = run(&itself, "fewer", 3, LinkChoice::Auto, None);
    assert_eq!(code, 0, "{told}");
    for (how, expected, text) in MISUSES {
        let (code, said) = refused(&itself, how);
        assert_eq!(code, expected, "{how}: {said}");
        assert!(said.contains(text), "{how}: {said}");
    }
    // A panic ends all, with a code of its own or that of who was left alone.
    let (code, said) = refused(&itself, "panic");
    assert!(
        code != 0 && said.contains("that was a panic"),
        "{code}: {said}"
    );

    let sum = itself.parent().unwrap().with_file_name("examples");
    let sum = sum.join("bsp-sum");
    assert!(
        sum.exists(),
        "{} is missing: cargo build -p portolan-bsp --examples",
        sum.display()
    );
    for (count, ranks, expected) in [("1000", 1, 0), ("1000", 3, 0), ("1", 4, 0), ("x", 2, 2)] {
        let (code, told) = run(&sum, count, ranks, LinkChoice::Auto, None);
        assert_eq!(code, expected, "bsp-sum {count}: {ranks} processes: {told}");
    }
    println!("BSPlib in Rust: ok");
}

fn main() {
    // A test runner's own words are options.
    let how = std::env::args().nth(1).filter(|it| !it.starts_with('-'));
    match how.as_deref() {
        None => test(),
        Some("all") => assert!(bsp::run(bsp::nprocs(), all) >= 0.0),
        Some("fewer") => assert_eq!(bsp::run(2, |bsp| bsp.nprocs()), 2),
        Some(how) => bsp::run(u32::MAX, |bsp| misuse(bsp, how)),
    }
}
