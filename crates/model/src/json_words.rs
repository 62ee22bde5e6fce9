//! Errors of JSON, query and number parsers in plain words. The parsers' own texts name Rust types, which API users do
//! not know.

/// Translates an error text of serde, serde_json, axum or a number parser. Other texts stay unchanged.
pub fn plain_error(text: &str) -> String {
    let text = FRAMES.iter().find_map(|frame| text.strip_prefix(frame)).unwrap_or(text);
    let (path, rule) = split_path(text);
    let rule = plain_rule(rule);
    if path.is_empty() { rule } else { format!("{path}: {rule}") }
}

/// Text that a framework puts before the error itself.
const FRAMES: [&str; 4] = [
    "Failed to deserialize the JSON body into the target type: ",
    "Failed to parse the request body as JSON: ",
    "Failed to deserialize query string: ",
    "Failed to deserialize form body: ",
];

/// Splits the path of a member, such as `pickup.latitude`, from the rule that the member violates.
fn split_path(text: &str) -> (&str, &str) {
    let is_path =
        |path: &str| !path.is_empty() && path.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.[]?".contains(&b));
    match text.split_once(": ") {
        Some((path, rule)) if is_path(path) => (path, rule),
        _ => ("", text),
    }
}

fn plain_rule(rule: &str) -> String {
    let (rule, place) = split_position(rule);
    let rule = rule.trim_end_matches('.');
    if let Some(rest) = rule.strip_prefix("invalid type: ")
        && let Some((found, wanted)) = rest.rsplit_once(", expected ")
    {
        return format!("expected {}, not {}", plain_type(wanted), plain_value(found));
    }
    if let Some(rest) = rule.strip_prefix("invalid value: ")
        && let Some((found, wanted)) = rest.rsplit_once(", expected ")
    {
        return format!("expected {}, not {}", plain_type(wanted), quoted_value(found));
    }
    if let Some(rest) = rule.strip_prefix("invalid length ")
        && let Some((length, wanted)) = rest.split_once(", expected ")
    {
        return format!("expected {}, not {length} items", plain_type(wanted));
    }
    if let Some(rest) = rule.strip_prefix("unknown variant `")
        && let Some((found, wanted)) = rest.split_once("`, ")
    {
        return format!("'{found}' is not known; expected {}", plain_list(wanted));
    }
    if let Some(rest) = rule.strip_prefix("unknown field `") {
        return match rest.split_once("`, ") {
            Some((found, wanted)) if wanted.starts_with("expected ") => {
                format!("there is no member '{found}'; expected {}", plain_list(wanted))
            }
            _ => format!("there is no member '{}'", rest.split('`').next().unwrap_or_default()),
        };
    }
    if let Some(name) = quoted_name(rule, "missing field `") {
        return format!("{name} is missing");
    }
    if let Some(name) = quoted_name(rule, "duplicate field `") {
        return format!("{name} is given twice");
    }
    if rule.contains("does not have variant constructor") {
        return "this word is not known".to_owned();
    }
    if let Some((_, plain)) = SYNTAX.iter().find(|(known, _)| rule.starts_with(known)) {
        return match place {
            Some(place) => format!("{plain} (line {place})"),
            None => (*plain).to_owned(),
        };
    }
    match place {
        Some(place) => format!("{rule} (line {place})"),
        None => rule.to_owned(),
    }
}

/// Starts of JSON and number parser errors, with their plain texts.
const SYNTAX: [(&str, &str); 21] = [
    ("EOF while parsing", "the JSON ends too early"),
    // serde_json reports this for invalid JSON, and for a number where a word is expected.
    ("expected value", "this is not JSON, or not the expected value"),
    ("expected ident", "this is not JSON"),
    ("expected `:`", "this is not JSON: a ':' is missing"),
    ("expected `,` or `}`", "this is not JSON: a ',' or a '}' is missing"),
    ("expected `,` or `]`", "this is not JSON: a ',' or a ']' is missing"),
    ("key must be a string", "this is not JSON: the name of a member must be in double quotes"),
    ("trailing comma", "this is not JSON: a ',' too many"),
    ("trailing characters", "there is more text after the JSON"),
    ("control character", "a text contains a control character; write it as \\n or \\u000a"),
    ("invalid escape", "a text contains a '\\' that escapes nothing"),
    ("invalid unicode code point", "a text contains a character that is not Unicode"),
    ("lone leading surrogate", "a text contains a character that is not Unicode"),
    ("number out of range", "the number is too large"),
    ("invalid number", "this is not a number as JSON writes it"),
    ("recursion limit exceeded", "the JSON is nested too deeply"),
    ("invalid digit found in string", "expected a whole number"),
    ("invalid float literal", "expected a number"),
    ("number too large to fit", "the number is too large"),
    ("cannot parse integer from empty string", "expected a whole number, not nothing"),
    ("cannot parse float from empty string", "expected a number, not nothing"),
];

/// Splits off the position that serde_json appends. The position is kept only for syntax errors; for other errors the
/// path is more useful.
fn split_position(rule: &str) -> (&str, Option<&str>) {
    match rule.rsplit_once(" at line ") {
        Some((rule, position)) if position.contains("column") => {
            let is_syntax = SYNTAX.iter().any(|(known, _)| rule.starts_with(known));
            (rule, Some(position).filter(|_| is_syntax))
        }
        _ => (rule, None),
    }
}

fn quoted_name<'a>(rule: &'a str, start: &str) -> Option<&'a str> {
    rule.strip_prefix(start)?.split('`').next()
}

/// Returns a list such as "expected one of `a`, `b`" or "expected `a` or `b`" without prefix and back quotes.
fn plain_list(wanted: &str) -> String {
    let words = wanted.strip_prefix("expected ").unwrap_or(wanted);
    words.replace('`', "")
}

fn plain_type(wanted: &str) -> String {
    let plain = match wanted {
        "a string" | "string" | "a borrowed string" | "str" | "a character" => "a text",
        "a boolean" | "bool" => "true or false",
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" | "a nonzero u32" | "a nonzero usize" | "a nonzero u64" => {
            "a whole number of 0 or more"
        }
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" | "integer" => "a whole number",
        "f32" | "f64" => "a number",
        "a sequence" | "sequence" => "a list",
        "a map" | "map" => "an object",
        "unit" | "null" => "null",
        "variant identifier" | "string or map" => "one of the known words",
        "a formatted date and time string or a unix timestamp" | "an RFC 3339 formatted date and time string" => {
            "a time such as 2030-01-01T08:00:00Z"
        }
        other if other.starts_with("struct ") || other.starts_with("internally tagged enum ") => "an object",
        other if other.starts_with("enum ") => "one of the known words",
        other if other.starts_with("a tuple") || other.starts_with("an array") => "a list",
        other => return other.replace('`', ""),
    };
    plain.to_owned()
}

fn plain_value(found: &str) -> String {
    let kind = found.split([' ', '`']).next().unwrap_or(found);
    match kind {
        "string" | "character" => "a text".to_owned(),
        "integer" | "floating" => format!("the number {}", quoted_value(found)),
        "boolean" => quoted_value(found),
        "sequence" => "a list".to_owned(),
        "map" | "newtype" | "struct" => "an object".to_owned(),
        "null" | "unit" => "null".to_owned(),
        _ => found.replace('`', ""),
    }
}

/// Returns the value between back quotes, or the whole text if there are none.
fn quoted_value(found: &str) -> String {
    found.split('`').nth(1).unwrap_or(found).trim_start_matches("string ").to_owned()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read")]
    struct Wanted {
        name: String,
        #[serde(default)]
        count: u32,
        #[serde(default)]
        share: f64,
        #[serde(default)]
        list: Vec<String>,
        #[serde(default)]
        step: Step,
        #[serde(default)]
        is_on: bool,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Step {
        #[default]
        Start,
        Done,
    }

    // Rule U10: Errors about JSON state in plain words what is expected, and name no Rust type.
    #[test]
    fn json_errors_name_no_rust_type() {
        for (json, plain) in [
            ("{", "the JSON ends too early (line 1 column 1)"),
            ("x", "this is not JSON, or not the expected value (line 1 column 1)"),
            ("{} {}", "name is missing"),
            (r#"{"name":7}"#, "expected a text, not the number 7"),
            (r#"{"name":null}"#, "expected a text, not null"),
            (r#"{"name":["a"]}"#, "expected a text, not a list"),
            (r#"{"name":"a","count":-1}"#, "expected a whole number of 0 or more, not -1"),
            (r#"{"name":"a","count":1.5}"#, "expected a whole number of 0 or more, not the number 1.5"),
            (r#"{"name":"a","share":"much"}"#, "expected a number, not a text"),
            (r#"{"name":"a","list":{}}"#, "expected a list, not an object"),
            (r#"{"name":"a","is_on":1}"#, "expected true or false, not the number 1"),
            (r#"{"name":"a","step":"over"}"#, "'over' is not known; expected start or done"),
            (r#"{"name":"a","name":"b"}"#, "name is given twice"),
            (
                r#"{"name":"a","colour":1}"#,
                "there is no member 'colour'; expected one of name, count, share, list, step, is_on",
            ),
            ("[]", "expected an object, not 0 items"),
            ("7", "expected an object, not the number 7"),
            (r#"{"name":"a",}"#, "this is not JSON: a ',' too many (line 1 column 13)"),
        ] {
            let error = serde_json::from_str::<Wanted>(json).unwrap_err().to_string();
            let shown = plain_error(&error);
            for term in ["serde", "enum", "variant", "struct", "u32", "f64", "EOF", "`", "map", "sequence"] {
                assert!(!shown.contains(term), "{term} in: {shown} ({error})");
            }
            assert_eq!(shown, plain, "{json}: {error}");
        }
    }

    #[test]
    fn path_and_unknown_texts_stay() {
        for (text, plain) in [
            (
                "Failed to deserialize the JSON body into the target type: pickup.latitude: invalid type: null, \
                 expected f64 at line 1 column 40",
                "pickup.latitude: expected a number, not null",
            ),
            (
                "Failed to deserialize query string: limit: invalid digit found in string",
                "limit: expected a whole number",
            ),
            ("limit must be 1 to 500", "limit must be 1 to 500"),
            ("an enum OrderStep does not have variant constructor x", "this word is not known"),
        ] {
            assert_eq!(plain_error(text), plain);
        }
    }
}
