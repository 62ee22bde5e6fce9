//! Columns and values of an exported row, the same for every format.

use chrono::{DateTime, Utc};
use sqlx::{Row, postgres::PgRow};

/// Type of a column in the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ColumnKind {
    Bool,
    Int32,
    Int64,
    Time,
    /// All other types, such as uuid and jsonb, in the text form of Postgres.
    Text,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: ColumnKind,
}

impl Column {
    /// Returns the column for a column of a view with this type.
    pub(super) fn new(name: String, sql_type: &str) -> Self {
        let kind = match sql_type {
            "boolean" => ColumnKind::Bool,
            "smallint" | "integer" => ColumnKind::Int32,
            "bigint" => ColumnKind::Int64,
            "timestamp with time zone" => ColumnKind::Time,
            _ => ColumnKind::Text,
        };
        Self { name, kind }
    }

    /// Returns the expression that selects the column.
    pub(super) fn expression(&self) -> String {
        let cast = match self.kind {
            ColumnKind::Bool => "boolean",
            ColumnKind::Int32 => "integer",
            ColumnKind::Int64 => "bigint",
            ColumnKind::Time => "timestamptz",
            ColumnKind::Text => "text",
        };
        format!("\"{}\"::{cast}", self.name.replace('"', "\"\""))
    }

    pub(super) fn read_cell(&self, row: &PgRow, index: usize) -> Result<CellValue, sqlx::Error> {
        Ok(match self.kind {
            ColumnKind::Bool => row.try_get::<Option<_>, _>(index)?.map_or(CellValue::Null, CellValue::Bool),
            ColumnKind::Int32 => row.try_get::<Option<_>, _>(index)?.map_or(CellValue::Null, CellValue::Int32),
            ColumnKind::Int64 => row.try_get::<Option<_>, _>(index)?.map_or(CellValue::Null, CellValue::Int64),
            ColumnKind::Time => row.try_get::<Option<_>, _>(index)?.map_or(CellValue::Null, CellValue::Time),
            ColumnKind::Text => row.try_get::<Option<_>, _>(index)?.map_or(CellValue::Null, CellValue::Text),
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CellValue {
    Null,
    Bool(bool),
    Int32(i32),
    Int64(i64),
    Time(DateTime<Utc>),
    Text(String),
}
