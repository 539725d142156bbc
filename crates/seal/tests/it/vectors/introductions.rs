//! The introductions and the challenge of `docs/protocol-vectors.txt`: from the endpoint with
//! the vectors' key pair a to the one with b.

use portolan_seal::{
    AnySeal, INTRODUCED_BYTES, NO_PAIR, Own, Pair, Paired, Seal, Secret, SuiteId, TAG_BYTES, Tag,
    derive, identity, mix_of, public_key,
};
use portolan_wire::{
    CHALLENGE_BYTES, CONNECT_CLEAR_BYTES, Challenge, Connect, ConnectIds, EndpointId,
    INTRODUCTION_BYTES, IntroductionParts, Life,
};

use super::packets::{Content, connect, info_of};

/// Of pair-private-b.
const PRIVATE_B: [u8; 32] = {
    let mut bytes = [0; 32];
    let mut at = 0;
    while at < bytes.len() {
        bytes[at] = 0x80 + at as u8;
        at += 1;
    }
    bytes
};
/// The content of pair-file.
const FILE: &[u8] = b"the same for all ranks of the job, random";

pub struct Introduction {
    pub name: &'static str,
    pub what: &'static str,
    pub suite: SuiteId,
    pub echo: u64,
    pub file: bool,
}

/// What one is made of, in the order in which it stands in the file.
pub struct Made {
    /// Empty without security.
    pub secrets: Vec<(&'static str, Vec<u8>)>,
    pub packet: Vec<u8>,
    pub mark: Tag,
    pub offer: Connect,
}

type Sealing = Paired<AnySeal, Vec<Own>, Vec<Pair>>;

impl Introduction {
    /// The seal of one of the two, to whom the other is peer 0.
    pub fn seal_of(&self, own: &[u8; 32], other: &[u8; 32]) -> Sealing {
        let mix = self.file.then(|| mix_of(FILE));
        let own = vec![Own::new(own, mix.as_ref().map(Secret::as_bytes))];
        let mut seal = Paired::new(AnySeal::with_slots(self.suite, 1), own, vec![NO_PAIR]);
        seal.meet(0, &public_key(other));
        seal
    }

    pub fn of_b(&self) -> Sealing {
        self.seal_of(&PRIVATE_B, &super::packets::secret())
    }

    pub fn made(&self) -> Made {
        let private = super::packets::secret();
        let mut seal = self.seal_of(&private, &PRIVATE_B);
        let [from, to] = [private, PRIVATE_B].map(|key| identity(&public_key(&key)));
        let Content::Connect(ids, offer) = connect(self.echo, false) else {
            unreachable!("an offer");
        };
        let ids = ConnectIds {
            from: EndpointId(from.0),
            from_life: Life(from.1),
            to: EndpointId(to.0),
            to_life: Life(to.1),
            ..ids
        };
        let ends = [from.0, from.1, to.0, to.1];
        let info = info_of(b"ptl1conn", self.suite, ends.to_vec());
        let key = seal.derive_with(0, &[0; 32], &info);
        seal.install(0, &key);
        let content = Content::Connect(ids, offer);
        let packet = super::packets::Packet {
            name: "",
            what: "",
            suite: self.suite,
            content,
        };
        let (clear, mut bytes) = packet.plain();
        assert_eq!(clear, CONNECT_CLEAR_BYTES);
        let (header, body) = bytes.split_at_mut(clear);
        let tag = seal.seal(0, packet.nonce(), header, body);
        bytes.extend(tag);
        let connect = bytes.clone();
        bytes.resize(INTRODUCTION_BYTES, 0);
        let sealed = seal.introduce(0).expect("both have keys");
        let (marked, into) =
            IntroductionParts::write(&mut bytes, offer.connection, offer.echo, &sealed);
        let mark = seal.mark(0, marked).expect("b is known");
        into.copy_from_slice(&mark);
        let mut secrets = vec![("sealed-key", sealed.to_vec()), ("connect", connect)];
        if self.suite != SuiteId::None {
            // How it comes by its ephemeral key is this implementation's own affair.
            let ephemeral = derive(&private, b"ptl1ephe");
            assert_eq!(sealed[..32], public_key(ephemeral.as_bytes()));
            let ephemeral = ("ephemeral-private", ephemeral.as_bytes().to_vec());
            let keys = [
                ("connect-info", info),
                ("connect-key", key.as_bytes().to_vec()),
            ];
            secrets = [vec![ephemeral], keys.into(), secrets].concat();
        }
        assert_eq!(sealed.len(), INTRODUCED_BYTES);
        Made {
            secrets,
            packet: bytes,
            mark,
            offer,
        }
    }

    /// The answer to it.
    pub fn challenge(&self) -> [u8; CHALLENGE_BYTES] {
        let Made { mark, offer, .. } = self.made();
        let mut bytes = [0; CHALLENGE_BYTES];
        Challenge {
            connection: offer.connection,
            mark,
            nonce: super::packets::NONCES[1],
        }
        .write(&mut bytes);
        bytes
    }
}

pub fn all() -> [Introduction; 3] {
    let nonce = super::packets::NONCES[1];
    [
        Introduction {
            name: "introduction",
            what: "the first one; all have pair-file",
            suite: SuiteId::AesGcm,
            echo: 0,
            file: true,
        },
        Introduction {
            name: "introduction-chacha",
            what: "with the echo of a challenge; there is no file",
            suite: SuiteId::ChaCha,
            echo: nonce,
            file: false,
        },
        Introduction {
            name: "introduction-none",
            what: "the same without security",
            suite: SuiteId::None,
            echo: nonce,
            file: false,
        },
    ]
}

/// Checks that b takes one apart as it was made.
pub fn opens(it: &Introduction) {
    let (mut b, made) = (it.of_b(), it.made());
    let mut bytes = made.packet.clone();
    let (marked, mark) = IntroductionParts::marked(&bytes).expect("its length");
    assert!(b.has_own_mark(marked, mark));
    assert_eq!(*mark, made.mark);
    let parts = IntroductionParts::parse(&mut bytes).expect("an introduction");
    assert_eq!(
        (parts.connection, parts.echo),
        (made.offer.connection, it.echo)
    );
    let key = b.introduced(parts.key).expect("sealed to b");
    let ids = ConnectIds::parse(parts.connect).expect("a connect packet");
    assert_eq!(identity(&key), (ids.from.0, ids.from_life.0));
    let ends = [ids.from.0, ids.from_life.0, ids.to.0, ids.to_life.0];
    let key = b.derive_with(0, &[0; 32], &info_of(b"ptl1conn", it.suite, ends.to_vec()));
    b.install(0, &key);
    let (clear, rest) = parts.connect.split_at_mut(CONNECT_CLEAR_BYTES);
    let (body, tag) = rest.split_at_mut(rest.len() - TAG_BYTES);
    let tag = (&*tag).try_into().expect("a tag");
    let nonce = portolan_seal::Nonce {
        path: 0,
        number: ids.number.0,
    };
    assert_eq!(b.open(0, nonce, clear, body, &tag), Ok(()));
    assert_eq!(Connect::parse(body), Ok(made.offer));
    let challenge = Challenge::parse(&it.challenge()).expect("a challenge");
    assert_eq!(challenge.mark, made.mark);
}
