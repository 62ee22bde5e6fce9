//! Requests to the API, and their answers. The API runs in another process, or in this one.

use std::{error::Error, fmt, io::Read, time::Duration};

use anyhow::Context;
use api::local::{LocalAnswer, LocalApi, LocalBody};
use app::App;
use model::actor::Actor;
use reqwest::{
    Method, StatusCode, Url,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, IF_MATCH},
    redirect::Policy,
};
use serde_json::Value;

use super::{cures::find_cure, source::ImportSource};
use foundation::outbound;

/// The API gives a request up after 60 s, and says so.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(65);
/// Of a connection. An address where no machine answers is no reason to wait longer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Items of one page, as many as the API gives at once.
const PAGE: usize = 500;
/// Stands for this process where an address is needed.
const THIS_PROCESS: &str = "http://localhost/";
/// Names of members of a body that were not read.
const IGNORED_FIELDS: &str = "x-ignored-fields";

/// The API, as commands use it.
pub(in crate::cli) struct ApiClient {
    base: Url,
    transport: ApiTransport,
}

/// Where the API runs.
enum ApiTransport {
    /// In another process, which takes a key.
    Http { client: reqwest::Client, authorization: HeaderValue },
    /// In this process, which needs none.
    InProcess(LocalApi),
}

/// Error of a request.
#[derive(Debug)]
pub(in crate::cli) enum CallError {
    /// There is no answer, or none that this API gives.
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

    /// Names what was asked for, where it does not exist: a command may ask for several things.
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

/// What the members of a page are called.
#[derive(Debug, Clone, Copy)]
pub(in crate::cli) struct PageNames {
    /// The member that holds the items.
    pub(in crate::cli) items: &'static str,
    /// The parameter that asks for the next page.
    pub(in crate::cli) cursor: &'static str,
    /// The member that holds its value.
    pub(in crate::cli) next: &'static str,
    /// Items that the API gives at once.
    pub(in crate::cli) most: usize,
}

impl PageNames {
    /// Those of most lists.
    pub(in crate::cli) const fn of(items: &'static str) -> Self {
        Self { items, cursor: "cursor", next: "next_cursor", most: PAGE }
    }

    /// Those of lists whose cursor is called `before`.
    pub(in crate::cli) const fn before(items: &'static str, most: usize) -> Self {
        Self { items, cursor: "before", next: "next", most }
    }
}

/// Items of a list, and its latest page without them.
#[derive(Debug)]
pub(in crate::cli) struct ListedItems {
    pub(in crate::cli) items: Vec<Value>,
    /// Rows that the API's version cannot read, where the list tells of such.
    pub(in crate::cli) unreadable: Vec<Value>,
    /// Null when no page was read.
    pub(in crate::cli) page: Value,
}

/// One request.
struct ApiRequest<'a> {
    method: Method,
    /// Below `/api/v1`.
    path: &'a [&'a str],
    query: &'a [(&'a str, String)],
    headers: HeaderMap,
    body: SentBody,
}

enum SentBody {
    None,
    Json(Vec<u8>),
    /// A file to import, of this media type.
    Import(ImportSource, &'static str),
}

impl ApiClient {
    /// The API of another process.
    pub(super) fn over_http(base: Url, key: &str) -> anyhow::Result<Self> {
        let mut authorization = HeaderValue::from_str(&format!("Bearer {key}")).context("the key cannot be sent")?;
        authorization.set_sensitive(true);
        let mut builder = outbound::client_builder()
            .timeout(ANSWER_TIMEOUT)
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(Policy::none())
            .user_agent(concat!("dispatchq/", env!("CARGO_PKG_VERSION")));
        // A proxy would read the key.
        if base.scheme() == "http" {
            builder = builder.no_proxy();
        }
        Ok(Self { base, transport: ApiTransport::Http { client: builder.build()?, authorization } })
    }

    /// The API in this process, on the servers of `app`.
    pub(in crate::cli) fn in_process(app: App, actor: Actor) -> anyhow::Result<Self> {
        let base = Url::parse(THIS_PROCESS)?;
        Ok(Self { base, transport: ApiTransport::InProcess(LocalApi::new(app, actor)) })
    }

    /// Waits for work that goes on behind answers of this process.
    pub(in crate::cli) async fn close(self) {
        if let ApiTransport::InProcess(api) = self.transport {
            api.close().await;
        }
    }

    /// Returns the reason of a change. The API requires it from other machines.
    pub(in crate::cli) fn reason_of_change(&self, reason: Option<String>) -> anyhow::Result<Option<String>> {
        match (&self.transport, reason) {
            (ApiTransport::Http { .. }, None) => {
                anyhow::bail!("over the API --reason must say why: it is kept with who did it")
            }
            (_, reason) => Ok(reason),
        }
    }

    /// Reads what is at this path below `/api/v1`.
    pub(in crate::cli) async fn get(&self, path: &[&str], query: &[(&str, String)]) -> Result<Value, CallError> {
        self.send(Method::GET, path, query, None).await
    }

    /// Asks for something to be done.
    pub(in crate::cli) async fn post(&self, path: &[&str], body: &Value) -> Result<Value, CallError> {
        self.send(Method::POST, path, &[], Some(body)).await
    }

    /// Has what is at this path deleted.
    pub(in crate::cli) async fn delete(&self, path: &[&str], query: &[(&str, String)]) -> Result<Value, CallError> {
        self.send(Method::DELETE, path, query, None).await
    }

    /// Has what is at this path replaced, or changed.
    pub(in crate::cli) async fn put(&self, path: &[&str], body: &Value) -> Result<Value, CallError> {
        self.send(Method::PUT, path, &[], Some(body)).await
    }

    /// As [`put`](Self::put), on condition that this is still the version.
    pub(in crate::cli) async fn put_version(
        &self,
        path: &[&str],
        body: &Value,
        version: Option<i64>,
    ) -> Result<Value, CallError> {
        let mut headers = HeaderMap::new();
        headers.extend(version.map(|version| (IF_MATCH, HeaderValue::from(version))));
        let body = json_body(body)?;
        let answer = self.call(ApiRequest { method: Method::PUT, path, query: &[], headers, body }).await?;
        self.read_answer(&answer)
    }

    /// Has parts of what is at this path changed.
    pub(in crate::cli) async fn patch(&self, path: &[&str], body: &Value) -> Result<Value, CallError> {
        self.send(Method::PATCH, path, &[], Some(body)).await
    }

    /// Has a file imported. Returns the answer, and the names of members that were not read.
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
                        read.map_err(|error| CallError::Unanswered(format!("cannot read {}: {error}", source.name)))?;
                        request = request.body(bytes);
                    }
                }
                let answer = request.send().await.map_err(|error| self.no_answer(&error))?;
                let (status, headers) = (answer.status(), answer.headers().clone());
                let body = answer.bytes().await.map_err(|error| self.no_answer(&error))?.to_vec();
                Ok(LocalAnswer { status, headers, body })
            }
        }
    }

    fn read_answer(&self, answer: &LocalAnswer) -> Result<Value, CallError> {
        let status = answer.status;
        let body: Option<Value> = serde_json::from_slice(&answer.body).ok();
        if status.is_success() {
            return body.ok_or_else(|| self.foreign_answer());
        }
        let body = body.unwrap_or_default();
        let member = |name: &str| body[name].as_str().map(str::to_owned);
        match (member("error_code"), member("message")) {
            (Some(code), Some(message)) => Err(CallError::Refused { status, code, message, body }),
            _ => Err(CallError::Unanswered(format!("{} answers {status}, and not as dispatchq does", self.shown()))),
        }
    }

    fn no_answer(&self, error: &reqwest::Error) -> CallError {
        let reason = outbound::describe_error(error);
        CallError::Unanswered(format!("{} gives no answer: {reason}; does `dispatchq serve` run there?", self.shown()))
    }

    fn foreign_answer(&self) -> CallError {
        CallError::Unanswered(format!("{} does not answer as dispatchq does; is this the API's address?", self.shown()))
    }

    fn shown(&self) -> String {
        // Its parser refuses a login and a query.
        self.base.to_string()
    }
}

fn json_body(body: &Value) -> Result<SentBody, CallError> {
    let bytes = serde_json::to_vec(body).map_err(|error| CallError::Unanswered(error.to_string()))?;
    Ok(SentBody::Json(bytes))
}
