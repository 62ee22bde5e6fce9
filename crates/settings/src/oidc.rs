//! `[console.oidc]`: signing in to the console at a provider of OpenID Connect.

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

/// `[console.oidc]` of the configuration. Its rules are checked where the provider is built.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OidcConfig {
    /// As the provider writes itself in its tokens.
    pub issuer: String,
    /// What the provider calls this installation.
    pub client_id: String,
    #[serde(default)]
    pub client_secret: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret_env: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret_file: Option<PathBuf>,
    #[serde(default = "default_scopes")]
    pub scopes: Vec<String>,
    /// The claim that names the person in histories.
    #[serde(default = "default_name_claim")]
    pub name_claim: String,
    /// The claim whose values give roles: a text or a list of texts.
    pub role_claim: String,
    pub roles: BTreeMap<String, StaffRole>,
}

/// What a person of the company may do. Of several roles the last of this list counts.
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
