//! Bodies and paths, checked at the edge; what is wrong with them is answered in our own form.

use axum::{
    Json,
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Path, Request, rejection::BytesRejection},
    http::{StatusCode, request::Parts},
    response::IntoResponse,
};
use jobs::OrderId;
use serde::de::DeserializeOwned;

use super::error::ApiError;

/// A JSON body of type `T`.
#[derive(Debug)]
pub struct Body<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        Ok(Self(Json::from_request(request, state).await?.0))
    }
}

/// A JSON body of type `T` together with its bytes as they came. An empty body reads as `{}`.
#[derive(Debug)]
pub struct RawBody<T> {
    pub bytes: Bytes,
    pub value: T,
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for RawBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let bytes = Bytes::from_request(request, state).await.map_err(|e: BytesRejection| {
            if e.status() == StatusCode::PAYLOAD_TOO_LARGE {
                ApiError::TooLarge
            } else {
                ApiError::Malformed(e.into_response().status().to_string())
            }
        })?;
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        let Json(value) = Json::from_bytes(text)?;
        Ok(Self { bytes, value })
    }
}

/// The order a path names.
#[derive(Debug)]
pub struct OrderPath(pub OrderId);

impl<S: Send + Sync> FromRequestParts<S> for OrderPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path(text) = Path::<String>::from_request_parts(parts, state)
            .await
            .map_err(|rejection| ApiError::Malformed(rejection.body_text()))?;
        Ok(Self(text.parse()?))
    }
}

/// The area a path names.
#[derive(Debug)]
pub struct AreaPath(pub String);

impl<S: Send + Sync> FromRequestParts<S> for AreaPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path(id) = name_in_path(parts, state).await?;
        Ok(Self(id))
    }
}

/// The driver a path names.
#[derive(Debug)]
pub struct DriverPath(pub String);

impl<S: Send + Sync> FromRequestParts<S> for DriverPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path(id) = name_in_path(parts, state).await?;
        Ok(Self(id))
    }
}

/// Ids of drivers and areas are of the same form.
async fn name_in_path<S: Send + Sync>(parts: &mut Parts, state: &S) -> Result<Path<String>, ApiError> {
    let Path(id) = Path::<String>::from_request_parts(parts, state)
        .await
        .map_err(|rejection| ApiError::Malformed(rejection.body_text()))?;
    let fits = (1..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if !fits {
        return Err(ApiError::Invalid("the id in the path must be 1 to 64 letters, digits, '_' or '-'".to_owned()));
    }
    Ok(Path(id))
}
