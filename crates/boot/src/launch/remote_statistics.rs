//! Reads counters and state from a rank's memory: it has reported where they
//! are and need not be able to answer. Nothing that it reports is trusted: what
//! is read is bounded, and what cannot be read is left out.

use portolan_sys::process::{CopyError, read_memory};

use crate::control::{TableView, Unread};
use crate::message::Table;

/// Most tables, fields of one, and bytes of a name.
const TABLES_MAX: usize = 16;
const FIELDS_MAX: usize = 64;
const NAME_BYTES_MAX: usize = 32;
/// Most bytes of a rank's tables.
const TABLE_BYTES_MAX: u64 = 32 << 20;
/// Bytes that are read at once.
const CHUNK_BYTES: usize = 256 << 10;
/// Most numbers of one rank, and of all ranks of a host, in an answer: with
/// these, it fits a frame.
const RANK_NUMBERS_MAX: usize = 60_000;
pub(super) const NUMBERS_MAX: usize = 150_000;

/// Returns the tables that a rank has reported, without invalid and too large ones.
pub(super) fn sensible(mut tables: Vec<Table>) -> Vec<Table> {
    tables.truncate(TABLES_MAX);
    tables.retain(|table| {
        let stride = table.stride;
        let fits = |field: &crate::message::Field| {
            matches!(field.bytes, 1 | 2 | 4 | 8)
                && field
                    .offset
                    .checked_add(u32::from(field.bytes))
                    .is_some_and(|end| end <= stride)
                && field.name.len() <= NAME_BYTES_MAX
        };
        table.name.len() <= NAME_BYTES_MAX
            && table.fields.len() <= FIELDS_MAX
            && stride > 0
            && stride as usize <= CHUNK_BYTES
            && table.fields.iter().all(fits)
    });
    let mut left = TABLE_BYTES_MAX;
    tables.retain(|table| {
        let bytes = u64::from(table.stride) * u64::from(table.count);
        let fits = bytes <= left;
        left -= if fits { bytes } else { 0 };
        fits
    });
    tables
}

/// Returns the number at a field of an entry.
fn number(entry: &[u8], offset: u32, bytes: u8) -> u64 {
    let at = offset as usize;
    let mut word = [0; 8];
    let from = &entry[at..at + usize::from(bytes)];
    // The rank runs on this machine, so its byte order is ours.
    if cfg!(target_endian = "little") {
        word[..from.len()].copy_from_slice(from);
        u64::from_le_bytes(word)
    } else {
        word[8 - from.len()..].copy_from_slice(from);
        u64::from_be_bytes(word)
    }
}

/// Reads tables of process `pid`: those of one entry, or all. `left`: number of
/// numbers that an answer still has room for.
pub(super) fn read(
    pid: u32,
    tables: &[Table],
    all: bool,
    left: &mut usize,
) -> Result<Vec<TableView>, Unread> {
    let mut own = RANK_NUMBERS_MAX.min(*left);
    let mut views = Vec::new();
    for table in tables.iter().filter(|table| all || table.count == 1) {
        let view = read_table(pid, table, &mut own).map_err(|error| match error {
            CopyError::NotPermitted => Unread::NotPermitted,
            _ => Unread::Gone,
        })?;
        *left -= view.rows.len() * view.fields.len();
        views.push(view);
    }
    Ok(views)
}

fn read_table(pid: u32, table: &Table, left: &mut usize) -> Result<TableView, CopyError> {
    let stride = table.stride as usize;
    let fields = &table.fields;
    let mut view = TableView {
        name: table.name.clone(),
        fields: fields.iter().map(|field| field.name.clone()).collect(),
        rows: Vec::new(),
        left_out: 0,
    };
    // Without fields that mark idle entries, each entry is of interest.
    let picks = fields.iter().any(|field| field.idle.is_some());
    let per_chunk = CHUNK_BYTES / stride;
    let mut bytes = Vec::new();
    let mut first = 0;
    while first < table.count {
        let count = per_chunk.min((table.count - first) as usize);
        bytes.resize(count * stride, 0);
        let offset = u64::from(first) * u64::from(table.stride);
        read_memory(pid, table.address.wrapping_add(offset), &mut bytes)?;
        for (index, entry) in (first..).zip(bytes.chunks_exact(stride)) {
            let row: Vec<u64> = fields
                .iter()
                .map(|field| number(entry, field.offset, field.bytes))
                .collect();
            let busy = |(field, value): (&crate::message::Field, &u64)| {
                field.idle.is_some_and(|idle| idle != *value)
            };
            if picks && !fields.iter().zip(&row).any(busy) {
                continue;
            }
            if row.len() > *left {
                view.left_out += 1;
                continue;
            }
            *left -= row.len();
            view.rows.push((index, row));
        }
        first += u32::try_from(count).expect("fits a chunk");
    }
    Ok(view)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Field;

    fn field(name: &str, offset: u32, bytes: u8, idle: Option<u64>) -> Field {
        Field {
            name: name.to_owned(),
            offset,
            bytes,
            idle,
        }
    }

    fn table(entries: &[[u32; 4]], fields: Vec<Field>) -> Table {
        Table {
            name: "t".to_owned(),
            address: entries.as_ptr() as u64,
            stride: 16,
            count: u32::try_from(entries.len()).unwrap(),
            fields,
        }
    }

    #[test]
    fn entries_in_which_something_goes_on_are_read() {
        let entries = [[0, 7, 1, 0], [5, 8, 2, 0], [0, 9, 3, 1]];
        let fields = vec![
            field("busy", 0, 4, Some(0)),
            field("x", 4, 2, None),
            field("wide", 8, 8, None),
        ];
        let tables = [table(&entries, fields)];
        let pid = std::process::id();
        let mut left = 100;
        let views = read(pid, &tables, true, &mut left).unwrap();
        assert_eq!(views[0].rows, [(1, vec![5, 8, 2])]);
        assert_eq!(left, 97);
        // Tables of one entry only.
        assert_eq!(read(pid, &tables, false, &mut left).unwrap(), []);
        // All entries, as far as there is room.
        let tables = [table(&entries, vec![field("x", 4, 4, None)])];
        let mut left = 2;
        let views = read(pid, &tables, true, &mut left).unwrap();
        assert_eq!(views[0].rows, [(0, vec![7]), (1, vec![8])]);
        assert_eq!((views[0].left_out, left), (1, 0));
    }

    #[test]
    fn what_a_rank_invents_is_not_believed() {
        let entries = [[0; 4]; 2];
        let good = table(&entries, vec![field("x", 12, 4, None)]);
        let with = |change: fn(&mut Table)| {
            let mut table = good.clone();
            change(&mut table);
            table
        };
        let bad = vec![
            with(|t| t.stride = 0),
            with(|t| t.stride = u32::MAX),
            with(|t| t.count = u32::MAX),
            with(|t| t.fields[0].offset = 13),
            with(|t| t.fields[0].offset = u32::MAX),
            with(|t| t.fields[0].bytes = 3),
            with(|t| t.name = "n".repeat(1000)),
            with(|t| t.fields = vec![t.fields[0].clone(); FIELDS_MAX + 1]),
        ];
        assert_eq!(sensible(bad), []);
        assert_eq!(sensible(vec![good.clone(); 100]).len(), TABLES_MAX);
        // An address at which nothing is mapped.
        let mut lost = good;
        lost.address = u64::MAX - 7;
        let mut left = 10;
        let pid = std::process::id();
        assert_eq!(read(pid, &[lost], true, &mut left), Err(Unread::Gone));
    }
}
