//! Metric labels of areas. Producers choose the names of areas, so wrong names must not use memory or expose personal
//! data. Texts that are not area codes, and all areas after the first 300, get the label "other".

use std::collections::HashSet;

use model::ids::AreaId;
use parking_lot::Mutex;
/// Maximum number of areas with their own label in one process.
const MOST: usize = 300;
const OTHER: &str = "other";

static SEEN: Mutex<Option<HashSet<String>>> = Mutex::new(None);

/// Returns the label of an order's area, or an empty text if the order has no area.
pub fn label_of(area: Option<&AreaId>) -> String {
    let Some(area) = area else { return String::new() };
    if !is_code(area) {
        return OTHER.to_owned();
    }
    let mut seen = SEEN.lock();
    known_or_other(seen.get_or_insert_default(), area).to_owned()
}

/// Returns whether the text looks like a code such as JKT-PUSAT. It must start with a letter, which coordinates and
/// phone numbers do not.
fn is_code(area: &str) -> bool {
    area.len() <= 32
        && area.starts_with(|c: char| c.is_ascii_alphabetic())
        && area.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
}

fn known_or_other<'a>(seen: &mut HashSet<String>, area: &'a str) -> &'a str {
    if seen.contains(area) || (seen.len() < MOST && seen.insert(area.to_owned())) { area } else { OTHER }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_area_text_is_labelled_other() {
        assert_eq!(label_of(Some(&"JKT-PUSAT".into())), "JKT-PUSAT");
        assert_eq!(label_of(None), "");
        for text in ["-6.2088,106.8456", "+62 812 3456", "0812345678", "anna@example.com", "Jalan Thamrin 1"] {
            assert_eq!(label_of(Some(&text.into())), OTHER, "{text}");
        }
    }

    #[test]
    fn area_labels_are_bounded() {
        let mut seen = HashSet::new();
        for n in 0..MOST {
            let area = format!("A{n}");
            assert_eq!(known_or_other(&mut seen, &area), area);
        }
        assert_eq!(known_or_other(&mut seen, "ONE-MORE"), OTHER);
        assert_eq!(known_or_other(&mut seen, "A7"), "A7");
        assert_eq!(seen.len(), MOST);
    }
}
