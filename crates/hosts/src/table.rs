//! The tables that commands print.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ColumnConstraint, Table};

/// Most bytes of a cell that others are aligned with.
const CELL_MAX: usize = 100;

/// Columns as wide as their widest cell, `gap` spaces apart. Each letter of
/// `flush` is a column's: `l` is flush left, `r` flush right, and the last one
/// counts for all that follow. Columns without any cell are left out. A line with
/// a very long cell before its last one stands out of the columns.
pub fn table(flush: &str, gap: u16, head: &[&str], lines: Vec<Vec<String>>) -> String {
    let columns = 0..lines.first().map_or(0, Vec::len);
    let is_empty = |column: &usize| lines.iter().all(|cells| cells[*column].is_empty());
    let empty: Vec<usize> = columns.filter(is_empty).collect();
    let mut table = Table::new();
    table.load_style(NOTHING);
    for cells in &lines {
        table.add_row(if stands_out(cells) { &[] } else { &cells[..] });
    }
    if !head.is_empty() {
        table.set_header(head);
    }
    let last = flush.chars().next_back().into_iter().cycle();
    let letters = flush.chars().chain(last);
    for ((at, column), letter) in table.column_iter_mut().enumerate().zip(letters) {
        column.set_padding((0, gap));
        if letter == 'r' {
            column.set_cell_alignment(CellAlignment::Right);
        }
        if empty.contains(&at) {
            column.set_constraint(ColumnConstraint::Hidden);
        }
    }
    let mut rows = table.lines();
    let head: Vec<String> = rows.by_ref().take(usize::from(!head.is_empty())).collect();
    let rows = rows
        .zip(&lines)
        .map(|(row, cells)| match stands_out(cells) {
            true => cells.join(&" ".repeat(gap.into())),
            false => row,
        });
    let line = |line: String| format!("{}\n", line.trim_end());
    head.into_iter().chain(rows).map(line).collect()
}

fn stands_out(cells: &[String]) -> bool {
    let [cells @ .., last] = cells else {
        return false;
    };
    cells.iter().any(|it| it.len() > CELL_MAX) || last.len() > usize::from(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_columns_are_left_out() {
        let line = |cells: [&str; 4]| cells.map(str::to_owned).to_vec();
        let lines = vec![line(["1", "22", "", "3"]), line(["1", "", "", "4"])];
        let text = table("llr", 2, &["a", "b", "none", "c"], lines);
        assert_eq!(text, "a  b   c\n1  22  3\n1      4\n");
        assert_eq!(table("lr", 1, &["a", "bc"], Vec::new()), "a bc\n");
    }

    #[test]
    fn without_a_head_only_cells_count() {
        let line = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let lines = vec![line(["one", "two"]), line(["", "-> three"])];
        assert_eq!(table("l", 2, &[], lines), "one  two\n     -> three\n");
        let long = "x".repeat(70_000);
        let lines = vec![line(["one", "two"]), line([&long, &long]), line(["", "3"])];
        let text = format!("one  two\n{long}  {long}\n     3\n");
        assert_eq!(table("l", 2, &[], lines), text);
    }
}
