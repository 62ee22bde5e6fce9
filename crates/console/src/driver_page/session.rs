//! The driver who makes a request. A cookie that scripts cannot read contains the token of the session.

use accounts::driver_sessions;
use api::{auth::ApiCaller, connections::RequestConnection};
use app::App;
use axum::{extract::FromRequestParts, http::request::Parts};
use model::ids::DriverId;
use uuid::Uuid;

use crate::{
    cookie::{CookieKind, Transport},
    page_error::PageError,
};

/// A driver with a valid session, and the id of the session.
#[derive(Debug, Clone)]
pub(super) struct SignedInDriver(pub(super) DriverId, pub(super) Uuid);

impl SignedInDriver {
    /// Returns the driver as a caller of the API's functions.
    pub(super) fn caller(&self) -> ApiCaller {
        ApiCaller::of_driver(self.0.clone())
    }
}

impl FromRequestParts<App> for SignedInDriver {
    type Rejection = PageError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, PageError> {
        let unknown = || PageError::SignIn(None);
        let transport = parts.extensions.get::<Transport>().copied().unwrap_or(Transport::Exposed);
        let token = transport.read_cookie(CookieKind::Driver, &parts.headers).ok_or_else(unknown)?;
        // Pages read over separate connections, so that they never take the connections of actions and orders.
        let db = if parts.method.is_safe() { &app.core.pages } else { &app.core.db };
        let session = driver_sessions::find_session(db, &token).await?.ok_or_else(unknown)?;
        if let Some(connection) = parts.extensions.get::<RequestConnection>() {
            connection.caller_is_known();
        }
        app.accounts.limits.count_request(session.id).map_err(PageError::TooMany)?;
        Ok(Self(session.driver_id, session.id))
    }
}
