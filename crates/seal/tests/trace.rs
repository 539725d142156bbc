//! What work with keys leaves on the stack.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use portolan_seal::{
    AesGcm, AnySeal, NO_PAIR, Nonce, Own, Pair, Paired, Seal, Secret, SuiteId, Tag, derive,
    pair_secret, public_key,
};

/// The stack of this thread from its end to where `work` begins, after it.
fn below(work: impl FnOnce()) -> Vec<u8> {
    let here = 0_u8;
    let top = std::ptr::from_ref(&here).addr() as u64;
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let bounds = |line: &str| {
        let (start, rest) = line.split_once('-').unwrap();
        let (end, _) = rest.split_once(' ').unwrap();
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        (number(start), number(end))
    };
    let stack = maps.lines().map(bounds);
    let (start, _) = stack
        .into_iter()
        .find(|(s, e)| (*s..*e).contains(&top))
        .unwrap();
    let start = start.max(top - (64 << 10));
    let memory = File::open("/proc/self/mem").unwrap();
    let mut bytes = vec![0; (top - start) as usize];
    work();
    // One system call: what is shallow it writes over.
    memory.read_exact_at(&mut bytes, start).unwrap();
    bytes
}

/// Neither half of `secret` is left by `work`, which is done before, too, as
/// what is done only once may lie deeper.
#[track_caller]
fn leaves_nothing(secret: &[u8; 32], work: impl Fn()) {
    work();
    let bytes = below(&work);
    for half in [&secret[..16], &secret[16..]] {
        let at = bytes.windows(16).position(|part| part == half);
        let depth = at.map(|at| bytes.len() - at);
        assert_eq!(depth, None, "left so many bytes deep");
    }
}

/// A secret that only the heap holds.
fn secret(seed: u8) -> Box<[u8; 32]> {
    let mut secret = Box::new([0; 32]);
    for (n, byte) in (1..).zip(secret.iter_mut()) {
        *byte = seed.wrapping_mul(n) ^ n.wrapping_mul(29);
    }
    secret
}

#[test]
fn nothing_stays_on_the_stack() {
    let a = secret(77);
    leaves_nothing(&a, || drop(derive(&a[..], b"info")));
    let b = secret(113);
    let public = public_key(&secret(5));
    leaves_nothing(&b, || drop(pair_secret(&b, &public, Some(&a))));
    // A key that is expanded begins with its own bytes.
    let key = Box::new(derive(&a[..], b"key"));
    let bytes = Box::new(*key.as_bytes());
    let install = || AesGcm::with_slots(1).install(0, &key);
    leaves_nothing(&bytes, install);
    let seal: Paired<AesGcm, Vec<Own>, Vec<Pair>> =
        Paired::new(AesGcm::with_slots(1), Vec::new(), Vec::new());
    leaves_nothing(&a, || drop(seal.derive(&a, b"info")));
}

/// What a suite leaves on the stack under one key is what it leaves under another: so neither the key is there nor the cipher's state, from which it could be computed.
#[test]
fn packets_leave_nothing_of_their_key() {
    for id in SuiteId::ALL {
        for bytes in [0, 8, 45, 1_424] {
            for step in [Step::Seal, Step::Open, Step::Refuse] {
                let mut seal = elsewhere(|| AnySeal::with_slots(id, 1));
                let mut packet = Box::new((vec![0; bytes], [0; 16]));
                let [left, other] = [77, 113].map(|seed| {
                    elsewhere(|| seal.install(0, &Secret::new(*secret(seed))));
                    let mut once = || {
                        elsewhere(|| prepare(&seal, step, &mut packet));
                        below(|| one_packet(&seal, step, &mut packet))
                    };
                    // What is done only once may lie deeper.
                    once();
                    let mut left = once();
                    forget(&mut left, &packet.1);
                    left
                });
                // Addresses may differ too, but not in so many bytes of eight.
                let differs = |at: &usize| {
                    let both = left[*at..at + 8].iter().zip(&other[*at..]);
                    both.filter(|(a, b)| a != b).count() >= 7
                };
                let at = (0..left.len() - 7).rev().find(differs);
                let depth = at.map(|at| left.len() - at);
                assert_eq!(depth, None, "{id:?}, {bytes} bytes, {step:?}");
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Seal,
    Open,
    Refuse,
}

const NONCE: Nonce = Nonce { path: 1, number: 7 };
const HEADER: &[u8; 12] = b"what is read";

/// Content to be sealed, or a packet to be opened: one that was changed to be refused.
fn prepare(seal: &AnySeal, step: Step, (body, tag): &mut (Vec<u8>, Tag)) {
    body.fill(0x5a);
    if step != Step::Seal {
        *tag = seal.seal(0, NONCE, HEADER, body);
        tag[0] ^= u8::from(step == Step::Refuse);
    }
}

#[inline(never)]
fn one_packet(seal: &AnySeal, step: Step, (body, tag): &mut (Vec<u8>, Tag)) {
    if step == Step::Seal {
        *tag = seal.seal(0, NONCE, HEADER, body);
    } else {
        let opened = seal.open(0, NONCE, HEADER, body, tag);
        assert_eq!(opened.is_ok(), step == Step::Open);
    }
}

/// Wipes the tag, which is no secret, where one of its halves still lies.
fn forget(stack: &mut [u8], tag: &Tag) {
    for at in 0..stack.len() - 7 {
        if tag.chunks(8).any(|half| stack[at..at + 8] == *half) {
            stack[at..at + 8].fill(0);
        }
    }
}

/// What it makes, and what it leaves on the stack of another thread.
fn elsewhere<T: Send>(make: impl FnOnce() -> T + Send) -> Box<T> {
    std::thread::scope(|scope| scope.spawn(|| Box::new(make())).join().unwrap())
}

/// A seal of `own` that knows one peer, all of it on the heap.
fn paired(own: &[u8; 32], mix: &[u8; 32], peer: &[u8; 32]) -> Box<Introducing> {
    elsewhere(|| {
        let own = vec![Own::new(own, Some(mix))];
        let mut seal = Paired::new(AesGcm::with_slots(1), own, vec![NO_PAIR]);
        seal.meet(0, peer);
        seal
    })
}

type Introducing = Paired<AesGcm, Vec<Own>, Vec<Pair>>;

#[test]
fn introductions_leave_nothing_either() {
    let (own, mix) = (secret(41), secret(59));
    let peer = public_key(&secret(5));
    let derived = |label| elsewhere(|| *derive(&own[..], label).as_bytes());
    let (ephemeral, cookie) = (derived(b"ptl1ephe"), derived(b"ptl1cook"));
    let seal = std::cell::RefCell::new(paired(&own, &mix, &peer));
    let introduce = || {
        // Not what is remembered.
        seal.borrow_mut().meet(0, &peer);
        seal.borrow_mut().introduce(0).unwrap();
    };
    for secret in [&own, &mix, &ephemeral] {
        leaves_nothing(secret, introduce);
    }
    // Who is introduced to: nor does a key that is not sealed to it.
    let theirs = paired(&secret(5), &mix, &public_key(&own));
    let (theirs, sealed) = (theirs, seal.borrow_mut().introduce(0).unwrap());
    let other = paired(&own, &mix, &public_key(&own));
    let open = || {
        assert_eq!(theirs.introduced(&sealed), Some(public_key(&own)));
        assert_eq!(other.introduced(&sealed), None);
    };
    for secret in [&secret(5), &mix] {
        leaves_nothing(secret, open);
    }
    // The secret of the pair.
    let pair = elsewhere(|| *pair_secret(&own, &peer, Some(&mix)).unwrap().as_bytes());
    let derive = || {
        seal.borrow_mut().meet(0, &peer);
        drop(seal.borrow_mut().derive_with(0, &mix, b"info"));
    };
    for secret in [&pair, &own] {
        leaves_nothing(secret, derive);
    }
    // What fingerprints are made with.
    leaves_nothing(&cookie, || _ = seal.borrow().fingerprint(&[b"word"]));
}
