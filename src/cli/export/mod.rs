//! `dispatchq export`: writes the rows of one day of each `audit_` view to files. It needs Postgres only.
//!
//! * [`views`]: the views, and the column that selects the day. [`auditor`]: reads them with the rights of an auditor.
//! * [`cells`]: values of a row. [`csv`], [`parquet`]: the formats. [`files`]: files that are renamed when all are
//!   complete.
//!
//! All views are read in one transaction, so the files show the same state. Rows are written while Postgres sends them.
//! Until all files are complete, their names end with `.partial`.

mod auditor;
mod cells;
mod csv;
mod files;
mod parquet;
mod views;

use std::{fs::File, path::PathBuf, process::ExitCode};

use anyhow::Context;
use chrono::{DateTime, Days, NaiveDate, NaiveTime, Utc};
use serde::Serialize;

use self::{
    auditor::Auditor,
    cells::{CellValue, Column},
    csv::CsvWriter,
    files::ExportFolder,
    parquet::ParquetWriter,
    views::{VIEWS, View},
};
use super::output;
use settings::Config;

#[derive(Debug, clap::Args)]
#[command(after_help = "Reads as the role dispatchq_auditor: point DISPATCHQ_DATABASE__URL to its login.\n\n\
    Examples:\n  dispatchq export --day 2026-03-01 --format parquet\n  dispatchq export --day 2026-03-01 --format csv --out /srv/exports/2026-03-01")]
pub(super) struct Args {
    /// Day in UTC, such as 2026-03-01; it must be over
    #[arg(long, value_parser = parse_day)]
    day: NaiveDate,
    /// Format of the files
    #[arg(long, value_enum)]
    format: Format,
    /// Folder of the files, created if it is missing [default: ./audit-DAY]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    Csv,
    Parquet,
}

impl Format {
    fn file_of(self, view: &View) -> String {
        let ending = match self {
            Self::Csv => "csv",
            Self::Parquet => "parquet",
        };
        format!("{}.{ending}", view.name)
    }
}

/// Result of an export, for `--json`.
#[derive(Debug, Serialize)]
struct Export {
    day: NaiveDate,
    format: Format,
    folder: PathBuf,
    files: Vec<ExportedFile>,
}

#[derive(Debug, Serialize)]
struct ExportedFile {
    view: &'static str,
    file: String,
    rows: u64,
    bytes: u64,
}

impl Args {
    pub(super) async fn run(self, config: Config) -> anyhow::Result<ExitCode> {
        let out = self.out.clone().unwrap_or_else(|| PathBuf::from(format!("audit-{}", self.day)));
        let names: Vec<String> = VIEWS.iter().map(|view| self.format.file_of(view)).collect();
        let mut folder = ExportFolder::open(out, &names)?;
        let mut auditor = Auditor::connect(&config.database).await?;
        auditor.require_past(self.day_end()).await?;
        let mut files = Vec::new();
        for (view, file) in VIEWS.iter().zip(names) {
            let (rows, bytes) = self
                .export_view(&mut auditor, view, folder.create(&file)?)
                .await
                .with_context(|| format!("cannot export {}", view.name))?;
            files.push(ExportedFile { view: view.name, file, rows, bytes });
        }
        let folder = folder.publish()?;
        self.print(&Export { day: self.day, format: self.format, folder, files })?;
        Ok(ExitCode::SUCCESS)
    }

    fn day_start(&self) -> DateTime<Utc> {
        self.day.and_time(NaiveTime::MIN).and_utc()
    }

    fn day_end(&self) -> DateTime<Utc> {
        self.day_start() + Days::new(1)
    }

    /// Writes the rows of a view. Returns their number and the size of the file. Writes to the file block this thread,
    /// which has no other work.
    async fn export_view(&self, auditor: &mut Auditor, view: &View, file: File) -> anyhow::Result<(u64, u64)> {
        let columns = auditor.list_columns(view).await?;
        let mut writer = RowWriter::new(self.format, file, &columns)?;
        let mut rows = 0;
        auditor
            .read_rows(view, &columns, self.day_start()..self.day_end(), |cells| {
                rows += 1;
                writer.write_row(cells)
            })
            .await?;
        Ok((rows, writer.finish()?))
    }

    fn print(&self, export: &Export) -> anyhow::Result<()> {
        if self.json {
            return output::print_json(export);
        }
        let rows = export.files.iter().map(|file| [file.file.clone(), file.rows.to_string(), file.bytes.to_string()]);
        output::print_rows(&["FILE", "ROWS", "BYTES"], rows, "");
        output::print_escaped(&format!(
            "\n{} of {} UTC in {}",
            export.files.len(),
            export.day,
            export.folder.display()
        ));
        Ok(())
    }
}

/// Writer of one file.
#[derive(Debug)]
enum RowWriter {
    Csv(CsvWriter),
    Parquet(Box<ParquetWriter>),
}

impl RowWriter {
    fn new(format: Format, file: File, columns: &[Column]) -> anyhow::Result<Self> {
        Ok(match format {
            Format::Csv => Self::Csv(CsvWriter::new(file, columns)?),
            Format::Parquet => Self::Parquet(Box::new(ParquetWriter::new(file, columns)?)),
        })
    }

    fn write_row(&mut self, cells: Vec<CellValue>) -> anyhow::Result<()> {
        match self {
            Self::Csv(writer) => Ok(writer.write_row(&cells)?),
            Self::Parquet(writer) => writer.write_row(cells),
        }
    }

    /// Writes what is buffered. Returns the size of the file.
    fn finish(self) -> anyhow::Result<u64> {
        let file = match self {
            Self::Csv(writer) => writer.finish()?,
            Self::Parquet(writer) => writer.finish()?,
        };
        Ok(file.metadata()?.len())
    }
}

fn parse_day(text: &str) -> Result<NaiveDate, String> {
    let day = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok();
    // Later days do not fit into the type of Postgres.
    day.filter(|day| (1970..=9999).contains(&chrono::Datelike::year(day)))
        .ok_or_else(|| "expected a day such as 2026-03-01".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn day_is_a_date() {
        assert_eq!(parse_day("2026-03-01").unwrap().to_string(), "2026-03-01");
        for bad in ["", "yesterday", "2026-02-30", "2026-03-01T00:00:00Z", "01.03.2026", "1969-12-31", "10000-01-01"] {
            parse_day(bad).unwrap_err();
        }
    }
}
