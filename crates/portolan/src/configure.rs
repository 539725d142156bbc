//! Translates the settings to the engine's configuration.

use std::sync::Arc;
use std::thread::available_parallelism;

use portolan_boot::{Job, Security, Suite};
use portolan_runtime as engine;
use portolan_runtime::{EndpointId, Life, Push, SuiteId, Threads};
use portolan_sys::features::Disabled;
use portolan_sys::tell::tell;

use crate::open::{OpenError, random};
use crate::settings::{Origin, SettingError, Settings};
use crate::tuned::{self, Link};

/// Memory budgets of matched messages, and how they are pulled.
fn exchange_config(settings: &Settings) -> Result<engine::ExchangeConfig, SettingError> {
    Ok(engine::ExchangeConfig {
        pushed_bytes: settings.number("pushed_bytes")?,
        pushed_share: Some(settings.number("pushed_share")?).filter(|bytes| *bytes > 0),
        offers_max: settings.number("offers_max")?,
        late_bytes: settings.number("late_bytes")?,
        pull_window: settings.number("pull_window")?,
        pull_chunk: settings.number("pull_chunk")?,
        share_min: settings.number("share_min")?,
        ..engine::ExchangeConfig::default()
    })
}

/// How matched messages are pushed by shared memory, and by the network.
fn pushes(settings: &Settings) -> Result<(Push, Push), SettingError> {
    let shm = Push {
        whole: settings.number("push_shm_whole")?,
        first: settings.number("push_shm_first")?,
        second: settings.number("push_shm_second")?,
        ..Push::default()
    };
    let net = Push {
        whole: settings.number("push_net_whole")?,
        first: settings.number("push_net_first")?,
        second: settings.number("push_net_second")?,
        ..Push::default()
    };
    Ok((shm, net))
}

/// Adopts the values that were tuned for the links that this process uses.
pub(crate) fn adopt_tuned(
    settings: &mut Settings,
    links: &[Link],
    config: &mut engine::Config,
) -> Result<(), SettingError> {
    for link in links {
        match tuned::find(*link) {
            Ok(Some(tuned)) => settings.adopt(&tuned),
            Ok(None) => {}
            // Tuning only makes a job faster: a bad file does not fail it.
            Err(error) => tell(format_args!("portolan: {error}")),
        }
    }
    config.exchange = exchange_config(settings)?;
    (config.push_shm, config.push_net) = pushes(settings)?;
    Ok(())
}

/// The engine's id of a cipher suite.
pub(crate) const fn suite_of(security: Security, suite: Suite) -> SuiteId {
    match (security, suite) {
        (Security::None, _) => SuiteId::None,
        (Security::Encrypt, Suite::Aegis128L) => SuiteId::Aegis,
        (Security::Encrypt, Suite::Aes128Gcm) => SuiteId::AesGcm,
        (Security::Encrypt, Suite::ChaCha20Poly1305) => SuiteId::ChaCha,
    }
}

const MS: u64 = 1_000_000;

/// The engine's settings for a job, and its secret.
pub(crate) fn job_config(
    job: &mut Job,
    settings: &Settings,
    threads: Threads,
) -> Result<engine::Config, OpenError> {
    let mut config = engine::Config {
        rank: job.rank,
        id: EndpointId(u64::from(job.rank) + 1),
        life: Life(job.life),
        secret: job.take_secret().map(Arc::new),
        suite: suite_of(job.security, job.suite),
        trace: settings.file_of("trace", job.rank, job.restarts),
        // The launcher reports each rank's life.
        fixed_lives: !job.is_guest(),
        // If shared memory reaches all ranks, no socket is needed. Guests do not
        // know yet whether it does.
        network: job.size > 1 && (job.hosts > 1 || job.segment.is_none() || job.is_guest()),
        reached_at: job.ip,
        ..engine_config(settings, threads)?
    };
    let cores = available_parallelism().map_or(1, usize::from);
    let crowded = match job.core {
        Some(_) => job.core_shared,
        None => job.local_ranks.len() > cores,
    };
    if crowded && settings.origin("spin_passes") == Origin::Default {
        config.spin_passes = 0;
    }
    if crowded {
        let per_core = job.local_ranks.len().div_ceil(cores);
        config.ranks_beside = u32::try_from(per_core)
            .unwrap_or(u32::MAX)
            .saturating_sub(1);
    }
    // All ranks have joined: a silent one is cut off, or has another secret.
    config.proto.connect_ns = settings.number::<u64>("join_ms")?.saturating_mul(MS);
    Ok(config)
}

/// Draws the secrets of this endpoint. Each is a draw of its own: none follows from
/// another, or from a value that peers know.
fn secrets() -> Result<engine::Secrets, OpenError> {
    let word = || random().map(u64::from_ne_bytes);
    Ok(engine::Secrets {
        protocol: random()?,
        tags: [word()?, word()?],
        regions: random()?,
    })
}

/// The engine's settings, without the endpoint's identity and network.
pub(crate) fn engine_config(
    settings: &Settings,
    threads: Threads,
) -> Result<engine::Config, OpenError> {
    let (push_shm, push_net) = pushes(settings)?;
    let mut config = engine::Config {
        secrets: secrets()?,
        host: portolan_boot::host_identity().unwrap_or(0),
        threads,
        helper: settings.switch("helper")?,
        takeover_ns: settings.number::<u64>("takeover_us")?.saturating_mul(1000),
        spin_passes: settings.number("spin_passes")?,
        yield_ns: settings.number::<u64>("yield_us")?.saturating_mul(1000),
        unexpected_bytes: settings.number("unexpected_bytes")?,
        queue_bytes: settings.number("queue_bytes")?,
        copy_min: settings.number("copy_min")?,
        exchange: exchange_config(settings)?,
        push_shm,
        push_net,
        regions_cached: settings.number("regions_cached")?,
        close_ns: settings.number::<u64>("close_ms")?.saturating_mul(MS),
        ..engine::Config::default()
    };
    config.unexpected_share = config.unexpected_share.min(config.unexpected_bytes);
    config.queue_share = config.queue_share.min(config.queue_bytes);
    config.udp.port = settings.number("port")?;
    config.udp.receive_buffer = settings.number("receive_buffer")?;
    config.udp.send_buffer = settings.number("send_buffer")?;
    config.udp.frame_max = match settings.number::<usize>("packet_max")? {
        0 => None,
        bytes => Some(bytes),
    };
    config.udp.disabled = Disabled::from_env().map_err(OpenError::Disable)?;
    config.proto.frames = settings.number("frames")?;
    config.proto.active = settings.number("active_peers")?;
    config.proto.silence_ns = settings.number::<u64>("silence_ms")?.saturating_mul(MS);
    config.proto.idle_ns = settings.number::<u64>("idle_ms")?.saturating_mul(MS);
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_the_engine() {
        let settings = Settings::gather([], []).unwrap();
        let default = engine::Config::default();
        assert_eq!(exchange_config(&settings), Ok(default.exchange));
        let (shm, net) = pushes(&settings).unwrap();
        assert_eq!((shm, net), (default.push_shm, default.push_net));
    }

    #[test]
    fn secrets_are_draws_of_their_own() {
        let all = [secrets().unwrap(), secrets().unwrap()];
        let words: std::collections::BTreeSet<Vec<u8>> = (all.iter())
            .flat_map(|it| {
                let tags = it.tags.map(u64::to_ne_bytes);
                [&it.protocol[..], &it.regions, tags.as_flattened()].map(<[u8]>::to_vec)
            })
            .flat_map(|bytes| bytes.chunks(8).map(<[u8]>::to_vec).collect::<Vec<_>>())
            .collect();
        assert_eq!(words.len(), 2 * (4 + 4 + 2));
    }

    #[test]
    fn each_setting_of_matched_messages_has_its_place() {
        let given = [
            ("pushed_bytes", "5001"),
            ("pushed_share", "5002"),
            ("offers_max", "5003"),
            ("late_bytes", "5012"),
            ("pull_window", "5004"),
            ("pull_chunk", "5005"),
            ("share_min", "5011"),
            ("push_shm_whole", "5006"),
            ("push_shm_first", "5007"),
            ("push_shm_second", "5008"),
            ("push_net_whole", "5009"),
            ("push_net_first", "5010"),
            ("push_net_second", "0"),
        ];
        let settings = Settings::gather(given, []).unwrap();
        let x = exchange_config(&settings).unwrap();
        assert_eq!((x.pushed_bytes, x.pushed_share), (5001, Some(5002)));
        assert_eq!(
            (x.offers_max, x.pull_window, x.pull_chunk),
            (5003, 5004, 5005)
        );
        assert_eq!((x.share_min, x.late_bytes), (5011, 5012));
        let (shm, net) = pushes(&settings).unwrap();
        assert_eq!((shm.whole, shm.first, shm.second), (5006, 5007, 5008));
        assert_eq!((net.whole, net.first, net.second), (5009, 5010, 0));

        // Counts of bytes since connect must not overflow.
        let endless = Settings::gather([("pushed_bytes", "9223372036854775807")], []);
        assert!(exchange_config(&endless.unwrap()).is_err());
        let none = Settings::gather([("pull_window", "0")], []);
        assert!(exchange_config(&none.unwrap()).is_err());
    }
}
