//! Requests about one thing that have their effect once per Idempotency-Key, as handlers take them.

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

/// Such a request: what its path names, what its body says, and the rest.
pub(crate) struct KeyedCall<P, B> {
    pub(crate) request: KeyedRequest,
    pub(crate) subject: P,
    pub(crate) value: B,
}

/// Who asks, in which words, and under which key.
pub(crate) struct KeyedRequest {
    pub(crate) app: App,
    pub(crate) caller: ApiCaller,
    /// The Idempotency-Key, if the request has one.
    pub(crate) key: Option<String>,
    /// The body as it came.
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
        // The body is reported first. No handler looks anything up before the key is checked.
        let key = idempotency::idempotency_key(&parts.headers);
        let RawBody { bytes, value } = RawBody::<B>::from_request(Request::from_parts(parts, body), app).await?;
        Ok(Self { request: KeyedRequest { app: app.clone(), caller, key: key?, bytes }, subject, value })
    }
}

impl KeyedRequest {
    /// Does `work` unless this caller had it done before under the same key.
    ///
    /// `name` and `subject`, with the body, make two requests the same: what is asked, and of what.
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
