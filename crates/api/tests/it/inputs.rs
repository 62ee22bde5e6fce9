//! Tests every input of the API from the served OpenAPI document: each body field, parameter and header gets values of
//! every wrong kind. A new field or route is covered without a change here.
//!
//! * `values`: the wrong values, and whether a schema allows a value.

mod orders;
mod values;

use std::collections::BTreeMap;

use futures_util::{StreamExt, stream};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use self::values::{Patterns, wrong_texts, wrong_values};
use super::bindings::configure_bindings;
use accounts::api_keys::AccountRole;
use settings::Config;
use test_support::{Api, TestApp};

/// Number of concurrent requests.
const AT_ONCE: usize = 6;
/// Refusals because an area is full or closed. The test itself closes areas.
const BUSY: [&str; 2] = ["DISPATCHER_THRESHOLD_REACHED", "DISPATCHER_AREA_DISABLED"];

/// An operation of the document that requires a key.
struct Operation<'a> {
    spec: &'a Value,
    path: &'a str,
    method: Method,
    said: &'a Value,
}

/// Part of a request that contains a value.
#[derive(Debug, Clone, PartialEq)]
enum Place {
    /// A body field, by its path.
    Member(Vec<String>),
    Query(String),
    Path(String),
}

/// A request with one wrong value.
struct Probe<'a> {
    place: Place,
    schema: &'a Value,
    value: Value,
    url: String,
    body: String,
}

impl<'a> Operation<'a> {
    fn list(spec: &'a Value) -> Vec<Self> {
        let paths = spec["paths"].as_object().unwrap();
        let all = paths.iter().flat_map(|(path, methods)| {
            methods.as_object().unwrap().iter().map(move |(method, said)| Operation {
                spec,
                path,
                method: method.to_uppercase().parse().unwrap(),
                said,
            })
        });
        // A new shard count would need workers that move the timers.
        let is_tried = |operation: &Operation| operation.name() != "PUT /api/v1/admin/shards";
        let keyed = all.filter(|operation| operation.said["x-roles"].is_array() && is_tried(operation));
        let mut keyed: Vec<_> = keyed.collect();
        // Deletions run last, because other operations need the objects.
        keyed.sort_by_key(|operation| operation.method == Method::DELETE);
        keyed
    }

    fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    fn parameters(&self, place: &str) -> impl Iterator<Item = &'a Value> {
        let all = self.said["parameters"].as_array().into_iter().flatten();
        all.filter(move |parameter| parameter["in"] == place)
    }

    /// Returns the example address, with one parameter replaced.
    fn url(&self, replaced: Option<(&Place, &str)>) -> String {
        let given = |place: Place, example: &Value| match replaced {
            Some((at, text)) if *at == place => Some(text.to_owned()),
            _ if example.is_null() => None,
            _ => Some(example.as_str().map_or_else(|| example.to_string(), str::to_owned)),
        };
        let mut url = self.path.to_owned();
        for parameter in self.parameters("path") {
            let name = parameter["name"].as_str().unwrap();
            let text = given(Place::Path(name.to_owned()), &parameter["example"]).unwrap();
            url = url.replace(&format!("{{{name}}}"), &encode(&text));
        }
        let mut query = Vec::new();
        for parameter in self.parameters("query") {
            let name = parameter["name"].as_str().unwrap();
            let is_asked = matches!(replaced, Some((Place::Query(at), _)) if at == name);
            if (is_asked || parameter["required"] == true)
                && let Some(text) = given(Place::Query(name.to_owned()), &parameter["example"])
            {
                query.push(format!("{name}={}", encode(&text)));
            }
        }
        if query.is_empty() { url } else { format!("{url}?{}", query.join("&")) }
    }

    fn content(&self) -> Option<&'a Value> {
        self.said["requestBody"]["content"].as_object().and_then(|content| content.values().next())
    }

    fn example(&self) -> Option<&'a Value> {
        self.content().map(|content| &content["example"])
    }

    /// Returns the body fields of a schema with their paths.
    fn members(&self) -> Vec<(Vec<String>, &'a Value)> {
        let mut found = Vec::new();
        if let Some(content) = self.content() {
            values::collect_members(self.spec, &content["schema"], &mut Vec::new(), &mut found);
        }
        found
    }

    /// Returns requests with one wrong value each.
    fn probes(&self) -> Vec<Probe<'a>> {
        let body = self.example().map(Value::to_string).unwrap_or_default();
        let mut probes = Vec::new();
        for (path, schema) in self.members() {
            for value in wrong_values(self.spec, schema) {
                let mut changed = self.example().unwrap().clone();
                set_member(&mut changed, &path, value.clone());
                let place = Place::Member(path.clone());
                probes.push(Probe { place, schema, value, url: self.url(None), body: changed.to_string() });
            }
        }
        for parameter in self.parameters("query").chain(self.parameters("path")) {
            let name = parameter["name"].as_str().unwrap().to_owned();
            let place = if parameter["in"] == "query" { Place::Query(name) } else { Place::Path(name) };
            for text in wrong_texts(&parameter["schema"]) {
                // An empty path segment is another path, and a waiting request delays the test.
                let waits = matches!(&place, Place::Query(name) if name.starts_with("wait"))
                    && text.parse::<u64>().is_ok_and(|n| n < 51);
                if waits || (matches!(place, Place::Path(_)) && ["", "."].contains(&text.as_str())) {
                    continue;
                }
                let url = self.url(Some((&place, &text)));
                let value = values::read_text(self.spec, &parameter["schema"], &text);
                probes.push(Probe {
                    place: place.clone(),
                    schema: &parameter["schema"],
                    value,
                    url,
                    body: body.clone(),
                });
            }
        }
        probes
    }
}

fn encode(text: &str) -> String {
    let keep = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'~');
    text.bytes().map(|b| if keep(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

fn set_member(body: &mut Value, path: &[String], value: Value) {
    let Some((last, parents)) = path.split_last() else { return };
    let mut at = body;
    for name in parents {
        if !at[name].is_object() {
            at[name] = json!({});
        }
        at = &mut at[name];
    }
    at[last] = value;
}

/// Parts of an answer that the test checks.
struct Outcome {
    status: u16,
    accept_encoding: bool,
    body: Value,
}

/// The served API, and a key that may call every operation.
struct Walk {
    api: Api,
    client: reqwest::Client,
    admin: String,
}

impl Walk {
    async fn start(t: &TestApp) -> Self {
        let api = Api::start(&t.app).await;
        let client = foundation::outbound::build_client(test_support::secs(30)).unwrap();
        Self { api, client, admin: t.key(AccountRole::Admin).await }
    }

    fn request(&self, method: &Method, url: &str, key: &str) -> RequestBuilder {
        self.client.request(method.clone(), self.api.url(url)).bearer_auth(key)
    }

    async fn send(&self, request: RequestBuilder) -> Outcome {
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        let accept_encoding = answer.headers().contains_key("accept-encoding");
        let body = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap_or_default();
        Outcome { status, accept_encoding, body }
    }

    async fn send_json(&self, method: &Method, url: &str, body: String) -> Outcome {
        let request = self.request(method, url, &self.admin);
        self.send(request.header("content-type", "application/json").body(body)).await
    }
}

/// Checks every answer: it is not a server error, an error has a code, and an invalid request names its part.
fn find_fault(outcome: &Outcome) -> Option<String> {
    let code = outcome.body["error_code"].as_str();
    if outcome.status >= 500 && !code.is_some_and(|code| BUSY.contains(&code)) {
        return Some("it is a failure of ours".to_owned());
    }
    if outcome.status >= 400 && code.is_none() {
        return Some("it has no error_code".to_owned());
    }
    let named = outcome.body["errors"].as_array().is_some_and(|errors| {
        errors.iter().all(|error| {
            error["detail"].is_string()
                && ["pointer", "parameter", "header"].iter().any(|part| error[*part].is_string())
        }) && !errors.is_empty()
    });
    (outcome.status == 422 && !named).then(|| "it names no part of the request".to_owned())
}

/// Returns whether the errors name this place, a part of it, or its parent.
fn names(outcome: &Outcome, place: &Place) -> bool {
    outcome.body["errors"].as_array().into_iter().flatten().any(|error| match place {
        Place::Member(path) => error["pointer"].as_str().is_some_and(|pointer| {
            let wanted = format!("#/{}", path.join("/"));
            let top = format!("#/{}", path[0]);
            pointer.starts_with(&wanted) || (pointer.starts_with(&top) && wanted.starts_with(pointer))
        }),
        Place::Query(name) | Place::Path(name) => {
            error["parameter"].as_str().is_some_and(|parameter| parameter.split(['.', '[']).next() == Some(name))
        }
    })
}

fn without_request_limits(config: &mut Config) {
    configure_bindings(config);
    config.http.requests_per_s_per_key = 0;
    config.http.driver_page = true;
}

// Rule F11: Every 422 names the part of the request that breaks a rule.
// Rule F10: If a member has the wrong JSON type, the answer is 422 and names the member.
// Rule F7: A request accepts the values that its schema allows, and refuses the others.
// Rule F19: No value in a request makes the API answer 5xx.
// Rule F20: Every instant and duration of a request has a range.
#[tokio::test]
async fn every_input_is_checked_by_its_schema() {
    let t = TestApp::with(without_request_limits).await;
    t.drivers(&[("DRV-1", 100.0)]).await;
    let walk = Walk::start(&t).await;
    let spec = walk.api.get("/openapi.json", "").await.body;
    let operations = Operation::list(&spec);
    let patterns = Patterns::ask(&t, &operations.iter().flat_map(Operation::probes).collect::<Vec<_>>()).await;
    let mut faults = Vec::new();
    let mut sent = 0;
    for operation in &operations {
        let outcomes = stream::iter(operation.probes()).map(|probe| async {
            let outcome = walk.send_json(&operation.method, &probe.url, probe.body.clone()).await;
            (probe, outcome)
        });
        let outcomes: Vec<_> = outcomes.buffer_unordered(AT_ONCE).collect().await;
        sent += outcomes.len();
        for (probe, outcome) in outcomes {
            let misfit = values::find_misfit(&spec, probe.schema, &probe.value, &patterns);
            let fault = find_fault(&outcome).or_else(|| match &misfit {
                Some(why) if outcome.status < 400 => Some(format!("it is accepted, but {why}")),
                Some(why) if outcome.status == 422 && !names(&outcome, &probe.place) => {
                    Some(format!("the errors do not name the value, and {why}"))
                }
                _ => None,
            });
            let read = fault.or(find_unread(&walk, operation, &outcome).await);
            if let Some(fault) = read {
                let shown: String = probe.value.to_string().chars().take(60).collect();
                let body: String = outcome.body.to_string().chars().take(300).collect();
                faults.push(format!(
                    "{} {:?} = {shown}: {} {fault}: {body}",
                    operation.name(),
                    probe.place,
                    outcome.status
                ));
            }
        }
    }
    assert!(sent > 1_000, "only {sent} requests");
    faults.dedup_by_key(|fault| fault.split(" = ").next().unwrap().to_owned());
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    t.assert_sound().await;
}

/// Reads back a created object, if the document has an operation for it.
async fn find_unread(walk: &Walk, operation: &Operation<'_>, outcome: &Outcome) -> Option<String> {
    let id = outcome.body["order_id"].as_str().or(outcome.body["id"].as_str())?;
    if outcome.status != 201 {
        return None;
    }
    let parent = operation.path.trim_end_matches('/');
    let item = ["{id}", "{area_id}"].iter().map(|name| format!("{parent}/{name}"));
    let is_served = item.into_iter().any(|path| operation.spec["paths"][&path]["get"].is_object());
    if !is_served {
        return None;
    }
    let read = walk.send_json(&Method::GET, &format!("{parent}/{}", encode(id)), String::new()).await;
    (read.status != 200).then(|| format!("what was made cannot be read back: {}", read.status))
}

// Rule F9: One Content-Type rule applies to all routes. Encoded bodies get 415, and a byte-order mark is skipped.
// Rule F46: Two Idempotency-Key headers, or a key with a blank, get 422, and the answer names the header.
// Rule F43: A role that may not call an operation gets 403, whatever else the request contains.
#[tokio::test]
async fn every_route_has_the_same_edge() {
    let t = TestApp::with(without_request_limits).await;
    t.drivers(&[("DRV-1", 100.0)]).await;
    let walk = Walk::start(&t).await;
    let spec = walk.api.get("/openapi.json", "").await.body;
    let mut keys = BTreeMap::new();
    for role in [AccountRole::Producer, AccountRole::Viewer, AccountRole::Support, AccountRole::Operator] {
        keys.insert(json!(role).as_str().unwrap().to_owned(), t.key(role).await);
    }
    for operation in &Operation::list(&spec) {
        let (name, method) = (operation.name(), &operation.method);
        let url = operation.url(None);
        if let Some(example) = operation.example() {
            let text = example.to_string();
            let sent = |kind: Option<&str>, body: String| {
                let request = walk.request(method, &url, &walk.admin);
                walk.send(kind.into_iter().fold(request, |r, kind| r.header("content-type", kind)).body(body))
            };
            for kind in [None, Some("text/plain"), Some("application/json; charset=UTF-16"), Some("application/jsonp")]
            {
                let outcome = sent(kind, text.clone()).await;
                assert_eq!((outcome.status, find_fault(&outcome)), (415, None), "{name}: {kind:?}: {}", outcome.body);
                assert_eq!(outcome.body["error_code"], "NOT_JSON", "{name}");
            }
            let packed = walk.request(method, &url, &walk.admin).header("content-type", "application/json");
            let outcome = walk.send(packed.header("content-encoding", "gzip").body("\u{1f}\u{8b}")).await;
            assert_eq!((outcome.status, outcome.accept_encoding), (415, true), "{name}: {}", outcome.body);
            let marked = sent(Some("application/json"), format!("\u{feff}{text}")).await;
            assert!(
                ![400, 415, 422].contains(&marked.status) && find_fault(&marked).is_none(),
                "{name}: {}",
                marked.body
            );
            // The whole body has another type, or a field occurs twice.
            for whole in ["null", "true", "5", "\"text\"", "[]", "[{}]"] {
                let outcome = sent(Some("application/json"), whole.to_owned()).await;
                assert_eq!((outcome.status, find_fault(&outcome)), (422, None), "{name}: {whole}: {}", outcome.body);
            }
            for broken in ["{", "{}{}", "nonsense", "\u{feff}\u{feff}{}"] {
                let outcome = sent(Some("application/json"), broken.to_owned()).await;
                // Imports report every line, or the file.
                let is_import = ["/areas", "/import"].iter().any(|end| operation.path.ends_with(end));
                let expected = if is_import { 422 } else { 400 };
                assert_eq!(
                    (outcome.status, find_fault(&outcome)),
                    (expected, None),
                    "{name}: {broken}: {}",
                    outcome.body
                );
            }
            if let Some((member, value)) = example.as_object().and_then(|members| members.iter().next()) {
                let twice = format!("{{{}:{value},{}", json!(member), &text[1..]);
                let outcome = sent(Some("application/json"), twice).await;
                assert_eq!(
                    (outcome.status, find_fault(&outcome)),
                    (422, None),
                    "{name} twice {member}: {}",
                    outcome.body
                );
            }
        }
        if operation.parameters("header").any(|header| header["name"] == "Idempotency-Key") {
            for values in [vec!["a", "b"], vec!["a b"], vec![""], vec!["\u{e9}"], vec![&"k".repeat(256)]] {
                let body = operation.example().map(Value::to_string).unwrap_or_default();
                let request = walk.request(method, &url, &walk.admin).header("content-type", "application/json");
                let request = values.iter().fold(request, |r, value| r.header("idempotency-key", *value)).body(body);
                let outcome = walk.send(request).await;
                assert_eq!((outcome.status, find_fault(&outcome)), (422, None), "{name}: {values:?}: {}", outcome.body);
                assert_eq!(outcome.body["errors"][0]["header"], "Idempotency-Key", "{name}: {values:?}");
            }
        }
        let roles: Vec<_> = operation.said["x-roles"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        for (_, key) in keys.iter().filter(|(role, _)| !roles.contains(&role.as_str())) {
            let wrong = operation.path.replace('{', "%20").replace('}', "");
            for (url, kind, body) in
                [(url.as_str(), "text/plain", "nonsense"), (&format!("{wrong}?limit=x&x=%00"), "application/json", "{")]
            {
                let request = walk.request(method, url, key).header("content-type", kind);
                let outcome = walk.send(request.body(body)).await;
                assert_eq!(outcome.body["error_code"], "FORBIDDEN", "{name}: {}", outcome.body);
            }
        }
    }
    t.assert_sound().await;
}
