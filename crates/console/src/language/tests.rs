//! Tests of the language of a request.

use axum::http::header::COOKIE as COOKIES;

use super::*;

fn language_of(accepted: Option<&'static str>, cookie: Option<&'static str>) -> &'static str {
    let mut headers = HeaderMap::new();
    for (name, value) in [(ACCEPT_LANGUAGE, accepted), (COOKIES, cookie)] {
        if let Some(value) = value {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
    Language::of_request(&headers).tag()
}

#[test]
fn cookie_overrides_browser_language() {
    for (accepted, cookie, language) in [
        (None, None, "en"),
        (Some("id"), None, "id"),
        (Some("ID-id, en;q=0.5"), None, "id"),
        (Some("en-GB,en;q=0.9,id;q=0.8"), None, "en"),
        (Some("en;q=0.3, id; q=0.4"), None, "id"),
        (Some("id;q=0"), None, "en"),
        (Some("id;q=much, fr, *"), None, "en"),
        (Some("id;level=1"), None, "en"),
        (Some("fr, de;q=0.9, id;q=0.1"), None, "id"),
        (Some("idx"), None, "en"),
        (Some(""), Some("dispatchq_language=id"), "id"),
        (Some("id"), Some("other=1; dispatchq_language=en"), "en"),
        (Some("id"), Some("dispatchq_language=fr"), "id"),
        (None, Some("dispatchq_language="), "en"),
    ] {
        assert_eq!(language_of(accepted, cookie), language, "{accepted:?} {cookie:?}");
    }
}
