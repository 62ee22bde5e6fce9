//! Formats amounts of money for people. Pure.

/// Currencies without a smaller unit: those of ISO 4217, and the rupiah. The sen is out of use, so rupiah amounts are
/// whole rupiah.
const NO_MINOR_UNIT: [&str; 17] = [
    "BIF", "CLP", "DJF", "GNF", "IDR", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "VND", "VUV", "XAF", "XOF",
    "XPF",
];
/// Currencies whose smaller unit is a thousandth.
const THREE_DIGITS: [&str; 7] = ["BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"];

/// Formats an amount for people: `Rp 150,000`, `USD 1,234.50`. `minor` is in the smallest unit of the currency. Sums of
/// amounts may exceed 64 bits.
pub fn format_amount(minor: impl Into<i128>, currency: &str) -> String {
    let AmountParts { sign, whole, part } = split_amount(minor.into(), currency);
    let symbol = if currency == "IDR" { "Rp" } else { currency };
    format!("{symbol} {sign}{}{part}", group_digits(whole))
}

/// Formats an amount for a spreadsheet: `150000`, `1234.50`.
pub fn format_plain_amount(minor: impl Into<i128>, currency: &str) -> String {
    let AmountParts { sign, whole, part } = split_amount(minor.into(), currency);
    format!("{sign}{whole}{part}")
}

struct AmountParts {
    sign: &'static str,
    whole: u128,
    /// Decimals with the point; empty for a currency without a smaller unit.
    part: String,
}

fn split_amount(minor: i128, currency: &str) -> AmountParts {
    let digits: u32 = if NO_MINOR_UNIT.contains(&currency) {
        0
    } else if THREE_DIGITS.contains(&currency) {
        3
    } else {
        2
    };
    let unit = 10_u128.pow(digits);
    let (whole, part) = (minor.unsigned_abs() / unit, minor.unsigned_abs() % unit);
    let width = digits as usize;
    let part = if digits == 0 { String::new() } else { format!(".{part:0width$}") };
    AmountParts { sign: if minor < 0 { "-" } else { "" }, whole, part }
}

/// Formats a number with thousands separators: `1,234,567`.
fn group_digits(number: u128) -> String {
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
    fn amounts_are_formatted_for_people() {
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
        assert_eq!(format_amount(2 * i128::from(i64::MAX), "EUR"), "EUR 184,467,440,737,095,516.14");
    }

    // Rule U16: Amounts of an export have the decimals of their currency.
    #[test]
    fn plain_amounts_have_their_decimals() {
        for (minor, currency, text) in
            [(150_000, "IDR", "150000"), (123_450, "USD", "1234.50"), (5, "EUR", "0.05"), (-12_345, "KWD", "-12.345")]
        {
            assert_eq!(format_plain_amount(minor, currency), text);
        }
    }
}
