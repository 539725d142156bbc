//! PMI-2, version 2.0, as `srun --mpi=pmi2` speaks it.

use super::wire::{Format, Stream, Timeout};
use super::{BRIEF, OPENING, PmiError, Spoken};

const VERSION: u32 = 2;
/// Longest value, bytes: a constant of the protocol.
pub(super) const VALUE_MAX: usize = 1024;

/// Opens the exchange of job `job`; also returns rank and size.
pub(super) fn init(
    stream: &mut Stream,
    job: &str,
    rank: u32,
) -> Result<(Spoken, u32, u32), PmiError> {
    let timeout = Timeout::new(OPENING, BRIEF);
    let version = VERSION.to_string();
    // The greeting is in PMI-1's format, so that a server of either version can refuse it.
    let pairs = [("pmi_version", &version[..]), ("pmi_subversion", "0")];
    stream.say(Format::One, "init", &pairs, timeout)?;
    super::agreed(stream.hear(Format::One, timeout)?, VERSION)?;
    let own = rank.to_string();
    let pairs = [("pmijobid", job), ("pmirank", &own), ("threaded", "FALSE")];
    stream.say(Format::Two, "fullinit", &pairs, timeout)?;
    let answer = stream.hear(Format::Two, timeout)?;
    let answer = answer.expect("fullinit-response")?;
    let (rank, size) = (answer.number("rank")?, answer.number("size")?);
    Ok((Spoken::Two, rank, size))
}

pub(super) fn put(
    stream: &mut Stream,
    key: &str,
    value: &str,
    timeout: Timeout,
) -> Result<(), PmiError> {
    let pairs = [("key", key), ("value", value)];
    stream.say(Format::Two, "kvs-put", &pairs, timeout)?;
    let answer = stream.hear(Format::Two, timeout)?;
    answer.expect("kvs-put-response")?;
    Ok(())
}

pub(super) fn fence(stream: &mut Stream, timeout: Timeout) -> Result<(), PmiError> {
    stream.say(Format::Two, "kvs-fence", &[], timeout)?;
    let answer = stream.hear(Format::Two, timeout)?;
    answer.expect("kvs-fence-response")?;
    Ok(())
}

pub(super) fn get(stream: &mut Stream, key: &str, timeout: Timeout) -> Result<String, PmiError> {
    stream.say(Format::Two, "kvs-get", &[("key", key)], timeout)?;
    let answer = stream.hear(Format::Two, timeout)?;
    let answer = answer.expect("kvs-get-response")?;
    match answer.need("found")? {
        "TRUE" => Ok(answer.need("value")?.to_owned()),
        "FALSE" => Err(PmiError::NotThere {
            key: key.to_owned(),
        }),
        _ => Err(answer.malformed()),
    }
}

pub(super) fn finalize(stream: &mut Stream, timeout: Timeout) -> Result<(), PmiError> {
    stream.say(Format::Two, "finalize", &[], timeout)?;
    let answer = stream.hear(Format::Two, timeout)?;
    answer.expect("finalize-response")?;
    Ok(())
}

pub(super) fn abort(stream: &Stream, timeout: Timeout) -> Result<(), PmiError> {
    let pairs = [("isworld", "TRUE"), ("msg", "asked-for")];
    stream.say(Format::Two, "abort", &pairs, timeout)
}
