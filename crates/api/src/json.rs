//! Reads the JSON of all requests.
//!
//! A byte-order mark is skipped. A body that is not JSON is answered 400 MALFORMED. JSON that does not fit the
//! operation is answered 422 INVALID. The error names the member that has the wrong type or is missing, unknown or
//! repeated.

use model::{input, json_words::plain_error};
use serde::de::DeserializeOwned;
use serde_json::{Value, error::Category};

use super::error::ApiError;
use foundation::strict_json::{self, Objects, UniqueNames};

/// Reads a JSON body.
pub(crate) fn read_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    let body = input::skip_byte_order_mark(body);
    without_nul(body)?;
    refuse_doubled_names(body)?;
    strict_json::read(body).map_err(|error| ApiError::from_json_error("", &error))
}

/// Refuses invalid JSON, and JSON with a repeated member in an object.
fn refuse_doubled_names(body: &[u8]) -> Result<(), ApiError> {
    match strict_json::read::<UniqueNames>(body) {
        Ok(UniqueNames) => Ok(()),
        Err(error) if error.inner().classify() == Category::Data => Err(ApiError::from_json_error("", &error)),
        Err(error) => {
            let plain = plain_error(&error.inner().to_string());
            Err(ApiError::Malformed(format!("the body is not JSON: {plain}")))
        }
    }
}

/// Reads JSON that is the member `name` of a body.
pub(crate) fn read_member<T: DeserializeOwned>(name: &str, value: Value) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(Objects(value)).map_err(|error| ApiError::from_json_error(name, &error))
}

/// Refuses JSON with the escape `\u0000`, because Postgres cannot store this character in text. The bare byte is not
/// valid JSON.
pub(crate) fn without_nul(json: &[u8]) -> Result<(), ApiError> {
    const NUL: &[u8] = br"u0000";
    let mut rest = json;
    while let Some(at) = rest.iter().position(|b| *b == b'\\') {
        if rest[at + 1..].starts_with(NUL) {
            return Err(ApiError::invalid_member("", "the body must not contain the character U+0000"));
        }
        // Skips the backslash and the character it escapes. The second of two backslashes escapes nothing.
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Step {
        Start,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Place {
        #[serde(rename = "lat")]
        _lat: f64,
    }

    #[derive(Debug, Deserialize)]
    struct Request {
        #[serde(rename = "action")]
        _action: Step,
        #[serde(rename = "place")]
        _place: Option<Place>,
        #[serde(default, rename = "list")]
        _list: Vec<u8>,
    }

    /// Returns the status of the refusal and the member that it names.
    fn refusal(body: &str) -> (u16, String) {
        let error = read_json::<Request>(body.as_bytes()).unwrap_err();
        (error.status_code().as_u16(), error.broken_pointer().unwrap_or_default())
    }

    // Rule F10: If an enum member has the wrong JSON type, the answer is 422 and names the member.
    #[test]
    fn wrong_json_types_name_their_member() {
        for value in ["5", "null", "true", "[]", "{}", "\"stop\"", "{\"start\":1}"] {
            assert_eq!(refusal(&format!("{{\"action\":{value}}}")), (422, "#/action".to_owned()), "{value}");
        }
        assert_eq!(refusal("{}"), (422, "#/action".to_owned()));
        assert_eq!(refusal("[]"), (422, "#".to_owned()));
        assert_eq!(refusal(r#"["start", null]"#), (422, "#".to_owned()));
        assert_eq!(refusal(r#"{"action":"start","place":[1]}"#), (422, "#/place".to_owned()));
        assert_eq!(refusal(r#"{"action":"start","place":{"lat":"north"}}"#), (422, "#/place/lat".to_owned()));
        assert_eq!(refusal(r#"{"action":"start","place":{}}"#), (422, "#/place/lat".to_owned()));
        assert_eq!(refusal(r#"{"action":"start","place":{"lat":1,"lng":2}}"#), (422, "#/place/lng".to_owned()));
        assert_eq!(refusal(r#"{"action":"start","list":[1,-1]}"#), (422, "#/list/1".to_owned()));
        assert_eq!(refusal(r#"{"action":"start","action":"start"}"#), (422, "#/action".to_owned()));
        assert_eq!(refusal(r#"{"action":"start","other":{"a":1,"a":2}}"#), (422, "#/other/a".to_owned()));
        for text in ["{", "", "nonsense", "{}{}", "{\"action\":\"start\"} x", "\u{feff}\u{feff}{}"] {
            assert_eq!(refusal(text).0, 400, "{text:?}");
        }
        assert!(
            read_member::<Request>("filter", json!({ "action": 1 })).unwrap_err().broken_pointer().unwrap()
                == "#/filter/action"
        );
    }

    // Rule F9: A byte-order mark before JSON is skipped.
    #[test]
    fn byte_order_mark_before_json_is_skipped() {
        let read: BTreeMap<String, u8> = read_json("\u{feff}{\"a\":1}".as_bytes()).unwrap();
        assert_eq!(read["a"], 1);
    }

    #[test]
    fn escaped_nul_is_refused() {
        for bad in [r#""\u0000""#, r#"{"a":"x\\\u0000"}"#, r#"["\n\u0000"]"#] {
            assert!(without_nul(bad.as_bytes()).is_err(), "{bad}");
        }
        for good in ["", "\\", r#""\\u0000""#, r#""u0000""#, r#""\u0001""#] {
            assert!(without_nul(good.as_bytes()).is_ok(), "{good}");
        }
    }
}
