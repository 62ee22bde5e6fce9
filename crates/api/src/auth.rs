//! Bearer keys and roles. The command line that runs in this process needs no key: see [`local`](super::local).

use std::{fmt, sync::Arc};

use axum::{
    extract::{FromRef, FromRequestParts},
    http::{header::AUTHORIZATION, request::Parts},
};
use uuid::Uuid;

use super::{client, connections::RequestConnection, error::ApiError, local::LocalCaller};
use accounts::{
    api_keys::{self, AccountRole, ApiKey},
    staff_requests,
};
use app::App;
use model::{actor::Actor, ids::DriverId, scope::Scope};
use parking_lot::Mutex;

const UNKNOWN_KEY: ApiError = ApiError::Unauthenticated("the key is not valid: it is unknown, expired or revoked");

/// Roles that answer offers and carry out orders.
pub(super) const DRIVERS: [AccountRole; 1] = [AccountRole::Driver];

/// Caller of a request.
#[derive(Debug, Clone)]
pub struct ApiCaller(CallerIdentity);

#[derive(Debug, Clone)]
enum CallerIdentity {
    Key(ApiKey, BearerKey),
    /// Key of a session of the console.
    Session(ApiKey),
    /// A driver with a session of the driver page.
    Driver(DriverId),
    /// The command line that runs in this process. Its role is `cli`, which no key has, and it may do everything.
    CommandLine(Actor),
}

/// Text of the caller's key. `Debug` hides it, so that it appears in no log.
#[derive(Clone)]
struct BearerKey(Arc<str>);

impl fmt::Debug for BearerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl ApiCaller {
    /// Returns the person of a console session as a caller. The console has checked the session.
    pub fn of_session(key: ApiKey) -> Self {
        Self(CallerIdentity::Session(key))
    }

    /// Returns the driver of a session of the driver page as a caller. The page has checked the session.
    pub fn of_driver(id: DriverId) -> Self {
        Self(CallerIdentity::Driver(id))
    }

    fn key(&self) -> Option<&ApiKey> {
        match &self.0 {
            CallerIdentity::Key(key, _) | CallerIdentity::Session(key) => Some(key),
            CallerIdentity::Driver(_) | CallerIdentity::CommandLine(_) => None,
        }
    }

    /// Returns whether the caller is the command line that runs in this process.
    pub(crate) fn is_command_line(&self) -> bool {
        matches!(self.0, CallerIdentity::CommandLine(_))
    }

    /// Returns the caller's role; `None` for the command line.
    pub(crate) fn role(&self) -> Option<AccountRole> {
        match &self.0 {
            CallerIdentity::Driver(_) => Some(AccountRole::Driver),
            _ => self.key().map(|key| key.role),
        }
    }

    /// Returns the driver of the caller's key or session.
    pub(crate) fn driver_id(&self) -> Option<&DriverId> {
        match &self.0 {
            CallerIdentity::Driver(id) => Some(id),
            _ => self.key().and_then(|key| key.driver_id.as_ref()),
        }
    }

    /// Returns the scope of a member of staff; `None` if the caller may read every order of the role.
    pub fn scope(&self) -> Option<&Scope> {
        self.key().and_then(|key| key.scope.as_ref())
    }

    pub(crate) fn key_id(&self) -> Option<Uuid> {
        self.key().map(|key| key.id)
    }

    /// Returns the holder that owns the caller's Idempotency-Keys.
    pub(crate) fn holder_id(&self) -> Option<Uuid> {
        self.key().map(|key| key.holder_id)
    }

    /// Succeeds for these roles, for admins and for the command line.
    pub fn require_role(&self, roles: &[AccountRole]) -> Result<(), ApiError> {
        match self.role() {
            None | Some(AccountRole::Admin) => Ok(()),
            Some(role) if roles.contains(&role) => Ok(()),
            Some(_) => Err(ApiError::Forbidden("this key's role may not do this".to_owned())),
        }
    }

    /// Returns the driver that this caller acts for. A driver's key acts only for its own driver; an admin may act for
    /// any driver.
    pub fn acting_driver(&self, named: Option<&DriverId>) -> Result<DriverId, ApiError> {
        self.require_role(&DRIVERS)?;
        match (self.driver_id(), named) {
            (Some(own), Some(named)) if own != named => {
                Err(ApiError::Forbidden("this key belongs to another driver".to_owned()))
            }
            (Some(driver), _) => Ok(driver.clone()),
            (None, Some(named)) => Ok(named.clone()),
            (None, None) => Err(ApiError::invalid_member("driver_id", "driver_id is missing")),
        }
    }

    /// Returns the app for this caller's reads. The transactions of a viewer are READ ONLY. Those of a caller with a scope
    /// see only the orders of the scope.
    pub fn reading(&self, app: App) -> App {
        if let Some(scope) = self.scope() {
            return app.scoped(scope);
        }
        if self.role() == Some(AccountRole::Viewer) { app.reading() } else { app }
    }

    /// Checks the key again after a request has waited, because it may have been revoked in the meantime.
    pub async fn confirm_key(&self, app: &App) -> Result<(), ApiError> {
        let CallerIdentity::Key(known, text) = &self.0 else { return Ok(()) };
        let owner = app.accounts.keys.confirm_owner(&app.core.db, &text.0).await?;
        owner.filter(|owner| owner.id == known.id).map(drop).ok_or(UNKNOWN_KEY)
    }

    /// Returns the caller's name in histories.
    pub fn actor(&self) -> Actor {
        match &self.0 {
            CallerIdentity::Key(key, _) | CallerIdentity::Session(key) => key.actor(),
            CallerIdentity::Driver(id) => Actor::for_driver(id),
            CallerIdentity::CommandLine(actor) => actor.clone(),
        }
    }
}

impl ApiCaller {
    /// Identifies the caller: the command line that runs in this process, or the holder of the request's key.
    pub(super) async fn identify(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        if let Some(LocalCaller { actor, .. }) = parts.extensions.get() {
            return Ok(Self(CallerIdentity::CommandLine(actor.clone())));
        }
        let key = parts
            .headers
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, key)| key.trim())
            .ok_or(ApiError::Unauthenticated("the request needs a key: Authorization: Bearer dq_..."))?;
        if !api_keys::is_well_formed(key) {
            return Err(ApiError::Unauthenticated("the key is not valid: a key is dq_ and 64 hexadecimal digits"));
        }
        let owner = app.accounts.keys.find_owner(&app.core.db, key).await?.ok_or(UNKNOWN_KEY)?;
        if let Some(connection) = parts.extensions.get::<RequestConnection>() {
            connection.caller_is_known();
        }
        app.accounts.limits.count_request(owner.id).map_err(ApiError::TooManyRequests)?;
        app.accounts.key_use.record_use(owner.id);
        // Each handler checks its roles. This check also covers handlers that forget it.
        if owner.role == AccountRole::Viewer && !parts.method.is_safe() {
            return Err(ApiError::Forbidden("this key only reads".to_owned()));
        }
        if owner.role.is_staff() && !parts.method.is_safe() {
            let (address, request) = client::describe_request(parts);
            staff_requests::record_request(&app.core.db, owner.id, address, &request).await?;
        }
        Ok(Self(CallerIdentity::Key(owner, BearerKey(key.into()))))
    }
}

/// Caller that was identified for the role check. It travels with the request to its handler, which takes it once.
#[derive(Debug, Clone)]
pub(super) struct KnownCaller(Arc<Mutex<Option<Result<ApiCaller, ApiError>>>>);

impl KnownCaller {
    pub(super) fn new(found: Result<ApiCaller, ApiError>) -> Self {
        Self(Arc::new(Mutex::new(Some(found))))
    }

    fn take(&self) -> Option<Result<ApiCaller, ApiError>> {
        self.0.lock().take()
    }
}

impl<S> FromRequestParts<S> for ApiCaller
where
    App: FromRef<S>,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match parts.extensions.remove::<KnownCaller>().and_then(|known| known.take()) {
            Some(found) => found,
            None => {
                let caller = Self::identify(parts, &App::from_ref(state)).await?;
                // Only checked operations are limited to a scope.
                if caller.scope().is_some() { Err(ApiError::OutOfScope) } else { Ok(caller) }
            }
        }
    }
}
