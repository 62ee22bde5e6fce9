//! Parquet files, compressed with Snappy. Rows are collected into row groups of bounded size.

use std::{fs::File, io::BufWriter, sync::Arc};

use anyhow::bail;
use parquet::{
    basic::{Compression, LogicalType, Repetition, TimeUnit, Type as PhysicalType},
    data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type},
    errors::ParquetError,
    file::{
        properties::WriterProperties,
        writer::{SerializedColumnWriter, SerializedFileWriter},
    },
    schema::types::Type,
};

use super::cells::{CellValue, Column, ColumnKind};

/// Maximum rows of a row group.
const MOST_ROWS: usize = 50_000;
/// Size of the texts after which a row group is written. With [`MOST_ROWS`] it bounds the memory of an export.
const MOST_TEXT_BYTES: usize = 16 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct ParquetWriter {
    file: SerializedFileWriter<BufWriter<File>>,
    columns: Vec<BufferedColumn>,
    rows: usize,
    text_bytes: usize,
}

/// Values of a column in the current row group. Null has the level 0 and no value; all other cells have the level 1.
#[derive(Debug)]
struct BufferedColumn {
    values: Values,
    levels: Vec<i16>,
}

#[derive(Debug)]
enum Values {
    Bool(Vec<bool>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Text(Vec<ByteArray>),
}

impl ParquetWriter {
    pub(super) fn new(file: File, columns: &[Column]) -> anyhow::Result<Self> {
        let fields: Result<Vec<_>, ParquetError> = columns.iter().map(|column| Ok(Arc::new(field(column)?))).collect();
        let schema = Arc::new(Type::group_type_builder("schema").with_fields(fields?).build()?);
        let properties = Arc::new(WriterProperties::builder().set_compression(Compression::SNAPPY).build());
        let file = SerializedFileWriter::new(BufWriter::new(file), schema, properties)?;
        let columns = columns.iter().map(|column| BufferedColumn::new(column.kind)).collect();
        Ok(Self { file, columns, rows: 0, text_bytes: 0 })
    }

    pub(super) fn write_row(&mut self, cells: Vec<CellValue>) -> anyhow::Result<()> {
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            if let CellValue::Text(text) = &cell {
                self.text_bytes += text.len();
            }
            column.push(cell)?;
        }
        self.rows += 1;
        if self.rows >= MOST_ROWS || self.text_bytes >= MOST_TEXT_BYTES {
            self.write_row_group()?;
        }
        Ok(())
    }

    /// Writes the last row group and the index of the file, and returns the file.
    pub(super) fn finish(mut self) -> anyhow::Result<File> {
        if self.rows > 0 {
            self.write_row_group()?;
        }
        let buffered = self.file.into_inner()?;
        Ok(buffered.into_inner().map_err(std::io::IntoInnerError::into_error)?)
    }

    fn write_row_group(&mut self) -> Result<(), ParquetError> {
        let mut group = self.file.next_row_group()?;
        for column in &mut self.columns {
            let Some(mut writer) = group.next_column()? else { break };
            column.write(&mut writer)?;
            writer.close()?;
        }
        group.close()?;
        (self.rows, self.text_bytes) = (0, 0);
        Ok(())
    }
}

impl BufferedColumn {
    fn new(kind: ColumnKind) -> Self {
        let values = match kind {
            ColumnKind::Bool => Values::Bool(Vec::new()),
            ColumnKind::Int32 => Values::Int32(Vec::new()),
            ColumnKind::Int64 | ColumnKind::Time => Values::Int64(Vec::new()),
            ColumnKind::Text => Values::Text(Vec::new()),
        };
        Self { values, levels: Vec::new() }
    }

    fn push(&mut self, cell: CellValue) -> anyhow::Result<()> {
        self.levels.push(i16::from(cell != CellValue::Null));
        match (&mut self.values, cell) {
            (_, CellValue::Null) => {}
            (Values::Bool(values), CellValue::Bool(value)) => values.push(value),
            (Values::Int32(values), CellValue::Int32(value)) => values.push(value),
            (Values::Int64(values), CellValue::Int64(value)) => values.push(value),
            (Values::Int64(values), CellValue::Time(at)) => values.push(at.timestamp_micros()),
            (Values::Text(values), CellValue::Text(text)) => values.push(text.into_bytes().into()),
            (values, cell) => bail!("{cell:?} is no value of {values:?}"),
        }
        Ok(())
    }

    /// Writes and removes the values.
    fn write(&mut self, writer: &mut SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        let levels = std::mem::take(&mut self.levels);
        match &mut self.values {
            Values::Bool(values) => write_values::<BoolType>(writer, values, &levels),
            Values::Int32(values) => write_values::<Int32Type>(writer, values, &levels),
            Values::Int64(values) => write_values::<Int64Type>(writer, values, &levels),
            Values::Text(values) => write_values::<ByteArrayType>(writer, values, &levels),
        }
    }
}

fn write_values<T: DataType>(
    writer: &mut SerializedColumnWriter<'_>,
    values: &mut Vec<T::T>,
    levels: &[i16],
) -> Result<(), ParquetError> {
    writer.typed::<T>().write_batch(values, Some(levels), None)?;
    values.clear();
    Ok(())
}

fn field(column: &Column) -> Result<Type, ParquetError> {
    let (stored, meaning) = match column.kind {
        ColumnKind::Bool => (PhysicalType::BOOLEAN, None),
        ColumnKind::Int32 => (PhysicalType::INT32, None),
        ColumnKind::Int64 => (PhysicalType::INT64, None),
        ColumnKind::Time => (PhysicalType::INT64, Some(LogicalType::timestamp(true, TimeUnit::MICROS))),
        ColumnKind::Text => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
    };
    Type::primitive_type_builder(&column.name, stored)
        .with_repetition(Repetition::OPTIONAL)
        .with_logical_type(meaning)
        .build()
}

#[cfg(test)]
mod tests {
    use parquet::file::{metadata::RowGroupMetaData, reader::FileReader, serialized_reader::SerializedFileReader};

    use super::*;

    /// Writes rows of one text each. Returns the number of rows in each row group.
    fn row_groups(texts: impl Iterator<Item = String>) -> Vec<i64> {
        let file = tempfile::tempfile().unwrap();
        let column = Column { name: "text".to_owned(), kind: ColumnKind::Text };
        let mut writer = ParquetWriter::new(file.try_clone().unwrap(), &[column]).unwrap();
        texts.for_each(|text| writer.write_row(vec![CellValue::Text(text)]).unwrap());
        writer.finish().unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        reader.metadata().row_groups().iter().map(RowGroupMetaData::num_rows).collect()
    }

    #[test]
    fn row_groups_are_bounded_by_rows_and_bytes() {
        assert_eq!(row_groups((0..120_000).map(|n| n.to_string())), [50_000, 50_000, 20_000]);
        assert_eq!(row_groups((0..5).map(|_| "x".repeat(MOST_TEXT_BYTES / 2))), [2, 2, 1]);
        assert!(row_groups(std::iter::empty()).is_empty());
    }
}
