//! One-time links with which drivers sign in to the driver page.

use std::fmt;

use axum::{
    Json,
    extract::State,
    http::{HeaderName, StatusCode, header::CACHE_CONTROL},
};
use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use super::by_staff::DriverReason;
use crate::{
    auth::ApiCaller,
    body::{DriverPath, JsonBody},
    error::{ApiError, StaffError},
    openapi::CallErrors,
};
use accounts::{
    api_keys::AccountRole,
    driver_links::{self, SignInCode},
};
use app::App;
use foundation::staff_actions::ActionAuthor;
use model::ids::DriverId;

/// Path of the page that asks for the code.
pub const SIGN_IN_PATH: &str = "/driver/sign-in";

const CREATORS: [AccountRole; 3] = [AccountRole::Producer, AccountRole::Dispatcher, AccountRole::Operator];

/// A one-time link for a driver.
#[derive(Serialize, ToSchema)]
#[schema(as = DriverSignInLink)]
pub struct SignInLink {
    /// Address for the driver. Its page shows a button; only the button signs in.
    pub url: String,
    /// Code in the link, for typing.
    pub code: String,
    pub expires_at: DateTime<Utc>,
}

/// Hides the code, which is a secret.
impl fmt::Debug for SignInLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SignInLink(***, {})", self.expires_at)
    }
}

/// Creates a one-time link with which a driver signs in to the driver page.
///
/// The link is valid for 15 minutes and works once. Only this answer contains the link and its code. A producer needs
/// `[producers.NAME] driver_sign_in = true`.
#[utoipa::path(post, path = "/{id}/sign-in-links", operation_id = "create_sign_in_link", tag = "drivers",
    params(DriverPath), extensions(("x-roles" = json!(CREATORS))),
    request_body(content = DriverReason, example = json!({ "reason": "asked for it by phone" })),
    responses(
        (status = 201, description = "success", body = SignInLink,
         example = json!({ "url": "https://dispatch.example.com/driver/sign-in#code=K7QM-2X9D-HB4T",
                           "code": "K7QM-2X9D-HB4T", "expires_at": "2026-01-09T08:15:00Z" })),
        CallErrors,
    ))]
pub(super) async fn create_link(
    State(app): State<App>,
    caller: ApiCaller,
    DriverPath(id): DriverPath,
    JsonBody(DriverReason { reason }): JsonBody<DriverReason>,
) -> Result<(StatusCode, [(HeaderName, &'static str); 1], Json<SignInLink>), ApiError> {
    check_creator(&app, &caller)?;
    let reason = reason.check(&caller)?;
    let by = ActionAuthor { actor: &caller.actor(), reason: reason.as_deref() };
    Ok((StatusCode::CREATED, [(CACHE_CONTROL, "no-store")], Json(issue_link(&app, &id, by).await?)))
}

/// Creates a link for a driver, with its audit record. The caller checks the author's role.
pub async fn issue_link(app: &App, id: &DriverId, by: ActionAuthor<'_>) -> Result<SignInLink, ApiError> {
    if !app.config.http.driver_page {
        return Err(StaffError::DriverPageOff.into());
    }
    let made = driver_links::create_link(&app.core.db, id, by).await?;
    let SignInCode { code, expires_at } = made.ok_or(ApiError::NoSuchDriver)?;
    // Browsers send the part after '#' to no server, so the code is in no log.
    let url = app.config.http.public_address(&format!("{SIGN_IN_PATH}#code={code}"));
    Ok(SignInLink { url, code, expires_at })
}

/// Succeeds for staff of [`CREATORS`], and for producers with the right to sign in drivers.
fn check_creator(app: &App, caller: &ApiCaller) -> Result<(), ApiError> {
    caller.require_role(&CREATORS)?;
    let actor = caller.actor();
    let Some(producer) = actor.producer_name() else { return Ok(()) };
    if app.config.producers.get(producer).is_some_and(|producer| producer.driver_sign_in) {
        return Ok(());
    }
    let cure = "this producer may not sign in drivers; set driver_sign_in = true in its [producers] entry";
    Err(ApiError::Forbidden(cure.to_owned()))
}
