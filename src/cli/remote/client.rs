//! Requests to the API, and what became of them.

use std::{error::Error, fmt, time::Duration};

use anyhow::Context;
use reqwest::{
    Method, StatusCode, Url,
    header::{AUTHORIZATION, HeaderValue},
    redirect::Policy,
};
use serde_json::Value;

use foundation::outbound;

/// The API gives a request up after 60 s, and says so.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(65);
/// Of a connection. An address where no machine answers is no reason to wait longer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Items of one page, as many as the API gives at once.
const PAGE: usize = 500;

/// The API, and the key for it.
pub(in crate::cli) struct ApiClient {
    base: Url,
    authorization: HeaderValue,
    client: reqwest::Client,
}

/// Why a request came to nothing.
#[derive(Debug)]
pub(in crate::cli) enum CallError {
    /// There is no answer, or none that this API gives.
    Unanswered(String),
    Refused {
        status: StatusCode,
        code: String,
        message: String,
    },
}

impl CallError {
    /// Returns whether the API refused with this error code.
    pub(in crate::cli) fn is_refusal(&self, wanted: &str) -> bool {
        matches!(self, Self::Refused { code, .. } if code == wanted)
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unanswered(why) => f.write_str(why),
            Self::Refused { status: StatusCode::UNAUTHORIZED, .. } => f.write_str(
                "the API does not know the key of --key-file: it is wrong, revoked or expired (401 UNAUTHENTICATED)",
            ),
            Self::Refused { status, code, message } => write!(f, "{message} ({} {code})", status.as_u16()),
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
}

impl PageNames {
    /// Those of most lists.
    pub(in crate::cli) const fn of(items: &'static str) -> Self {
        Self { items, cursor: "cursor", next: "next_cursor" }
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

impl ApiClient {
    pub(super) fn new(base: Url, key: &str) -> anyhow::Result<Self> {
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
        Ok(Self { base, authorization, client: builder.build()? })
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
    pub(in crate::cli) async fn delete(&self, path: &[&str]) -> Result<Value, CallError> {
        self.send(Method::DELETE, path, &[], None).await
    }

    /// Has what is at this path replaced, or changed.
    pub(in crate::cli) async fn put(&self, path: &[&str], body: &Value) -> Result<Value, CallError> {
        self.send(Method::PUT, path, &[], Some(body)).await
    }

    /// Has parts of what is at this path changed.
    pub(in crate::cli) async fn patch(&self, path: &[&str], body: &Value) -> Result<Value, CallError> {
        self.send(Method::PATCH, path, &[], Some(body)).await
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
            asked.push(("limit", PAGE.min(most - listed.items.len()).to_string()));
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
        let mut url = self.base.clone();
        match url.path_segments_mut() {
            Ok(mut segments) => {
                segments.pop_if_empty().extend(["api", "v1"]).extend(path);
            }
            Err(()) => return Err(self.foreign_answer()),
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let mut request = self.client.request(method, url).header(AUTHORIZATION, self.authorization.clone());
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.send().await.map_err(|error| self.no_answer(&error))?;
        let status = answer.status();
        let text = answer.bytes().await.map_err(|error| self.no_answer(&error))?;
        let body: Option<Value> = serde_json::from_slice(&text).ok();
        if status.is_success() {
            return body.ok_or_else(|| self.foreign_answer());
        }
        let member = |name: &str| body.as_ref().and_then(|body| body[name].as_str()).map(str::to_owned);
        match (member("error_code"), member("message")) {
            (Some(code), Some(message)) => Err(CallError::Refused { status, code, message }),
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
