//! Requests and their retries.

use std::{borrow::Cow, fmt, time::Duration};

use reqwest::{Method, Url};
use serde::{Serialize, de::DeserializeOwned};
use uuid::Uuid;

use crate::{ApiError, Error};

/// A read of the stream waits up to 50 s. The server ends a request after 60 s and reports the reason.
const TIMEOUT: Duration = Duration::from_secs(75);

/// Limits of the retries of one call.
#[derive(Debug, Clone, Copy)]
pub struct Retries {
    pub max_retries: u32,
    /// Maximum wait before a try.
    pub max_wait: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self { max_retries: 4, max_wait: Duration::from_secs(30) }
    }
}

/// Client of one server. Clones share its connections.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    base_url: Url,
    key: String,
    retries: Retries,
}

/// Request of any operation of the API, for [`Client::request`].
#[derive(Debug, Clone)]
pub struct Request {
    method: Method,
    path: String,
    query: Vec<(Cow<'static, str>, String)>,
    body: Option<Vec<u8>>,
    idempotency_key: Option<String>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("base_url", &self.base_url.as_str()).finish_non_exhaustive()
    }
}

impl Request {
    /// Creates a request. The path starts with `/api/v1`.
    pub fn new(method: Method, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), query: Vec::new(), body: None, idempotency_key: None }
    }

    #[must_use]
    pub fn query(mut self, name: impl Into<Cow<'static, str>>, value: impl ToString) -> Self {
        self.query.push((name.into(), value.to_string()));
        self
    }

    /// Sets the body, which is sent as JSON.
    ///
    /// # Errors
    ///
    /// If the body cannot be written as JSON.
    pub fn body(mut self, body: &impl Serialize) -> Result<Self, Error> {
        self.body = Some(serde_json::to_vec(body)?);
        Ok(self)
    }

    /// Sets the idempotency key. A change with a key is sent again after a network error. Set it only for operations whose
    /// document has the parameter `Idempotency-Key`. Others ignore it, and a repeat acts twice.
    #[must_use]
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.idempotency_key = Some(key.into());
        self
    }

    /// Sets the caller's idempotency key, or a new UUID.
    pub(crate) fn with_key(self, key: Option<&str>) -> Self {
        self.idempotency_key(key.map_or_else(|| Uuid::new_v4().to_string(), str::to_owned))
    }
}

impl Client {
    /// Creates a client with the default limits. The key starts with `dq_`. It uses rustls with ring, unless the
    /// process has installed another provider.
    ///
    /// # Errors
    ///
    /// If `base_url` is not a URL, or the certificate authorities of this machine cannot be read.
    pub fn new(base_url: &str, key: &str) -> Result<Self, Error> {
        // Fails if a provider is installed, which is then used.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .timeout(TIMEOUT)
            .connect_timeout(Duration::from_secs(10))
            .redirect(reqwest::redirect::Policy::none())
            .user_agent("dispatchq-rust")
            .build()?;
        Self::with_http(http, base_url, key)
    }

    /// Creates a client that uses the connections of another. Its timeout must exceed 60 s.
    ///
    /// # Errors
    ///
    /// If `base_url` is not a URL.
    pub fn with_http(http: reqwest::Client, base_url: &str, key: &str) -> Result<Self, Error> {
        let url = Url::parse(base_url).ok().filter(|url| !url.cannot_be_a_base());
        let base_url = url.ok_or(Error::Url)?;
        Ok(Self { http, base_url, key: key.to_owned(), retries: Retries::default() })
    }

    /// Sets the limits of the retries.
    #[must_use]
    pub fn retries(mut self, retries: Retries) -> Self {
        self.retries = retries;
        self
    }

    /// Sends a request and returns its answer. Repeats reads, and changes with an idempotency key.
    ///
    /// # Errors
    ///
    /// The error of the last try.
    pub async fn request<T: DeserializeOwned>(&self, request: Request) -> Result<T, Error> {
        let mut tries = 0;
        loop {
            tries += 1;
            let error = match self.try_once(&request).await {
                Ok(content) => return Ok(serde_json::from_slice(&content)?),
                Err(error) => error,
            };
            let Some(wait) = self.next_wait(&request, tries, &error) else { return Err(error) };
            tokio::time::sleep(wait).await;
        }
    }

    /// Sends the request once. Reads the whole body, because a connection may also end within it.
    async fn try_once(&self, request: &Request) -> Result<Vec<u8>, Error> {
        let mut url = self.base_url.clone();
        url.set_path(&format!("{}{}", self.base_url.path().trim_end_matches('/'), request.path));
        if !request.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&request.query);
        }
        let mut sent = self.http.request(request.method.clone(), url).bearer_auth(&self.key);
        if let Some(body) = &request.body {
            sent = sent.header("content-type", "application/json").body(body.clone());
        }
        if let Some(key) = &request.idempotency_key {
            sent = sent.header("idempotency-key", key);
        }
        let answer = sent.send().await?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        let content = answer.bytes().await?;
        if status.is_success() {
            return Ok(content.into());
        }
        Err(Error::Api(Box::new(ApiError::new(status, &headers, &content))))
    }

    /// Returns the time until the next try, or `None` if there is none.
    fn next_wait(&self, request: &Request, tries: u32, error: &Error) -> Option<Duration> {
        let asked = match error {
            Error::Api(error) if error.may_pass() => error.retry_after.map(Duration::from_secs),
            Error::Network(error) if !error.is_builder() => None,
            _ => return None,
        };
        let safe = matches!(request.method, Method::GET | Method::HEAD) || request.idempotency_key.is_some();
        let wait = asked.unwrap_or_else(|| Duration::from_millis((500 << (tries - 1).min(4)).min(8_000)));
        if !safe || tries > self.retries.max_retries || wait > self.retries.max_wait {
            return None;
        }
        // Up to a quarter longer, so that clients that failed together do not return together.
        let random = u32::from(Uuid::new_v4().as_bytes()[15]);
        Some(wait + wait / 1024 * random)
    }
}
