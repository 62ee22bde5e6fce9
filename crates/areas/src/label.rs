//! Areas as labels of metrics. Producers name areas, so a mistake of theirs must cost neither memory nor privacy: what looks
//! like no area code, and what comes after the first few hundred, is "other".

use std::collections::HashSet;

use model::ids::AreaId;
use parking_lot::Mutex;
/// Areas one process tells apart.
const MOST: usize = 300;
const OTHER: &str = "other";

static SEEN: Mutex<Option<HashSet<String>>> = Mutex::new(None);

/// The label of an order's area; empty without one.
pub fn label_of(area: Option<&AreaId>) -> String {
    let Some(area) = area else { return String::new() };
    if !is_code(area) {
        return OTHER.to_owned();
    }
    let mut seen = SEEN.lock();
    known_or_other(seen.get_or_insert_default(), area).to_owned()
}

/// As JKT-PUSAT: neither a coordinate nor a telephone number begins with a letter.
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
    fn what_is_no_area_is_no_label() {
        assert_eq!(label_of(Some(&"JKT-PUSAT".into())), "JKT-PUSAT");
        assert_eq!(label_of(None), "");
        for text in ["-6.2088,106.8456", "+62 812 3456", "0812345678", "anna@example.com", "Jalan Thamrin 1"] {
            assert_eq!(label_of(Some(&text.into())), OTHER, "{text}");
        }
    }

    #[test]
    fn areas_without_end_do_not_grow_without_end() {
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
