//! Placeholders in a text, such as `{order_id}`.

use std::fmt;

use crate::plain_text;

/// Maximum length of a configured text, in characters.
pub const MAX_TEMPLATE_CHARS: usize = 500;

/// A value that a text can contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Placeholder {
    OrderId,
    /// Reason why the order ended, as a sentence in the same language.
    Reason,
    ServiceType,
    /// Distance with one decimal, in the notation of the language.
    DistanceKm,
}

impl Placeholder {
    pub const fn name(self) -> &'static str {
        match self {
            Self::OrderId => "order_id",
            Self::Reason => "reason",
            Self::ServiceType => "service_type",
            Self::DistanceKm => "distance_km",
        }
    }
}

impl fmt::Display for Placeholder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{}}}", self.name())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TemplatePart<'a> {
    Text(&'a str),
    Named(&'a str),
    Brace(&'a str),
}

fn split_parts(template: &str) -> Vec<TemplatePart<'_>> {
    let (mut parts, mut rest) = (Vec::new(), template);
    while let Some(at) = rest.find(['{', '}']) {
        let (text, from_brace) = rest.split_at(at);
        parts.push(TemplatePart::Text(text));
        let named = from_brace.strip_prefix('{').and_then(|after| after.split_once('}'));
        rest = if let Some((name, after)) = named.filter(|(name, _)| !name.contains('{')) {
            parts.push(TemplatePart::Named(name));
            after
        } else {
            let (brace, after) = from_brace.split_at(1);
            parts.push(TemplatePart::Brace(brace));
            after
        };
    }
    parts.push(TemplatePart::Text(rest));
    parts
}

/// Returns the error for an invalid template with these allowed placeholders; `None` if it is valid.
pub(super) fn find_template_problem(template: &str, allowed: &[Placeholder]) -> Option<String> {
    if template.trim().is_empty() {
        return Some("is empty: the person would get no text".to_owned());
    }
    if let Some(problem) = plain_text::find_problem(template, MAX_TEMPLATE_CHARS) {
        return Some(problem);
    }
    split_parts(template).into_iter().find_map(|part| match part {
        TemplatePart::Named(name) if allowed.iter().all(|placeholder| placeholder.name() != name) => {
            let cure = if allowed.is_empty() {
                "this text has none".to_owned()
            } else {
                format!("this text has {}", list_placeholders(allowed))
            };
            Some(format!("no placeholder {{{name}}}; {cure}"))
        }
        TemplatePart::Brace(brace) => Some(format!("the '{brace}' is unpaired; braces are only for placeholders")),
        TemplatePart::Text(_) | TemplatePart::Named(_) => None,
    })
}

fn list_placeholders(placeholders: &[Placeholder]) -> String {
    placeholders.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Replaces each placeholder by its value. A placeholder without a value stays; braces in values have no effect.
pub(super) fn fill_template(template: &str, values: &[(Placeholder, &str)]) -> String {
    let mut filled = String::with_capacity(template.len());
    for part in split_parts(template) {
        match part {
            TemplatePart::Text(text) | TemplatePart::Brace(text) => filled.push_str(text),
            TemplatePart::Named(name) => match values.iter().find(|(placeholder, _)| placeholder.name() == name) {
                Some((_, value)) => filled.push_str(value),
                None => filled.extend(["{", name, "}"]),
            },
        }
    }
    filled
}
