//! `[console.oidc]`: sign-in to the console with an OpenID Connect provider.

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

/// `[console.oidc]` of the configuration. Its values are checked when the provider is constructed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OidcConfig {
    /// Issuer as in the provider's tokens.
    pub issuer: String,
    /// Id of this installation at the provider.
    pub client_id: String,
    #[serde(default)]
    pub client_secret: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret_env: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret_file: Option<PathBuf>,
    #[serde(default = "default_scopes")]
    pub scopes: Vec<String>,
    /// Claim with the person's name for histories.
    #[serde(default = "default_name_claim")]
    pub name_claim: String,
    /// Claim whose values map to roles: a text or a list of texts.
    pub role_claim: String,
    pub roles: BTreeMap<String, StaffRole>,
}

/// Role of a staff member. If a person has several, the last one in this list counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StaffRole {
    Viewer,
    Support,
    Dispatcher,
    Operator,
    Admin,
}

fn default_scopes() -> Vec<String> {
    ["openid", "email"].map(str::to_owned).to_vec()
}

fn default_name_claim() -> String {
    "email".to_owned()
}
