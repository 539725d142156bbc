//! What an engine of the stage begins with.

use portolan_engine::{Credentials, NetLane, ProtoTables, Settings};
use portolan_proto::congestion::Mode;
use portolan_proto::{Config, Identity};
use portolan_seal::SuiteId;
use portolan_wire::{Address, EndpointId, Life as LifeNumber};

use super::book::LifeId;
use super::plan::Plan;
use crate::link::SimLinks;
use crate::node::{address, set_networks};
use crate::rng::secrets_of;

/// The address of a life of a rank.
pub fn address_of(rank: usize, life: LifeId) -> Address {
    let at = address(rank);
    Address {
        port: at.port,
        ip: at.ip,
        id: EndpointId(1_000 + rank as u64),
        life: LifeNumber(1 + life as u64),
        host: 1,
    }
}

pub fn settings(plan: &Plan, rank: usize, life: LifeId) -> Settings {
    Settings {
        rank: rank as u32,
        size: plan.hosts.len() as u32,
        standalone: false,
        secrets: secrets_of(plan.seed, life),
        unexpected_bytes: 4 * plan.queue_share,
        unexpected_share: plan.queue_share,
        queue_bytes: 4 * plan.queue_share,
        queue_share: plan.queue_share,
        copy_bytes: 64 << 10,
        reply_bytes: plan.reply_bytes,
        exchange: portolan_exchange::Config {
            pushed_share: plan.pushed_share,
            pull_window: 64 << 10,
            pull_chunk: 30_000,
            share_min: 10_000,
            ..portolan_exchange::Config::default()
        },
        push_shm: plan.push,
        push_net: plan.push,
        regions_cached: 2,
        tell: |_| (),
    }
}

/// The network lane to those with whom no memory is shared.
pub fn net_lane(
    plan: &Plan,
    links: SimLinks,
    me: (usize, LifeId),
    lives: &[LifeId],
    near: &[(u16, u32)],
    now: u64,
) -> (NetLane<SimLinks>, Vec<Option<portolan_proto::PeerId>>) {
    let (rank, life) = me;
    let ranks = plan.hosts.len();
    let config = Config {
        peers: ranks as u32,
        active: ranks as u32,
        more_paths: (ranks * (plan.networks - 1)) as u32,
        // Little, so that much finds no room.
        queue_frames: 16,
        frames: 128,
        longs: 16,
        silence_ns: plan.silence_ns,
        connect_ns: 4 * plan.silence_ns,
        ..Config::default()
    };
    let credentials = Credentials {
        me: Identity {
            id: EndpointId(1_000 + rank as u64),
            life: LifeNumber(1 + life as u64),
        },
        suite: SuiteId::Aegis,
        secret: &[5; 32],
        agreement: None,
        random: &secrets_of(plan.seed, life).protocol,
    };
    let mut tables = ProtoTables::new(&config, &credentials).expect("there is memory");
    let mut view = tables.view();
    set_networks(&mut view, rank, plan.networks, config.packet_max);
    let (mut known, mut peers) = (Vec::new(), vec![None; ranks]);
    for (other, life) in lives.iter().enumerate() {
        let shares = near.iter().any(|(_, it)| *it == other as u32);
        if other == rank || shares {
            continue;
        }
        let Address { id, life, .. } = address_of(other, *life);
        let peer = view.add_peer(id, life, address(other), Mode::Lan);
        let peer = peer.expect("there is room for all");
        view.pin_incarnation(peer);
        known.push(other as u32);
        peers[other] = Some(peer);
    }
    let mut lane = NetLane::new(links, tables, known, plan.silence_ns, now);
    if rank.is_multiple_of(2) {
        lane.gather();
    }
    (lane, peers)
}
