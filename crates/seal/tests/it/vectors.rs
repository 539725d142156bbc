//! `docs/protocol-vectors.txt` against what this code computes: packets of
//! each suite, from the job secret to the last byte of the tag.
//!
//! `UPDATE_VECTORS=1 cargo test -p portolan-seal --test it vectors` writes the
//! file anew, so that a review sees what a change does.

mod introductions;
mod packets;

use introductions::Introduction;
use packets::{Content, Packet, address, all, inputs, offer_text, secret};
use portolan_seal::{AnySeal, Seal, TAG_BYTES};
use portolan_wire::{
    Ack, CONNECT_CLEAR_BYTES, Chunks, Connect, ConnectIds, HEADER_BYTES, Header, KeyAddress,
};
use std::fmt::Write;
use std::fs;
use std::net::Ipv6Addr;

const FILE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/protocol-vectors.txt"
);
/// Between these lines stands what this test computes.
const BEGIN: &str = "# Packets\n";
const END: &str = "# Keys of a pair\n";
const INTRODUCTIONS: &str = "
# Introductions (section 4.3), from the endpoint with the key pair a of \"Keys
# of a pair\" to that with b. The connect packet is sealed under the secret of
# that pair. The connection number is that of the offer, and so is the echo.
# The challenge is what b answers; its nonce is b-nonce.
";

fn hex_lines(out: &mut String, name: &str, bytes: &[u8]) {
    writeln!(out, "{name}").unwrap();
    for line in bytes.chunks(32) {
        out.push_str("  ");
        for byte in line {
            write!(out, "{byte:02x}").unwrap();
        }
        out.push('\n');
    }
}

fn described(packet: &Packet, out: &mut String) {
    let Packet { name, what, .. } = packet;
    writeln!(out, "\n# {name}: {what}").unwrap();
    for (input, value) in packet.inputs() {
        writeln!(out, "{name}-{input} = {value}").unwrap();
    }
    let sealed = packet.sealed();
    let (clear, plain) = packet.plain();
    if let Some((info, key)) = &sealed.key {
        hex_lines(out, &format!("{name}-info"), info);
        hex_lines(out, &format!("{name}-key"), key.as_bytes());
    }
    hex_lines(out, &format!("{name}-nonce"), &packet.nonce_bytes());
    hex_lines(out, &format!("{name}-associated-data"), &plain[..clear]);
    hex_lines(out, &format!("{name}-plain"), &plain[clear..]);
    hex_lines(out, &format!("{name}-packet"), &sealed.bytes);
}

fn introduced(it: &Introduction, out: &mut String) {
    let Introduction { name, what, .. } = it;
    let made = it.made();
    writeln!(out, "\n# {name}: {what}").unwrap();
    writeln!(out, "{name}-introduces = {}", it.suite.name()).unwrap();
    writeln!(out, "{name}-file = {}", u8::from(it.file)).unwrap();
    writeln!(out, "{name}-packet-number = 5").unwrap();
    writeln!(out, "{name}-offer = {}", offer_text(&made.offer)).unwrap();
    for (part, bytes) in &made.secrets {
        hex_lines(out, &format!("{name}-{part}"), bytes);
    }
    hex_lines(out, &format!("{name}-mark"), &made.mark);
    hex_lines(out, &format!("{name}-packet"), &made.packet);
    // What it is answered with, where that has its nonce.
    hex_lines(out, &format!("{name}-challenge"), &it.challenge());
}

/// Checks P2.1, P2.11, P2.19, P2.26, P3.3, P3.5, P3.9, P4.16.
#[test]
fn the_checked_in_vectors_are_what_is_computed() {
    let mut computed = String::from("\n");
    hex_lines(&mut computed, "job-secret", &secret());
    for (name, value) in inputs() {
        writeln!(computed, "{name} = {value}").unwrap();
    }
    for packet in all() {
        described(&packet, &mut computed);
    }
    computed.push_str(INTRODUCTIONS);
    for it in introductions::all() {
        introduced(&it, &mut computed);
    }
    computed.push_str("\n# address: of an endpoint with the public key pair-public-a\n");
    let KeyAddress { port, ip, host, .. } = address();
    let ip = Ipv6Addr::from(ip).to_canonical();
    let inputs = format!("address-port = {port}\naddress-ip = {ip}\naddress-host = {host:#x}\n");
    computed.push_str(&inputs);
    hex_lines(&mut computed, "address", &address().to_bytes());
    computed.push('\n');
    let file = fs::read_to_string(FILE).unwrap();
    let (head, rest) = file.split_once(BEGIN).unwrap();
    let (checked_in, tail) = rest.split_once(END).unwrap();
    if std::env::var_os("UPDATE_VECTORS").is_some() {
        fs::write(FILE, [head, BEGIN, &computed, END, tail].concat()).unwrap();
        return;
    }
    let differs = checked_in
        .lines()
        .zip(computed.lines())
        .find(|(a, b)| a != b);
    assert!(
        checked_in == computed,
        "UPDATE_VECTORS=1 writes it anew; the first lines that differ: {differs:?}"
    );
}

/// The way back: what a receiver of the packets reads.
#[test]
fn the_packets_open_and_parse() {
    for p in all() {
        let sealed = p.sealed();
        let mut seal = AnySeal::with_slots(p.suite, 1);
        if let Some((_, key)) = &sealed.key {
            seal.install(0, key);
        }
        let (clear, _) = p.plain();
        let mut bytes = sealed.bytes;
        let tag_at = bytes.len() - TAG_BYTES;
        let tag = bytes[tag_at..].try_into().unwrap();
        let (header, body) = bytes[..tag_at].split_at_mut(clear);
        assert_eq!(seal.open(0, p.nonce(), header, body, &tag), Ok(()));
        assert_eq!(Header::parse(header), Ok(p.header()), "{}", p.name);
        match &p.content {
            Content::Connect(ids, offer) => {
                assert_eq!(clear, CONNECT_CLEAR_BYTES);
                assert_eq!(ConnectIds::parse(header), Ok(*ids));
                assert_eq!(Connect::parse(body), Ok(*offer));
            }
            Content::Data { ack, chunks, .. } => {
                assert_eq!(clear, HEADER_BYTES);
                let mut at = 0;
                if let Some(ack) = ack {
                    at = ack.bytes();
                    assert_eq!(Ack::parse(body), Ok((*ack, at)));
                }
                let read: Vec<_> = Chunks::new(&body[at..]).map(Result::unwrap).collect();
                assert_eq!(read, *chunks, "{}", p.name);
            }
        }
    }
    introductions::all().iter().for_each(introductions::opens);
    assert_eq!(KeyAddress::parse(&address().to_bytes()), Ok(address()));
}

/// What a receiver says in an acknowledgement: see the specification's 2.2.
#[test]
fn a_bitmap_begins_with_what_is_missing_and_ends_with_the_largest() {
    let mut seen = [false; 2];
    for p in all() {
        let Content::Data { ack: Some(ack), .. } = p.content else {
            continue;
        };
        if ack.words == 0 {
            assert_eq!(ack.base, ack.largest + 1);
            seen[0] = true;
        } else {
            assert_eq!(ack.bitmap[0] & 1, 0);
            let at = ack.largest - ack.base;
            assert_eq!(u32::from(ack.words), at / 64 + 1);
            assert_eq!(ack.bitmap[at as usize / 64] >> (at % 64), 1);
            seen[1] = true;
        }
    }
    assert_eq!(seen, [true; 2]);
}
