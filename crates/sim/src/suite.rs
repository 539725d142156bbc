//! The seal of a simulated endpoint, chosen per run, with an eye on nonces.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use portolan_seal::{AnySeal, BadTag, Nonce, Null, Seal, Secret, SuiteId, Tag};

/// How packets are sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// Not at all: nothing may be corrupted or forged then.
    Null,
    /// CRC-32C.
    Checksum,
    /// AEGIS-128L.
    Aegis,
    /// AES-128-GCM.
    Aes,
    /// ChaCha20-Poly1305.
    ChaCha,
}

/// Everything that was ever sealed in a run: no key may meet a nonce twice,
/// whichever endpoint, life or path it was, nor seal more than its limit.
#[derive(Clone, Debug, Default)]
pub struct NonceBook(Rc<RefCell<Book>>);

#[derive(Debug, Default)]
struct Book {
    used: HashSet<([u8; 32], u32, u64)>,
    counts: HashMap<[u8; 32], u64>,
}

impl NonceBook {
    fn note(&self, key: [u8; 32], nonce: Nonce, limit: u64) {
        let mut book = self.0.borrow_mut();
        assert!(
            book.used.insert((key, nonce.path, nonce.number)),
            "a key met nonce {nonce:?} twice"
        );
        let count = book.counts.entry(key).or_insert(0);
        *count += 1;
        assert!(*count <= limit, "a key sealed more than {limit} packets");
    }
}

enum Inner {
    Null(Null),
    Real(AnySeal),
}

/// A suite with its keys.
pub struct SimSeal {
    inner: Inner,
    keys: Vec<Option<[u8; 32]>>,
    book: Option<NonceBook>,
    limit: u64,
}

impl SimSeal {
    /// A suite with room for so many keys, each of which may seal `limit`
    /// packets.
    #[must_use]
    pub fn new(suite: Suite, slots: usize, limit: u64, book: &NonceBook) -> Self {
        let (inner, secure) = match suite {
            Suite::Null => (Inner::Null(Null), false),
            Suite::Checksum => (Inner::Real(AnySeal::with_slots(SuiteId::None, 0)), false),
            Suite::Aegis => (Inner::Real(AnySeal::with_slots(SuiteId::Aegis, 0)), true),
            Suite::Aes => (Inner::Real(AnySeal::with_slots(SuiteId::AesGcm, 0)), true),
            Suite::ChaCha => (Inner::Real(AnySeal::with_slots(SuiteId::ChaCha, 0)), true),
        };
        let mut seal = Self {
            inner,
            keys: Vec::new(),
            book: secure.then(|| book.clone()),
            limit,
        };
        seal.grow(slots);
        seal
    }

    /// Makes room for `slots` keys in all.
    pub fn grow(&mut self, slots: usize) {
        self.keys.resize(slots, None);
        if let Inner::Real(it) = &mut self.inner {
            it.grow(slots);
        }
    }
}

macro_rules! each {
    ($any:expr, $seal:ident => $do:expr) => {
        match $any {
            Inner::Null($seal) => $do,
            Inner::Real($seal) => $do,
        }
    };
}

impl Seal for SimSeal {
    fn name(&self) -> &'static str {
        each!(&self.inner, s => s.name())
    }

    fn packets_max(&self) -> u64 {
        each!(&self.inner, s => s.packets_max())
    }

    fn derive(&self, secret: &[u8; 32], info: &[u8]) -> Secret {
        each!(&self.inner, s => s.derive(secret, info))
    }

    fn install(&mut self, slot: usize, key: &Secret) {
        self.keys[slot] = Some(*key.as_bytes());
        each!(&mut self.inner, s => s.install(slot, key));
    }

    fn remove(&mut self, slot: usize) {
        self.keys[slot] = None;
        each!(&mut self.inner, s => s.remove(slot));
    }

    fn seal(&self, slot: usize, nonce: Nonce, header: &[u8], body: &mut [u8]) -> Tag {
        if let Some(book) = &self.book {
            let key = self.keys[slot].expect("sealed with an empty slot");
            book.note(key, nonce, self.limit);
        }
        each!(&self.inner, s => s.seal(slot, nonce, header, body))
    }

    fn open(
        &self,
        slot: usize,
        nonce: Nonce,
        header: &[u8],
        body: &mut [u8],
        tag: &Tag,
    ) -> Result<(), BadTag> {
        each!(&self.inner, s => s.open(slot, nonce, header, body, tag))
    }
}

/// Opens what another seal opens, and seals without keys, so that no nonce meets a key twice: for
/// packets that are taken over copied tables.
pub struct Opener<'a>(pub &'a SimSeal);

impl Seal for Opener<'_> {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn packets_max(&self) -> u64 {
        self.0.packets_max()
    }

    fn derive(&self, secret: &[u8; 32], info: &[u8]) -> Secret {
        self.0.derive(secret, info)
    }

    fn install(&mut self, _slot: usize, _key: &Secret) {}

    fn remove(&mut self, _slot: usize) {}

    fn seal(&self, slot: usize, nonce: Nonce, header: &[u8], body: &mut [u8]) -> Tag {
        Null.seal(slot, nonce, header, body)
    }

    fn open(
        &self,
        slot: usize,
        nonce: Nonce,
        header: &[u8],
        body: &mut [u8],
        tag: &Tag,
    ) -> Result<(), BadTag> {
        self.0.open(slot, nonce, header, body, tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seal_once(seal: &SimSeal, number: u64) {
        let _ = seal.seal(0, Nonce { path: 0, number }, b"h", &mut [0; 4]);
    }

    #[test]
    #[should_panic(expected = "twice")]
    fn a_nonce_used_twice_is_seen_across_endpoints() {
        let book = NonceBook::default();
        for _ in 0..2 {
            let mut seal = SimSeal::new(Suite::Aes, 1, 10, &book);
            seal.install(0, &Secret::new([1; 32]));
            seal_once(&seal, 5);
        }
    }

    #[test]
    #[should_panic(expected = "more than 2")]
    fn a_worn_out_key_is_seen() {
        let book = NonceBook::default();
        let mut seal = SimSeal::new(Suite::ChaCha, 1, 2, &book);
        seal.install(0, &Secret::new([1; 32]));
        for number in 0..3 {
            seal_once(&seal, number);
        }
    }
}
