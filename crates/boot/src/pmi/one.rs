//! PMI-1, version 1.1, as mpiexec.hydra speaks it.

use super::wire::{Format, Stream, Timeout};
use super::{BRIEF, OPENING, PmiError, Spoken};

const VERSION: u32 = 1;

/// Introduces this process over a connection to `PMI_PORT`; returns rank and size.
pub(super) fn introduce(stream: &mut Stream, id: u32) -> Result<(u32, u32), PmiError> {
    let timeout = Timeout::new(OPENING, BRIEF);
    let id = id.to_string();
    stream.say(Format::One, "initack", &[("pmiid", &id)], timeout)?;
    stream.hear(Format::One, timeout)?.expect("initack")?;
    let mut set = |key| {
        let answer = stream.hear(Format::One, timeout)?.expect("set")?;
        answer.number(key)
    };
    let size = set("size")?;
    let rank = set("rank")?;
    set("debug")?;
    Ok((rank, size))
}

pub(super) fn init(stream: &mut Stream) -> Result<Spoken, PmiError> {
    let timeout = Timeout::new(OPENING, BRIEF);
    let version = VERSION.to_string();
    let pairs = [("pmi_version", &version[..]), ("pmi_subversion", "1")];
    stream.say(Format::One, "init", &pairs, timeout)?;
    super::agreed(stream.hear(Format::One, timeout)?, VERSION)?;
    stream.say(Format::One, "get_maxes", &[], timeout)?;
    let maxes = stream.hear(Format::One, timeout)?.expect("maxes")?;
    let value_max = maxes.number("vallen_max")? as usize;
    stream.say(Format::One, "get_my_kvsname", &[], timeout)?;
    let name = stream.hear(Format::One, timeout)?.expect("my_kvsname")?;
    Ok(Spoken::One {
        space: name.need("kvsname")?.to_owned(),
        value_max,
    })
}

pub(super) fn put(
    stream: &mut Stream,
    space: &str,
    key: &str,
    value: &str,
    timeout: Timeout,
) -> Result<(), PmiError> {
    let pairs = [("kvsname", space), ("key", key), ("value", value)];
    stream.say(Format::One, "put", &pairs, timeout)?;
    stream.hear(Format::One, timeout)?.expect("put_result")?;
    Ok(())
}

pub(super) fn fence(stream: &mut Stream, timeout: Timeout) -> Result<(), PmiError> {
    stream.say(Format::One, "barrier_in", &[], timeout)?;
    stream.hear(Format::One, timeout)?.expect("barrier_out")?;
    Ok(())
}

pub(super) fn get(
    stream: &mut Stream,
    space: &str,
    key: &str,
    timeout: Timeout,
) -> Result<String, PmiError> {
    let pairs = [("kvsname", space), ("key", key)];
    stream.say(Format::One, "get", &pairs, timeout)?;
    match stream.hear(Format::One, timeout)?.expect("get_result") {
        Ok(answer) => Ok(answer.need("value")?.to_owned()),
        Err(PmiError::Refused { .. }) => Err(PmiError::NotThere {
            key: key.to_owned(),
        }),
        Err(error) => Err(error),
    }
}

pub(super) fn finalize(stream: &mut Stream, timeout: Timeout) -> Result<(), PmiError> {
    stream.say(Format::One, "finalize", &[], timeout)?;
    stream.hear(Format::One, timeout)?.expect("finalize_ack")?;
    Ok(())
}

pub(super) fn abort(stream: &Stream, code: u8, timeout: Timeout) -> Result<(), PmiError> {
    let code = code.to_string();
    stream.say(Format::One, "abort", &[("exitcode", &code)], timeout)
}
