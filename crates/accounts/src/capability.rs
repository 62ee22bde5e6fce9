//! Keys, users and sessions.

use std::{ops::Deref, sync::Arc};

use crate::{key_use::KeyUse, known_keys::KnownKeys, oidc::OidcProvider, request_limits::RequestLimits};
use foundation::{core::Core, error::ServiceError, idempotency_rows::IdempotencyStore};
use settings::Config;

/// Keys, users and sessions. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Accounts(Arc<AccountsParts>);

#[derive(Debug, Clone)]
pub struct AccountsParts {
    pub keys: KnownKeys,
    pub key_use: KeyUse,
    pub limits: RequestLimits,
    pub idempotency: IdempotencyStore,
    /// Provider where staff can sign in without a key; `None` if none is configured.
    pub oidc: Option<OidcProvider>,
}

impl Accounts {
    pub fn new(core: &Core, config: &Config) -> Result<Self, ServiceError> {
        Ok(Self(Arc::new(AccountsParts {
            keys: KnownKeys::default(),
            key_use: KeyUse::default(),
            limits: RequestLimits::new(&config.http),
            idempotency: IdempotencyStore::new(&core.batches, &config.ids.prefix),
            oidc: OidcProvider::from_config(&config.console)?,
        })))
    }
}

impl Deref for Accounts {
    type Target = AccountsParts;

    fn deref(&self) -> &AccountsParts {
        &self.0
    }
}
