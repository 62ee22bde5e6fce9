//! Amounts of money as people read them. Pure.

/// Currencies without a smaller unit: those of ISO 4217, and the rupiah, whose sen is out of use: its amounts are whole
/// rupiah.
const NO_MINOR_UNIT: [&str; 17] = [
    "BIF", "CLP", "DJF", "GNF", "IDR", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "VND", "VUV", "XAF", "XOF",
    "XPF",
];
/// A thousandth.
const THREE_DIGITS: [&str; 7] = ["BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"];

/// `Rp 150,000`, `USD 1,234.50`. `minor` is in the smallest unit of the currency.
pub fn format_amount(minor: i64, currency: &str) -> String {
    let digits = if NO_MINOR_UNIT.contains(&currency) {
        0
    } else if THREE_DIGITS.contains(&currency) {
        3
    } else {
        2
    };
    let unit = 10_u64.pow(digits);
    let (whole, part) = (minor.unsigned_abs() / unit, minor.unsigned_abs() % unit);
    let sign = if minor < 0 { "-" } else { "" };
    let symbol = if currency == "IDR" { "Rp" } else { currency };
    let width = digits as usize;
    let part = if digits == 0 { String::new() } else { format!(".{part:0width$}") };
    format!("{symbol} {sign}{}{part}", group_digits(whole))
}

/// `1,234,567`
fn group_digits(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_read_as_people_write_them() {
        for (minor, currency, text) in [
            (150_000, "IDR", "Rp 150,000"),
            (0, "IDR", "Rp 0"),
            (999, "JPY", "JPY 999"),
            (1_234_567, "JPY", "JPY 1,234,567"),
            (123_450, "USD", "USD 1,234.50"),
            (5, "EUR", "EUR 0.05"),
            (12_345, "KWD", "KWD 12.345"),
            (-100_000, "SGD", "SGD -1,000.00"),
            (i64::MAX, "EUR", "EUR 92,233,720,368,547,758.07"),
        ] {
            assert_eq!(format_amount(minor, currency), text);
        }
    }
}
