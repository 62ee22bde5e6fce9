//! Labels that an order requires and a driver has, such as `wheelchair`, `van` or `plumber`. A driver may be asked for
//! an order only if the driver has each of its labels.

use std::collections::BTreeSet;

/// A set of labels, in the order of their bytes. Postgres stores it as an array without repetitions.
pub type SkillSet = BTreeSet<String>;

pub const MOST_SKILLS: usize = 16;
const LONGEST_SKILL: usize = 32;

/// A label, for schemas. Requests are read as texts, so that an error names the member and not a type.
#[derive(Debug, utoipa::ToSchema)]
#[schema(as = Skill, value_type = String, pattern = "^[a-z0-9][a-z0-9_-]{0,31}$", example = "wheelchair")]
#[expect(dead_code, reason = "describes a label; the service reads texts")]
pub struct SkillSchema(String);

/// Returns the rule that the labels violate, worded to follow the name of the set; `None` if they are valid.
pub fn find_skills_problem(skills: &SkillSet) -> Option<String> {
    if skills.len() > MOST_SKILLS {
        return Some(format!("must have at most {MOST_SKILLS} labels, not {}", skills.len()));
    }
    let rule =
        "must be labels of 1 to 32 characters: letters of a to z, digits, '_' or '-', the first a letter or digit";
    (!skills.iter().all(|skill| is_skill(skill))).then(|| rule.to_owned())
}

fn is_skill(text: &str) -> bool {
    let is_first = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.len() <= LONGEST_SKILL
        && bytes.first().is_some_and(|first| is_first(*first))
        && bytes.iter().all(|b| is_first(*b) || matches!(b, b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(labels: &[&str]) -> Option<String> {
        find_skills_problem(&labels.iter().map(|label| (*label).to_owned()).collect())
    }

    #[test]
    fn labels_have_one_alphabet_and_a_maximum() {
        assert_eq!(problem(&[]), None);
        assert_eq!(problem(&["wheelchair", "van_2", "4x4", "air-con", &"x".repeat(32)]), None);
        for bad in ["", "Van", "-van", "_van", "a b", "a\n", "ä", "a.b", &"x".repeat(33)] {
            assert!(problem(&[bad]).is_some_and(|told| told.contains("must be labels")), "{bad:?}");
        }
        let many: Vec<String> = (0..17).map(|n| format!("s{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(problem(&many[..16]), None);
        assert_eq!(problem(&many).unwrap(), "must have at most 16 labels, not 17");
    }
}
