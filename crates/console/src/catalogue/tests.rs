//! Compares the catalogue with the code: both languages have the same keys and placeholders, the code uses each key,
//! and each key that the code uses exists.

use std::{collections::BTreeSet, fs, path::Path};

use model::{
    admission::{decide::AreaRefusal, limits::ThresholdEnforcement},
    binding::{BindingEventKind, BindingPhase, BindingState, StopReason, TransactionStatus},
    messages::MessageKind,
    order::OrderStatus,
    plan::PlanKind,
};

use super::*;
use crate::language::LANGUAGE;

/// Groups whose keys are codes of services, which [`Code`](crate::shown::Code) looks up.
const CODES: [&str; 21] = [
    "admission_verdict",
    "area_mode",
    "area_refusal",
    "binding_event",
    "binding_phase",
    "binding_state",
    "booking_state",
    "driver_notice",
    "enforcement",
    "found_by",
    "message_kind",
    "next_step",
    "offer_state",
    "order_event",
    "order_state",
    "payment_state",
    "plan_action",
    "plan_kind",
    "staff_action",
    "stop_reason",
    "transaction_state",
];
/// Groups whose names the code finds at run time: actions that were done, kinds of jobs, and texts of the script.
const NAMED: [(&str, &str); 3] = [("done", "\""), ("script", "\""), ("job_action", "")];

/// Files without texts of the catalogue.
const LEFT_OUT: [&str; 4] = ["tests.rs", "catalogue.rs", "htmx.min.js", "redoc.standalone.js"];

fn texts(file: &str) -> BTreeMap<String, String> {
    read_texts(file).unwrap().into_iter().collect()
}

/// Returns the names of the placeholders of a text.
fn placeholders(text: &str) -> BTreeSet<&str> {
    text.split('{').skip(1).map(|part| part.split_once('}').expect("a closing brace").0).collect()
}

/// Returns the contents of the files of a folder of this crate, without tests.
fn read_files(folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if !LEFT_OUT.iter().any(|name| path.ends_with(name)) {
                found.push(fs::read_to_string(&path).unwrap_or_default());
            }
        }
    }
    found
}

/// Returns each key that the code names, with the names of its values. `None`: the text is shown without values.
fn used_keys() -> Vec<(String, Option<BTreeSet<String>>)> {
    let mut used = Vec::new();
    for file in [read_files("src"), read_files("templates")].concat() {
        for call in ["tr(\"", "with_code(\""] {
            // `push_str` ends with the same letters.
            let calls = file.match_indices(call).filter(|(at, _)| !file[..*at].ends_with(char::is_alphanumeric));
            let key = |at: usize| file[at + call.len()..].split('"').next().unwrap().to_owned();
            used.extend(calls.map(|(at, _)| (key(at), None)));
        }
        for rest in file.split("fill!(").skip(1) {
            let inner = arguments(rest);
            let mut parts = inner.into_iter();
            let key = parts.next().unwrap();
            let names = parts.map(|part| part.split(['=', ' ']).next().unwrap().to_owned());
            used.push((key.trim_matches('"').to_owned(), Some(names.filter(|name| !name.is_empty()).collect())));
        }
    }
    used
}

/// Returns the arguments of a call whose opening parenthesis is before `rest`.
fn arguments(rest: &str) -> Vec<String> {
    let (mut depth, mut in_text, mut parts) = (0, false, vec![String::new()]);
    for c in rest.chars() {
        match c {
            '"' => in_text = !in_text,
            '(' | '[' | '{' if !in_text => depth += 1,
            ')' if !in_text && depth == 0 => break,
            ')' | ']' | '}' if !in_text => depth -= 1,
            ',' if !in_text && depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().unwrap().push(c);
    }
    parts.into_iter().map(|part| part.trim().to_owned()).collect()
}

#[test]
fn both_languages_have_the_same_keys_and_placeholders() {
    let (english, indonesian) = (texts(ENGLISH_FILE), texts(INDONESIAN_FILE));
    assert!(english.keys().eq(indonesian.keys()), "keys of one file: {:?}", {
        let (one, other): (BTreeSet<_>, BTreeSet<_>) = (english.keys().collect(), indonesian.keys().collect());
        one.symmetric_difference(&other).copied().cloned().collect::<Vec<_>>()
    });
    for (key, text) in &english {
        assert!(!text.is_empty() && !indonesian[key].is_empty(), "{key}");
        assert_eq!(placeholders(text), placeholders(&indonesian[key]), "{key}");
    }
}

#[test]
fn code_and_catalogue_have_the_same_keys() {
    let english = texts(ENGLISH_FILE);
    let mut unused: BTreeSet<&str> = english.keys().map(String::as_str).collect();
    for (key, names) in used_keys() {
        let text = english.get(&key).unwrap_or_else(|| panic!("the catalogue has no {key}"));
        let names = names.unwrap_or_default();
        let wanted: BTreeSet<String> = placeholders(text).into_iter().map(str::to_owned).collect();
        assert_eq!(wanted, names, "values for {key}");
        unused.remove(key.as_str());
    }
    let code = [read_files("src"), read_files("assets")].concat().concat();
    for (group, quote) in NAMED {
        unused.retain(|key| {
            let name = key.strip_prefix(group).and_then(|rest| rest.strip_prefix('.'));
            !name.is_some_and(|name| quote.is_empty() || code.contains(&format!("{quote}{name}{quote}")))
        });
    }
    unused.retain(|key| !CODES.contains(&key.split('.').next().unwrap()));
    assert!(unused.is_empty(), "the code uses none of {unused:?}");
}

#[test]
fn script_uses_texts_of_the_catalogue() {
    let english = texts(ENGLISH_FILE);
    let script = read_files("assets").concat();
    let names: Vec<_> = script.split(" say(\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert!(names.len() > 8, "{names:?}");
    for name in names {
        assert!(english.contains_key(&format!("{SCRIPT}{name}")), "{name}");
    }
}

/// Returns the variants of an enum in a file, in the form of `ORDER_CREATED`.
fn variants(file: &str, name: &str) -> Vec<String> {
    let body = file.split_once(&format!("pub enum {name} ")).unwrap().1.split_once("\n}").unwrap().0;
    let names = body.lines().skip(1).map(str::trim).filter(|line| !line.starts_with("//") && line.ends_with(','));
    let code = |name: &str| {
        name.trim_end_matches(',').chars().enumerate().fold(String::new(), |mut code, (i, c)| {
            if i > 0 && c.is_uppercase() {
                code.push('_');
            }
            code.push(c.to_ascii_uppercase());
            code
        })
    };
    names.map(code).collect()
}

#[test]
fn every_code_has_a_text() {
    let english = texts(ENGLISH_FILE);
    let check = |group: &str, codes: Vec<String>| {
        let known = |key: &&String| key.split('.').next() == Some(group);
        assert!(!codes.is_empty() && CODES.contains(&group), "{group}");
        for code in &codes {
            assert!(english.contains_key(&format!("{group}.{code}")), "{group}.{code}");
        }
        assert_eq!(english.keys().filter(known).count(), codes.len(), "unknown codes in {group}");
    };
    let owned = |codes: &[&str]| codes.iter().map(|code| (*code).to_owned()).collect::<Vec<_>>();
    check("order_state", owned(&OrderStatus::ALL.map(OrderStatus::as_str)));
    check("order_event", variants(include_str!("../../../model/src/order/reason.rs"), "EventReason"));
    check("message_kind", owned(&MessageKind::ALL.map(MessageKind::as_str)));
    check("binding_state", owned(&BindingState::ALL.map(BindingState::as_str)));
    check("binding_phase", owned(&BindingPhase::ALL.map(BindingPhase::as_str)));
    check("stop_reason", owned(&StopReason::ALL.map(StopReason::as_str)));
    check("transaction_state", owned(&TransactionStatus::ALL.map(TransactionStatus::as_str)));
    check("area_refusal", owned(&AreaRefusal::ALL.map(AreaRefusal::as_str)));
    check("plan_kind", owned(&PlanKind::ALL.map(PlanKind::as_str)));
    let lowercase = |file, name| variants(file, name).iter().map(|code| code.to_lowercase()).collect();
    check("offer_state", lowercase(include_str!("../../../model/src/order/order.rs"), "OfferState"));
    check("booking_state", lowercase(include_str!("../../../model/src/order/booking.rs"), "BookingState"));
    for action in variants(include_str!("../../../foundation/src/staff_actions.rs"), "StaffAction") {
        assert!(english.contains_key(&format!("staff_action.{action}")), "{action}");
    }
    let enforcement = [
        ThresholdEnforcement::Off,
        ThresholdEnforcement::Shadow,
        ThresholdEnforcement::Partly,
        ThresholdEnforcement::On,
    ];
    check("enforcement", owned(&enforcement.map(ThresholdEnforcement::as_str)));
    let events = [
        BindingEventKind::Started,
        BindingEventKind::Paused,
        BindingEventKind::Resumed,
        BindingEventKind::Stopping,
        BindingEventKind::Stopped,
        BindingEventKind::Patched,
        BindingEventKind::Deleted,
        BindingEventKind::OtpWanted,
        BindingEventKind::OtpSubmitted,
        BindingEventKind::Unresolved,
    ];
    check("binding_event", owned(&events.map(BindingEventKind::as_str)));
}

#[tokio::test]
async fn texts_are_in_the_language_of_their_request() {
    let told = || format!("{} / {}", tr("common.orders"), fill!("time.in", span = "5 s"));
    assert_eq!(told(), "Orders / in 5 s");
    assert_eq!(LANGUAGE.scope(Language::Indonesian, async { told() }).await, "Pesanan / dalam 5 s");
    assert_eq!(tr("no.such_key").get(), "no.such_key");
    assert!(script_texts(Language::Indonesian).contains("\"live\":\"Langsung\""));
}

const TEMPLATES: [(&str, &str); 31] = [
    ("action.html", include_str!("../../templates/action.html")),
    ("alerts.html", include_str!("../../templates/alerts.html")),
    ("binding.html", include_str!("../../templates/binding.html")),
    ("change_order.html", include_str!("../../templates/change_order.html")),
    ("charts.html", include_str!("../../templates/charts.html")),
    ("desk.html", include_str!("../../templates/desk.html")),
    ("door.html", include_str!("../../templates/door.html")),
    ("driver.html", include_str!("../../templates/driver.html")),
    ("driver_contents.html", include_str!("../../templates/driver_contents.html")),
    ("driver_frame.html", include_str!("../../templates/driver_frame.html")),
    ("driver_home.html", include_str!("../../templates/driver_home.html")),
    ("driver_link.html", include_str!("../../templates/driver_link.html")),
    ("driver_sign_in.html", include_str!("../../templates/driver_sign_in.html")),
    ("fleet_map.html", include_str!("../../templates/fleet_map.html")),
    ("language.html", include_str!("../../templates/language.html")),
    ("layout.html", include_str!("../../templates/layout.html")),
    ("login.html", include_str!("../../templates/login.html")),
    ("new_key.html", include_str!("../../templates/new_key.html")),
    ("new_order.html", include_str!("../../templates/new_order.html")),
    ("now.html", include_str!("../../templates/now.html")),
    ("order.html", include_str!("../../templates/order.html")),
    ("order_form.html", include_str!("../../templates/order_form.html")),
    ("orders.html", include_str!("../../templates/orders.html")),
    ("problem.html", include_str!("../../templates/problem.html")),
    ("ranking.html", include_str!("../../templates/ranking.html")),
    ("refunds.html", include_str!("../../templates/refunds.html")),
    ("sparkline.html", include_str!("../../templates/sparkline.html")),
    ("table.html", include_str!("../../templates/table.html")),
    ("track.html", include_str!("../../templates/track.html")),
    ("track_frame.html", include_str!("../../templates/track_frame.html")),
    ("track_problem.html", include_str!("../../templates/track_problem.html")),
];
/// Texts that are the same in both languages. Text in `code` is for machines.
const NAMES: [&str; 9] = ["dispatchq", "UTC", "CSV", "Enter", "a", "g", "j", "k", "z"];

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
        assert!(NAMES.contains(&word), "{place} says '{word}', which is not in the catalogue: {text}");
    }
}

#[test]
fn templates_contain_no_texts() {
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
