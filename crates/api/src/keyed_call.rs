//! Extractor for requests about one resource that run once per Idempotency-Key.

use axum::{
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Request},
    response::Response,
};
use serde::de::DeserializeOwned;

use super::{
    auth::ApiCaller,
    body::RawBody,
    error::ApiError,
    idempotency::{self, Answer, WorkContext},
};
use app::App;

/// Such a request: the resource in its path, the value of its body, and the rest.
pub(crate) struct KeyedCall<P, B> {
    pub(crate) request: KeyedRequest,
    pub(crate) subject: P,
    pub(crate) value: B,
}

/// Caller, key and raw body of a request.
pub(crate) struct KeyedRequest {
    pub(crate) app: App,
    pub(crate) caller: ApiCaller,
    /// The Idempotency-Key, if the request has one.
    pub(crate) key: Option<String>,
    /// The raw bytes of the body.
    pub(crate) bytes: Bytes,
}

impl<P, B> FromRequest<App> for KeyedCall<P, B>
where
    P: FromRequestParts<App, Rejection = ApiError> + Send,
    B: DeserializeOwned,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        let (mut parts, body) = request.into_parts();
        let caller = ApiCaller::from_request_parts(&mut parts, app).await?;
        let subject = P::from_request_parts(&mut parts, app).await?;
        // Errors of the body take precedence over errors of the key. Handlers query nothing before both are valid.
        let key = idempotency::idempotency_key(&parts.headers);
        let RawBody { bytes, value } = RawBody::<B>::from_request(Request::from_parts(parts, body), app).await?;
        Ok(Self { request: KeyedRequest { app: app.clone(), caller, key: key?, bytes }, subject, value })
    }
}

impl KeyedRequest {
    /// Runs `work`, unless the caller's earlier request with the same key ran it.
    ///
    /// `name` and `subject` together with the body identify equal requests.
    pub(crate) async fn run_once(
        &self,
        name: &str,
        subject: &[u8],
        work: impl AsyncFnOnce(WorkContext) -> Result<Answer, ApiError>,
    ) -> Result<Response, ApiError> {
        let request: [&[u8]; 3] = [name.as_bytes(), subject, &self.bytes];
        idempotency::run_once(&self.app.core.db, &self.caller, self.key.as_deref(), &request, work).await
    }
}
