//! PMI-2, version 2.0, as `srun --mpi=pmi2` speaks it.

use super::wire::{Format, Patience, Stream};
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
    let patience = Patience::new(OPENING, BRIEF);
    let version = VERSION.to_string();
    // The greeting is in PMI-1's format, so that a server of either version can refuse it.
    let pairs = [("pmi_version", &version[..]), ("pmi_subversion", "0")];
    stream.say(Format::One, "init", &pairs, patience)?;
    super::agreed(stream.hear(Format::One, patience)?, VERSION)?;
    let own = rank.to_string();
    let pairs = [("pmijobid", job), ("pmirank", &own), ("threaded", "FALSE")];
    stream.say(Format::Two, "fullinit", &pairs, patience)?;
    let answer = stream.hear(Format::Two, patience)?;
    let answer = answer.expect("fullinit-response")?;
    let (rank, size) = (answer.number("rank")?, answer.number("size")?);
    Ok((Spoken::Two, rank, size))
}

pub(super) fn put(
    stream: &mut Stream,
    key: &str,
    value: &str,
    patience: Patience,
) -> Result<(), PmiError> {
    let pairs = [("key", key), ("value", value)];
    stream.say(Format::Two, "kvs-put", &pairs, patience)?;
    let answer = stream.hear(Format::Two, patience)?;
    answer.expect("kvs-put-response")?;
    Ok(())
}

pub(super) fn fence(stream: &mut Stream, patience: Patience) -> Result<(), PmiError> {
    stream.say(Format::Two, "kvs-fence", &[], patience)?;
    let answer = stream.hear(Format::Two, patience)?;
    answer.expect("kvs-fence-response")?;
    Ok(())
}

pub(super) fn get(stream: &mut Stream, key: &str, patience: Patience) -> Result<String, PmiError> {
    stream.say(Format::Two, "kvs-get", &[("key", key)], patience)?;
    let answer = stream.hear(Format::Two, patience)?;
    let answer = answer.expect("kvs-get-response")?;
    match answer.need("found")? {
        "TRUE" => Ok(answer.need("value")?.to_owned()),
        "FALSE" => Err(PmiError::NotThere {
            key: key.to_owned(),
        }),
        _ => Err(answer.malformed()),
    }
}

pub(super) fn finalize(stream: &mut Stream, patience: Patience) -> Result<(), PmiError> {
    stream.say(Format::Two, "finalize", &[], patience)?;
    let answer = stream.hear(Format::Two, patience)?;
    answer.expect("finalize-response")?;
    Ok(())
}

pub(super) fn abort(stream: &Stream, patience: Patience) -> Result<(), PmiError> {
    let pairs = [("isworld", "TRUE"), ("msg", "asked-for")];
    stream.say(Format::Two, "abort", &pairs, patience)
}
