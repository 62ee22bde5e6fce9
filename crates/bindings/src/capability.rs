//! Bindings: accounts at providers, each with one transaction at a time.

use std::{ops::Deref, sync::Arc};

use crate::{
    otp_seal::OtpSealer,
    provider_client::ProviderRegistry,
    store::{BindingStore, mirror::BindingMirror},
};
use foundation::{core::Core, error::ServiceError};
use settings::Config;

/// Bindings: accounts at providers, each with one transaction at a time. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Bindings(Arc<BindingsParts>);

#[derive(Debug, Clone)]
pub struct BindingsParts {
    pub core: Core,
    pub config: Arc<Config>,
    pub rows: BindingStore,
    pub mirror: BindingMirror,
    pub providers: ProviderRegistry,
    pub otps: Arc<OtpSealer>,
}

impl Bindings {
    /// Creates the capability. Fails if a provider or the OTP key is not configured correctly.
    pub fn new(core: &Core, config: &Arc<Config>) -> Result<Self, ServiceError> {
        Ok(Self(Arc::new(BindingsParts {
            core: core.clone(),
            config: config.clone(),
            rows: BindingStore::new(&core.batches, &config.notifications),
            mirror: BindingMirror::new(&core.store),
            providers: ProviderRegistry::new(&config.providers)?,
            otps: Arc::new(OtpSealer::new(&config.bindings)?),
        })))
    }

    /// Returns a copy that uses these connections.
    #[must_use]
    pub fn with_core(mut self, core: &Core) -> Self {
        Arc::make_mut(&mut self.0).core = core.clone();
        self
    }
}

impl Deref for Bindings {
    type Target = BindingsParts;

    fn deref(&self) -> &BindingsParts {
        &self.0
    }
}
