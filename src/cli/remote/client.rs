//! Requests to the API and their answers. The API runs in another process or in this one.

use std::{
    error::Error,
    fmt,
    io::Read,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use anyhow::Context;
use api::local::{LocalAnswer, LocalApi, LocalBody};
use app::App;
use model::actor::Actor;
use reqwest::{
    Method, StatusCode, Url,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, IF_MATCH, RETRY_AFTER},
    redirect::Policy,
};
use serde_json::Value;

use super::{cures::find_cure, source::ImportSource};
use crate::cli::output;
use foundation::outbound;

/// Timeout for a request. The API answers with an error after 60 s.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(65);
/// Timeout for connecting, shorter because an unreachable address will not answer later.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum total wait of one request while the API answers 429.
const RATE_LIMIT_PATIENCE: Duration = Duration::from_secs(60);
/// Printed once per command, when its first request waits.
const RATE_LIMIT_NOTE: &str =
    "The API refuses more requests for now (429: this key sends too many, or this address sent wrong keys); waiting.";
/// Error code of the API's own 429. A 429 without it comes from a proxy.
const RATE_LIMITED: &str = "RATE_LIMITED";
/// Items per page: the maximum of the API.
const PAGE: usize = 500;
/// Base address for the API in this process.
const THIS_PROCESS: &str = "http://localhost/";
/// Header with the names of body members that the API ignored.
const IGNORED_FIELDS: &str = "x-ignored-fields";

/// API client of commands.
pub(in crate::cli) struct ApiClient {
    base: Url,
    transport: ApiTransport,
    /// Whether a request has waited because the API answered 429.
    has_waited: AtomicBool,
}

/// Place where the API runs.
enum ApiTransport {
    /// In another process; requests carry a key.
    Http { client: reqwest::Client, authorization: HeaderValue },
    /// In this process; requests need no key.
    InProcess(LocalApi),
}

/// Error of a request.
#[derive(Debug)]
pub(in crate::cli) enum CallError {
    /// No answer, or an answer that is not from this API.
    Unanswered(String),
    Refused {
        status: StatusCode,
        code: String,
        message: String,
        /// The whole answer.
        body: Value,
    },
}

impl CallError {
    /// Returns whether the API refused with this error code.
    pub(in crate::cli) fn is_refusal(&self, wanted: &str) -> bool {
        matches!(self, Self::Refused { code, .. } if code == wanted)
    }

    /// Prefixes a 404 message with the path if the message does not name the object. A command may read several
    /// objects.
    fn naming(mut self, path: &[&str]) -> Self {
        if let Self::Refused { status: StatusCode::NOT_FOUND, message, .. } = &mut self
            && !path.iter().skip(1).any(|part| message.contains(part))
        {
            message.insert_str(0, &format!("{}: ", path.join("/")));
        }
        self
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unanswered(why) => f.write_str(why),
            Self::Refused { status: StatusCode::UNAUTHORIZED, .. } => f.write_str(
                "the API does not know the key of --key-file: it is wrong, revoked or expired (401 UNAUTHENTICATED)",
            ),
            Self::Refused { status, code, message, .. } => {
                let cure = find_cure(code).map(|cure| format!("; {cure}")).unwrap_or_default();
                write!(f, "{message}{cure} ({} {code})", status.as_u16())
            }
        }
    }
}

impl Error for CallError {}

/// Member names and page size of a list.
#[derive(Debug, Clone, Copy)]
pub(in crate::cli) struct PageNames {
    /// Member with the items.
    pub(in crate::cli) items: &'static str,
    /// Query parameter for the next page.
    pub(in crate::cli) cursor: &'static str,
    /// Member with the value of that parameter.
    pub(in crate::cli) next: &'static str,
    /// Maximum items per page.
    pub(in crate::cli) most: usize,
}

impl PageNames {
    /// Returns the names that most lists use.
    pub(in crate::cli) const fn of(items: &'static str) -> Self {
        Self { items, cursor: "cursor", next: "next_cursor", most: PAGE }
    }

    /// Returns the names of lists whose cursor is called `before`.
    pub(in crate::cli) const fn before(items: &'static str, most: usize) -> Self {
        Self { items, cursor: "before", next: "next", most }
    }
}

/// Items of a list, and its last page without the items.
#[derive(Debug)]
pub(in crate::cli) struct ListedItems {
    pub(in crate::cli) items: Vec<Value>,
    /// Rows that the API's version cannot read. Empty if the list does not report them.
    pub(in crate::cli) unreadable: Vec<Value>,
    /// Null if no page was read.
    pub(in crate::cli) page: Value,
}

struct ApiRequest<'a> {
    method: Method,
    /// Path below `/api/v1`.
    path: &'a [&'a str],
    query: &'a [(&'a str, String)],
    headers: HeaderMap,
    body: SentBody,
}

enum SentBody {
    None,
    Json(Vec<u8>),
    /// File to import, and its media type.
    Import(ImportSource, &'static str),
}

impl ApiClient {
    /// Returns a client for the API of another process.
    pub(super) fn over_http(base: Url, key: &str) -> anyhow::Result<Self> {
        let mut authorization = HeaderValue::from_str(&format!("Bearer {key}")).context("the key cannot be sent")?;
        authorization.set_sensitive(true);
        let mut builder = outbound::client_builder()
            .timeout(ANSWER_TIMEOUT)
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(Policy::none())
            .user_agent(concat!("dispatchq/", env!("CARGO_PKG_VERSION")));
        // A proxy could read the key.
        if base.scheme() == "http" {
            builder = builder.no_proxy();
        }
        let transport = ApiTransport::Http { client: builder.build()?, authorization };
        Ok(Self { base, transport, has_waited: AtomicBool::new(false) })
    }

    /// Returns a client for the API in this process, on the servers of `app`.
    pub(in crate::cli) fn in_process(app: App, actor: Actor) -> anyhow::Result<Self> {
        let base = Url::parse(THIS_PROCESS)?;
        let transport = ApiTransport::InProcess(LocalApi::new(app, actor));
        Ok(Self { base, transport, has_waited: AtomicBool::new(false) })
    }

    /// Waits for background work that answers of this process have started.
    pub(in crate::cli) async fn close(self) {
        if let ApiTransport::InProcess(api) = self.transport {
            api.close().await;
        }
    }

    /// Returns the reason for a change. Fails over HTTP if there is none, because the API requires one.
    pub(in crate::cli) fn reason_of_change(&self, reason: Option<String>) -> anyhow::Result<Option<String>> {
        match (&self.transport, reason) {
            (ApiTransport::Http { .. }, None) => {
                anyhow::bail!("with --api --reason is required: it is kept in the record with the actor")
            }
            (_, reason) => Ok(reason),
        }
    }

    /// Sends a GET request for a path below `/api/v1`.
    pub(in crate::cli) async fn get(&self, path: &[&str], query: &[(&str, String)]) -> Result<Value, CallError> {
        self.send(Method::GET, path, query, None).await
    }

    /// Sends a POST request.
    pub(in crate::cli) async fn post(&self, path: &[&str], body: &Value) -> Result<Value, CallError> {
        self.send(Method::POST, path, &[], Some(body)).await
    }

    /// Sends a DELETE request.
    pub(in crate::cli) async fn delete(&self, path: &[&str], query: &[(&str, String)]) -> Result<Value, CallError> {
        self.send(Method::DELETE, path, query, None).await
    }

    /// Sends a PUT request.
    pub(in crate::cli) async fn put(&self, path: &[&str], body: &Value) -> Result<Value, CallError> {
        self.send(Method::PUT, path, &[], Some(body)).await
    }

    /// Sends a PUT request that succeeds only if the object still has this version.
    pub(in crate::cli) async fn put_version(
        &self,
        path: &[&str],
        body: &Value,
        version: Option<i64>,
    ) -> Result<Value, CallError> {
        self.send_version(Method::PUT, path, body, version).await
    }

    /// Sends a PATCH request that succeeds only if the object still has this version.
    pub(in crate::cli) async fn patch_version(
        &self,
        path: &[&str],
        body: &Value,
        version: Option<i64>,
    ) -> Result<Value, CallError> {
        self.send_version(Method::PATCH, path, body, version).await
    }

    async fn send_version(
        &self,
        method: Method,
        path: &[&str],
        body: &Value,
        version: Option<i64>,
    ) -> Result<Value, CallError> {
        let mut headers = HeaderMap::new();
        headers.extend(version.map(|version| (IF_MATCH, HeaderValue::from(version))));
        let body = json_body(body)?;
        let answer = self.call(ApiRequest { method, path, query: &[], headers, body }).await?;
        self.read_answer(&answer).map_err(|error| error.naming(path))
    }

    /// Sends a PATCH request.
    pub(in crate::cli) async fn patch(&self, path: &[&str], body: &Value) -> Result<Value, CallError> {
        self.send(Method::PATCH, path, &[], Some(body)).await
    }

    /// Imports a file. Returns the answer and the names of ignored members.
    pub(in crate::cli) async fn import(
        &self,
        (method, path): (Method, &[&str]),
        query: &[(&str, String)],
        source: ImportSource,
        media_type: &'static str,
    ) -> Result<(Value, Option<String>), CallError> {
        let body = SentBody::Import(source, media_type);
        let answer = self.call(ApiRequest { method, path, query, headers: HeaderMap::new(), body }).await?;
        let ignored = answer.headers.get(IGNORED_FIELDS).and_then(|names| names.to_str().ok()).map(str::to_owned);
        Ok((self.read_answer(&answer)?, ignored))
    }

    /// Returns up to `most` items of a list, page by page.
    pub(in crate::cli) async fn list(
        &self,
        path: &[&str],
        query: &[(&str, String)],
        names: PageNames,
        most: usize,
    ) -> Result<ListedItems, CallError> {
        let mut listed = ListedItems { items: Vec::new(), unreadable: Vec::new(), page: Value::Null };
        let mut cursor: Option<String> = None;
        while listed.items.len() < most {
            let mut asked = query.to_vec();
            asked.push(("limit", names.most.min(most - listed.items.len()).to_string()));
            if let Some(cursor) = cursor.take() {
                asked.retain(|(name, _)| *name != names.cursor);
                asked.push((names.cursor, cursor));
            }
            let mut page = self.get(path, &asked).await?;
            let items = page.as_object_mut().and_then(|page| page.remove(names.items));
            let Some(Value::Array(items)) = items else {
                return Err(self.foreign_answer());
            };
            listed.items.extend(items);
            if let Some(Value::Array(rows)) = page.as_object_mut().and_then(|page| page.remove("unreadable")) {
                listed.unreadable.extend(rows);
            }
            cursor = match &page[names.next] {
                Value::Null => None,
                Value::String(next) => Some(next.clone()),
                next => Some(next.to_string()),
            };
            listed.page = page;
            if cursor.is_none() {
                break;
            }
        }
        Ok(listed)
    }

    /// Sends a request for long work until nothing is left. The API works on it for half a minute at a time, and its answer has the
    /// position to continue at. Prints `describe` of the answers so far on stderr in between. Returns all answers.
    pub(in crate::cli) async fn post_slices(
        &self,
        path: &[&str],
        mut body: Value,
        describe: impl Fn(&[Value]) -> String,
    ) -> Result<Vec<Value>, CallError> {
        let mut answers = Vec::new();
        loop {
            let answer = self.post(path, &body).await?;
            let next = answer["next_cursor"].clone();
            answers.push(answer);
            if next.is_null() {
                return Ok(answers);
            }
            output::print_note(&describe(&answers));
            body["cursor"] = next;
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, String)],
        body: Option<&Value>,
    ) -> Result<Value, CallError> {
        let body = body.map_or(Ok(SentBody::None), json_body)?;
        let answer = self.call(ApiRequest { method, path, query, headers: HeaderMap::new(), body }).await?;
        self.read_answer(&answer).map_err(|error| error.naming(path))
    }

    async fn call(&self, request: ApiRequest<'_>) -> Result<LocalAnswer, CallError> {
        let mut url = self.base.clone();
        match url.path_segments_mut() {
            Ok(mut segments) => {
                segments.pop_if_empty().extend(["api", "v1"]).extend(request.path);
            }
            Err(()) => return Err(self.foreign_answer()),
        }
        if !request.query.is_empty() {
            url.query_pairs_mut().extend_pairs(request.query);
        }
        let ApiRequest { method, mut headers, body, .. } = request;
        let media_type = match &body {
            SentBody::None => None,
            SentBody::Json(_) => Some("application/json"),
            SentBody::Import(_, media_type) => Some(*media_type),
        };
        headers.extend(media_type.map(|media_type| (CONTENT_TYPE, HeaderValue::from_static(media_type))));
        match &self.transport {
            ApiTransport::InProcess(api) => {
                let body = match body {
                    SentBody::None => LocalBody::empty(),
                    SentBody::Json(bytes) => LocalBody::from(bytes),
                    SentBody::Import(source, _) => LocalBody::read(source.reader),
                };
                let answer = api.send(method, &url, headers, body).await;
                answer.map_err(|error| CallError::Unanswered(error.to_string()))
            }
            ApiTransport::Http { client, authorization } => {
                headers.insert(AUTHORIZATION, authorization.clone());
                let mut request = client.request(method, url).headers(headers);
                match body {
                    SentBody::None => {}
                    SentBody::Json(bytes) => request = request.body(bytes),
                    SentBody::Import(mut source, _) => {
                        let mut bytes = Vec::new();
                        let read = source.reader.read_to_end(&mut bytes);
                        read.map_err(|error| CallError::Unanswered(format!("the body cannot be read: {error}")))?;
                        request = request.body(bytes);
                    }
                }
                self.send_in_turn(request).await
            }
        }
    }

    /// Sends a request. While the API answers 429, waits for `Retry-After` and sends it again. The API has then done nothing.
    async fn send_in_turn(&self, request: reqwest::RequestBuilder) -> Result<LocalAnswer, CallError> {
        let mut waited = Duration::ZERO;
        loop {
            // Bodies are bytes, so that each request can be cloned.
            let Some(once) = request.try_clone() else { return Err(self.foreign_answer()) };
            let answer = once.send().await.map_err(|error| self.no_answer(&error))?;
            let (status, headers) = (answer.status(), answer.headers().clone());
            let body = answer.bytes().await.map_err(|error| self.no_answer(&error))?.to_vec();
            let answer = LocalAnswer { status, headers, body };
            match find_pause(&answer) {
                Some(pause) if waited + pause <= RATE_LIMIT_PATIENCE => {
                    if !self.has_waited.swap(true, Ordering::Relaxed) {
                        output::print_note(RATE_LIMIT_NOTE);
                    }
                    tokio::time::sleep(pause).await;
                    waited += pause;
                }
                _ => return Ok(answer),
            }
        }
    }

    fn read_answer(&self, answer: &LocalAnswer) -> Result<Value, CallError> {
        let status = answer.status;
        let body: Option<Value> = serde_json::from_slice(&answer.body).ok();
        if status == StatusCode::NO_CONTENT {
            return Ok(Value::Null);
        }
        if status.is_success() {
            return body.ok_or_else(|| self.foreign_answer());
        }
        let body = body.unwrap_or_default();
        let member = |name: &str| body[name].as_str().map(str::to_owned);
        match (member("error_code"), member("message")) {
            (Some(code), Some(message)) => Err(CallError::Refused { status, code, message, body }),
            _ => Err(CallError::Unanswered(format!(
                "{} answers {status}, but not in the format of dispatchq",
                self.shown()
            ))),
        }
    }

    fn no_answer(&self, error: &reqwest::Error) -> CallError {
        let reason = outbound::describe_error(error);
        CallError::Unanswered(format!(
            "{} does not answer: {reason}; is `dispatchq serve` running there?",
            self.shown()
        ))
    }

    fn foreign_answer(&self) -> CallError {
        CallError::Unanswered(format!(
            "{} does not answer in the format of dispatchq; is this the API's address?",
            self.shown()
        ))
    }

    fn shown(&self) -> String {
        // `parse_api_url` refuses a login and a query, so the address contains no secret.
        self.base.to_string()
    }
}

/// Returns the pause before the request is sent again, or `None` if the answer is final.
fn find_pause(answer: &LocalAnswer) -> Option<Duration> {
    if answer.status != StatusCode::TOO_MANY_REQUESTS {
        return None;
    }
    let body: Value = serde_json::from_slice(&answer.body).ok()?;
    let secs: u64 = answer.headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    (body["error_code"] == RATE_LIMITED).then(|| Duration::from_secs(secs.max(1)))
}

fn json_body(body: &Value) -> Result<SentBody, CallError> {
    let bytes = serde_json::to_vec(body).map_err(|error| CallError::Unanswered(error.to_string()))?;
    Ok(SentBody::Json(bytes))
}
