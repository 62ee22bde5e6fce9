//! Columns of a ride file that an order needs. The names vary by month and publisher.

use std::{fmt, io::Read};

use anyhow::{Context, bail};
use csv::{Reader, StringRecord};
use model::plain_text::is_plain;

const ZONE: &[&str] = &["pickup_location_id", "PULocationID"];
const TIME: &[&str] = &["pickup_datetime", "tpep_pickup_datetime", "lpep_pickup_datetime"];
const DROPOFF: &[&str] = &["dropoff_datetime", "tpep_dropoff_datetime", "lpep_dropoff_datetime"];
const PAYMENT: &[&str] = &["payment_type"];
const AMOUNT: &[&str] = &["total_amount"];

/// Positions of columns in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RideColumns {
    pub(super) zone: usize,
    pub(super) time: usize,
    /// Needed only for the length of the trip. A file may lack it.
    pub(super) dropoff: Option<usize>,
    pub(super) payment: usize,
    pub(super) amount: usize,
    /// Length of the header.
    pub(super) count: usize,
}

impl RideColumns {
    /// Finds the columns in a header, ignoring case. `file` is only for errors.
    pub(super) fn find_in_header(header: &StringRecord, file: &dyn fmt::Display) -> anyhow::Result<Self> {
        let position = |names: &[&str]| header.iter().position(|column| names.iter().any(|n| names_match(column, n)));
        let needed = |names: &[&str]| match position(names) {
            Some(position) => Ok(position),
            None => bail!(
                "{file} has no column {}; its first line must name the columns of TLC trip records, and names: {}",
                names.join(" or "),
                shorten_header(header)
            ),
        };
        Ok(Self {
            zone: needed(ZONE)?,
            time: needed(TIME)?,
            dropoff: position(DROPOFF),
            payment: needed(PAYMENT)?,
            amount: needed(AMOUNT)?,
            count: header.len(),
        })
    }
}

/// Opens a ride file and finds its columns. `name` is only for errors.
pub(super) fn open_rides<R: Read>(text: R, name: &dyn fmt::Display) -> anyhow::Result<(Reader<R>, RideColumns)> {
    // Flexible: a row of another length is one dirty row and does not end the file.
    let mut csv = csv::ReaderBuilder::new().flexible(true).trim(csv::Trim::All).from_reader(text);
    let header = csv.byte_headers().with_context(|| format!("cannot read the first line of {name}"))?.clone();
    let text = StringRecord::from_byte_record(header).ok().filter(|header| header.iter().all(is_plain));
    let Some(header) = text else {
        bail!("{name}: this is not CSV; give the CSV file of a month of TLC trip records, and convert parquet first")
    };
    let columns = RideColumns::find_in_header(&header, name)?;
    Ok((csv, columns))
}

/// Shortens a header for an error message. If the file is not a ride file, its first line may have any length.
fn shorten_header(header: &StringRecord) -> String {
    const MOST: usize = 300;
    let names = header.iter().collect::<Vec<_>>().join(", ");
    match names.char_indices().nth(MOST) {
        Some((end, _)) => format!("{} ...", &names[..end]),
        None if names.is_empty() => "nothing".to_owned(),
        None => names,
    }
}

/// Returns whether two names are equal apart from case and separators, which differ between publishers.
pub(super) fn names_match(a: &str, b: &str) -> bool {
    let letters = |s: &str| s.chars().filter(|c| c.is_alphanumeric()).collect::<String>().to_lowercase();
    letters(a) == letters(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(header: &str) -> anyhow::Result<RideColumns> {
        RideColumns::find_in_header(&StringRecord::from(header.split(',').collect::<Vec<_>>()), &"rides.csv")
    }

    #[test]
    fn names_of_all_months_are_known() {
        let official =
            find("VendorID,tpep_pickup_datetime,tpep_dropoff_datetime,PULocationID,payment_type,total_amount").unwrap();
        assert_eq!((official.zone, official.time, official.dropoff), (3, 1, Some(2)));
        let green = find("lpep_pickup_datetime,PULOCATIONID,Payment_Type,Total_Amount").unwrap();
        assert_eq!((green.zone, green.time, green.dropoff), (1, 0, None));
        let sample = find("pickup_datetime,dropoff_datetime,pickup_location_id,payment_type,total_amount").unwrap();
        assert_eq!((sample.zone, sample.payment, sample.amount), (2, 3, 4));
    }

    #[test]
    fn missing_column_error_lists_the_columns() {
        let error = find("pickup_datetime,pickup_location_id,payment_type").unwrap_err().to_string();
        assert!(error.contains("rides.csv has no column total_amount"), "{error}");
        assert!(error.contains("names: pickup_datetime, pickup_location_id, payment_type"), "{error}");
    }

    // Rule F25: If a binary file is given as a ride file, the error is "this is not CSV" and shows none of its bytes.
    #[test]
    fn binary_file_is_not_csv() {
        let files: [&[u8]; 4] = [b"PAR1\x15\x04\x15\x00\nPAR1", b"\x1b]52;c;bHM=\x07,b\n", b"a\xff,b\n", b"\0\0\n"];
        for bytes in files {
            let error = open_rides(bytes, &"rides.parquet").err().unwrap().to_string();
            assert!(error.starts_with("rides.parquet: this is not CSV"), "{error}");
            assert!(is_plain(&error), "{error}");
        }
    }
}
