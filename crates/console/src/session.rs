//! The person who makes a request. Signing in exchanges a staff key, or an identity from a provider, for a session. A
//! cookie that scripts cannot read contains the token of the session.

use api::{client, connections::RequestConnection};
use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, Method, header::ACCEPT, request::Parts},
};

use crate::{
    catalogue::tr,
    cookie::{CookieKind, Transport},
    page_error::PageError,
    scope,
};
use accounts::{
    api_keys::AccountRole,
    sessions::{self, ConsoleSession},
    staff_requests,
};
use app::App;
use model::{actor::Actor, scope::Scope};

/// The person who makes this request.
#[derive(Debug, Clone)]
pub(crate) struct SignedIn(pub(crate) ConsoleSession);

impl SignedIn {
    pub(crate) fn role(&self) -> AccountRole {
        self.0.key.role
    }

    /// Succeeds for these roles and for admins.
    pub(crate) fn require_role(&self, roles: &[AccountRole]) -> Result<(), PageError> {
        if self.may(roles) { Ok(()) } else { Err(PageError::Forbidden(tr("problem.your_role_not_allow"))) }
    }

    pub(crate) fn may(&self, roles: &[AccountRole]) -> bool {
        self.role() == AccountRole::Admin || roles.contains(&self.role())
    }

    /// Returns the orders that the person may read; `None`: all.
    pub(crate) fn scope(&self) -> Option<&Scope> {
        self.0.key.scope.as_ref()
    }

    /// Returns the app for the reads of this person's pages. With a scope, they see only its orders.
    pub(crate) fn showing(&self, app: App) -> App {
        match self.scope() {
            Some(scope) => app.scoped(scope).showing(),
            None => app.showing(),
        }
    }

    /// Returns the person's name in histories.
    pub(crate) fn actor(&self) -> Actor {
        self.0.key.actor()
    }
}

/// Returns whether the request is an automatic refresh or a stream of changes. Neither extends a session.
pub(crate) fn is_refresh(headers: &HeaderMap) -> bool {
    headers.contains_key("x-console-refresh") || headers.get(ACCEPT).is_some_and(|kind| kind == "text/event-stream")
}

impl FromRequestParts<App> for SignedIn {
    type Rejection = PageError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, PageError> {
        let target =
            (parts.method == Method::GET).then(|| parts.uri.path_and_query().map(ToString::to_string)).flatten();
        let unknown = || PageError::SignIn(target.clone());
        let transport = parts.extensions.get::<Transport>().copied().unwrap_or(Transport::Exposed);
        let token = transport.read_cookie(CookieKind::Session, &parts.headers).ok_or_else(unknown)?;
        // Pages read over separate connections, so that they never take the connections of actions and orders.
        let db = if parts.method.is_safe() { &app.core.pages } else { &app.core.db };
        let session = sessions::find_session(db, &token).await?.ok_or_else(unknown)?;
        if let Some(connection) = parts.extensions.get::<RequestConnection>() {
            connection.caller_is_known();
        }
        app.accounts.limits.count_request(session.key.id).map_err(PageError::TooMany)?;
        app.accounts.key_use.record_use(session.key.id);
        if session.is_stale
            && !is_refresh(&parts.headers)
            && let Err(error) = sessions::record_seen(&app.core.db, session.session_id).await
        {
            // Postgres may accept no writes. Reading continues.
            tracing::debug!(%error, "That a session is used could not be written down.");
        }
        // Each handler checks its roles. This check also covers handlers that forget it.
        if session.key.role == AccountRole::Viewer && !parts.method.is_safe() {
            let text = tr("problem.viewers_can_only_read");
            return Err(PageError::Forbidden(text));
        }
        if let Some(scope) = &session.key.scope {
            scope::check_request(app, scope, parts).await?;
        }
        if !parts.method.is_safe() {
            let (address, request) = client::describe_request(parts);
            staff_requests::record_request(&app.core.db, session.key.id, address, &request).await?;
        }
        Ok(Self(session))
    }
}
