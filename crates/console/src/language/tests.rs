//! Tests of the language of a request, and of templates: each text must have both languages.

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

#[tokio::test]
async fn texts_are_in_the_language_of_their_request() {
    let count = 3;
    let told = || format!("{}: {}", both("Orders", "Pesanan"), say!("{count} wait", "{count} menunggu"));
    assert_eq!(told(), "Orders: 3 wait");
    assert_eq!(LANGUAGE.scope(Language::Indonesian, async { told() }).await, "Pesanan: 3 menunggu");
    assert_eq!(LANGUAGE.scope(Language::English, async { told() }).await, "Orders: 3 wait");
}

const TEMPLATES: [(&str, &str); 17] = [
    ("action.html", include_str!("../../templates/action.html")),
    ("alerts.html", include_str!("../../templates/alerts.html")),
    ("binding.html", include_str!("../../templates/binding.html")),
    ("desk.html", include_str!("../../templates/desk.html")),
    ("door.html", include_str!("../../templates/door.html")),
    ("driver.html", include_str!("../../templates/driver.html")),
    ("language.html", include_str!("../../templates/language.html")),
    ("layout.html", include_str!("../../templates/layout.html")),
    ("login.html", include_str!("../../templates/login.html")),
    ("new_key.html", include_str!("../../templates/new_key.html")),
    ("now.html", include_str!("../../templates/now.html")),
    ("order.html", include_str!("../../templates/order.html")),
    ("orders.html", include_str!("../../templates/orders.html")),
    ("problem.html", include_str!("../../templates/problem.html")),
    ("ranking.html", include_str!("../../templates/ranking.html")),
    ("refunds.html", include_str!("../../templates/refunds.html")),
    ("table.html", include_str!("../../templates/table.html")),
];
/// Texts that are the same in both languages. Text in `code` is for machines.
const NAMES: [&str; 10] = ["dispatchq", "UTC", "CSV", "Enter", "j", "k", "OTP", "SLA", "m", "Redis"];

/// Returns a text without the parts from `begin` to `end`.
fn without(text: &str, begin: &str, end: &str) -> String {
    let mut parts = text.split(begin);
    let mut left = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        left.push(' ');
        left.push_str(part.split_once(end).unwrap_or_else(|| panic!("no {end} after {begin} in {part}")).1);
    }
    left
}

fn assert_names_alone(place: &str, text: &str) {
    for word in text.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty()) {
        assert!(NAMES.contains(&word), "{place} says '{word}' in one language alone: {text}");
    }
}

#[test]
fn every_template_text_has_both_languages() {
    for (name, template) in TEMPLATES {
        let plain = without(&without(template, "{{", "}}"), "{%", "%}");
        assert_names_alone(name, &without(&without(&plain, "<code", "</code>"), "<", ">"));
        for attribute in ["aria-label=\"", "data-label=\"", "placeholder=\"", "alt=\"", "title=\""] {
            for part in plain.split(attribute).skip(1) {
                let said = part.split('"').next().unwrap_or_default();
                assert!(said.starts_with("dq_") || !said.contains(char::is_alphabetic), "{name}: {attribute}{said}");
            }
        }
    }
}
