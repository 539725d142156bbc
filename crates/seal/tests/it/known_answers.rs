//! The suites against published test vectors.

use portolan_seal::{Aegis, AesGcm, ChaCha, Checksum, Nonce, Null, Seal, Secret, Tag};

fn hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap())
        .collect()
}

fn key(text: &str) -> Secret {
    let mut key = [0; 32];
    let bytes = hex(text);
    key[..bytes.len()].copy_from_slice(&bytes);
    Secret::new(key)
}

/// The nonce in hexadecimal digits: 12 bytes, or 16 with four zeros in between.
fn nonce(text: &str) -> Nonce {
    let b = hex(text);
    let (path, number) = (&b[..4], &b[b.len() - 8..]);
    assert_eq!(b[4..b.len() - 8], [0; 4][..b.len() - 12]);
    Nonce {
        path: u32::from_le_bytes(path.try_into().unwrap()),
        number: u64::from_le_bytes(number.try_into().unwrap()),
    }
}

/// Seals `plain` and opens the result; both must give what the vector says.
fn check(seal: &impl Seal, iv: &str, header: &str, plain: &[u8], sealed: &str, tag: &str) {
    let header = hex(header);
    let mut body = plain.to_vec();
    let got = seal.seal(0, nonce(iv), &header, &mut body);
    assert_eq!(body, hex(sealed));
    assert_eq!(got[..], hex(tag));
    let tag: Tag = hex(tag).try_into().unwrap();
    assert_eq!(seal.open(0, nonce(iv), &header, &mut body, &tag), Ok(()));
    assert_eq!(body, plain);
}

/// RFC 10032, appendix A.2: test vectors 1 to 5. Two more have as much
/// associated data as our packets, 12 and 52 bytes: `interop/peer.py` made
/// them, which has its AEGIS from the RFC alone and gives the five as well.
#[test]
fn aegis_128l() {
    let mut seal = Aegis::with_slots(1);
    seal.install(0, &key("10010000000000000000000000000000"));
    let iv = "10000200000000000000000000000000";
    let counted = |first: u8, bytes| (first..).take(bytes).collect::<Vec<u8>>();
    let check = |ad, plain: &[u8], sealed, tag| {
        let ad: String = counted(0, ad).iter().map(|b| format!("{b:02x}")).collect();
        check(&seal, iv, &ad, plain, sealed, tag);
    };
    check(
        0,
        &[0; 16],
        "c1c0e58bd913006feba00f4b3cc3594e",
        "abe0ece80c24868a226a35d16bdae37a",
    );
    check(0, &[], "", "c2b879a67def9d74e6c14f708bbcc9b4");
    check(
        8,
        &counted(0, 32),
        "79d94593d8c2119d7e8fd9b8fc77845c5c077a05b2528b6ac54b563aed8efe84",
        "cc6f3372f6aa1bb82388d695c3962d9a",
    );
    check(
        8,
        &counted(0, 14),
        "79d94593d8c2119d7e8fd9b8fc77",
        "5c04b3dba849b2701effbe32c7f0fab7",
    );
    check(
        42,
        &counted(0x10, 40),
        "b31052ad1cca4e291abcf2df3502e6bdb1bfd6db36798be3607b1f94d34478aa7ede7f7a990fec10",
        "7542a745733014f9474417b337399507",
    );
    check(
        12,
        &counted(0x10, 40),
        "69c95583c8d2018d6e9fc9a8ec67944c6c374a358262bb5af57b660addbeceb42380b9f6436b9076",
        "07914a4a7d79ee94d335fa5b066ae016",
    );
    check(
        52,
        &counted(0x10, 40),
        "b31052ad1cca4e291abcf2df3502e6bdb1bfd6db36798be3607b1f94d34478aa70562ea33ffebbb6",
        "7c4626e43612c3d310541a1cb6e11a27",
    );
}

/// Cases 1, 2 and 4 of the GCM submission to NIST (McGrew and Viega).
#[test]
fn aes_128_gcm() {
    let zero = "00000000000000000000000000000000";
    let zero_iv = "000000000000000000000000";
    let mut seal = AesGcm::with_slots(1);
    seal.install(0, &key(zero));
    check(
        &seal,
        zero_iv,
        "",
        &[],
        "",
        "58e2fccefa7e3061367f1d57a4e7455a",
    );
    check(
        &seal,
        zero_iv,
        "",
        &[0; 16],
        "0388dace60b6a392f328c2b971b2fe78",
        "ab6e47d42cec13bdf53a67b21257bddf",
    );
    seal.install(0, &key("feffe9928665731c6d6a8f9467308308"));
    check(
        &seal,
        "cafebabefacedbaddecaf888",
        "feedfacedeadbeeffeedfacedeadbeefabaddad2",
        &hex(
            "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72\
             1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
        ),
        "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e\
         21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091",
        "5bc94fbc3221a5db94fae95ae7121a47",
    );
}

/// RFC 8439, section 2.8.2.
#[test]
fn chacha20_poly1305() {
    let mut seal = ChaCha::with_slots(1);
    seal.install(
        0,
        &key("808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f"),
    );
    check(
        &seal,
        "070000004041424344454647",
        "50515253c0c1c2c3c4c5c6c7",
        b"Ladies and Gentlemen of the class of '99: If I could offer you only \
          one tip for the future, sunscreen would be it.",
        "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d6\
         3dbea45e8ca9671282fafb69da92728b1a71de0a9e060b2905d6a5b67ecd3b36\
         92ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc\
         3ff4def08e4b7a9de576d26586cec64b6116",
        "1ae10b594f09e26a7e902ecbd0600691",
    );
}

/// RFC 3720, appendix B.4: 32 bytes that count up from 0, here spread over
/// nonce, header and body (P3.5).
#[test]
fn crc_32c() {
    let nonce = Nonce {
        path: 0x0302_0100,
        number: 0x0b0a_0908_0706_0504,
    };
    for split in [12, 20, 24, 32] {
        let header: Vec<u8> = (12..split).collect();
        let mut body: Vec<u8> = (split..32).collect();
        let tag = Checksum.seal(0, nonce, &header, &mut body);
        assert_eq!(tag[..4], 0x46dd_794e_u32.to_le_bytes(), "split at {split}");
        assert_eq!(tag[4..], [0; 12]);
        assert_eq!(body, (split..32).collect::<Vec<u8>>(), "left in clear");
    }
}

/// Computed with another HMAC: HKDF-SHA256, no salt, 32 bytes (P3.1).
#[test]
fn hkdf() {
    let secret = core::array::from_fn(|i| i as u8);
    let derived = AesGcm::with_slots(0).derive(&secret, b"portolan test");
    assert_eq!(derived.as_bytes()[..], hex(HKDF_ANSWER));
    assert_eq!(
        ChaCha::with_slots(0).derive(&secret, b"portolan test"),
        derived
    );
    assert_eq!(Checksum.derive(&secret, b"portolan test"), derived);
    assert_ne!(Checksum.derive(&secret, b"portolan tess"), derived);
    assert_eq!(Null.derive(&secret, b"portolan test").as_bytes(), &secret);
}

const HKDF_ANSWER: &str = "d2042709b274d1c7438f8faa1fe96d5a285ed5c27de2027350ab937af51b8269";
