//! CSV as `COPY ... (FORMAT csv, HEADER)` reads it: an empty field is null, and `""` is an empty text. Libraries for
//! CSV do not distinguish the two.

use std::{
    fmt::{Display, Write as _},
    fs::File,
    io::{self, BufWriter, Write},
};

use chrono::SecondsFormat;

use super::cells::{CellValue, Column};

#[derive(Debug)]
pub(super) struct CsvWriter {
    out: BufWriter<File>,
    line: String,
}

impl CsvWriter {
    pub(super) fn new(file: File, columns: &[Column]) -> io::Result<Self> {
        let mut writer = Self { out: BufWriter::new(file), line: String::new() };
        let names: Vec<CellValue> = columns.iter().map(|column| CellValue::Text(column.name.clone())).collect();
        writer.write_row(&names)?;
        Ok(writer)
    }

    pub(super) fn write_row(&mut self, cells: &[CellValue]) -> io::Result<()> {
        self.line.clear();
        for (n, cell) in cells.iter().enumerate() {
            if n > 0 {
                self.line.push(',');
            }
            push_cell(&mut self.line, cell);
        }
        self.line.push('\n');
        self.out.write_all(self.line.as_bytes())
    }

    /// Writes what is buffered, and returns the file.
    pub(super) fn finish(self) -> io::Result<File> {
        self.out.into_inner().map_err(io::IntoInnerError::into_error)
    }
}

fn push_cell(line: &mut String, cell: &CellValue) {
    match cell {
        CellValue::Null => {}
        CellValue::Bool(value) => push_plain(line, value),
        CellValue::Int32(value) => push_plain(line, value),
        CellValue::Int64(value) => push_plain(line, value),
        CellValue::Time(at) => line.push_str(&at.to_rfc3339_opts(SecondsFormat::Micros, true)),
        CellValue::Text(text) if text.is_empty() || text.contains([',', '"', '\r', '\n']) => {
            line.push('"');
            line.push_str(&text.replace('"', "\"\""));
            line.push('"');
        }
        CellValue::Text(text) => line.push_str(text),
    }
}

fn push_plain(line: &mut String, value: impl Display) {
    // Writing to a string cannot fail.
    let _ = write!(line, "{value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_and_empty_text_differ() {
        for (cell, written) in [
            (CellValue::Null, ""),
            (CellValue::Text(String::new()), "\"\""),
            (CellValue::Text("a,\"b\"\n".to_owned()), "\"a,\"\"b\"\"\n\""),
            (CellValue::Text(" plain;".to_owned()), " plain;"),
            (CellValue::Bool(true), "true"),
            (CellValue::Int64(-7), "-7"),
            (CellValue::Time(chrono::DateTime::UNIX_EPOCH), "1970-01-01T00:00:00.000000Z"),
        ] {
            let mut line = String::new();
            push_cell(&mut line, &cell);
            assert_eq!(line, written, "{cell:?}");
        }
    }
}
