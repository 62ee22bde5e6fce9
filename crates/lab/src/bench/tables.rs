//! Tables for people.

use std::collections::BTreeMap;

use comfy_table::{Cell, CellAlignment, Table, presets::UTF8_BORDERS_ONLY};

pub(super) fn table_with_header(names: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_header(aligned_cells(names));
    table
}

pub(super) fn add_table_row(table: &mut Table, values: &[&str]) {
    table.add_row(aligned_cells(values));
}

/// A table of its own for counts by name.
pub(super) fn counts_table<N: ToString>(name: &str, unit: &str, counts: &BTreeMap<String, N>) -> String {
    let mut table = table_with_header(&[name, unit]);
    for (key, count) in counts {
        add_table_row(&mut table, &[key, &count.to_string()]);
    }
    table.to_string()
}

/// The first to the left, numbers to the right.
fn aligned_cells(values: &[&str]) -> Vec<Cell> {
    let align = |n| if n == 0 { CellAlignment::Left } else { CellAlignment::Right };
    values.iter().enumerate().map(|(n, value)| Cell::new(value).set_alignment(align(n))).collect()
}
