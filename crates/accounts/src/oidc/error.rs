//! Errors of a sign-in at the OpenID Connect provider.

use super::id_token::TokenFault;

/// Reason that a sign-in failed. The texts are written to the log and never contain a code, token or secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignInError {
    /// The browser has no pending sign-in, or the cookie belongs to another one.
    #[error("the sign-in was not started in this browser, or more than ten minutes ago")]
    NotBegun,
    /// The person or the provider declined the sign-in.
    #[error("the provider declined the sign-in: {0}")]
    Declined(String),
    #[error("the provider is unavailable: {0}")]
    Away(String),
    /// The code was already used, or the client's settings are wrong.
    #[error("the provider issued no token: {0}")]
    Refused(String),
    #[error(transparent)]
    Untrusted(#[from] TokenFault),
    #[error("the ID token has no usable claim '{0}'; check console.oidc.name_claim and console.oidc.scopes")]
    NoName(String),
    #[error("no value of the claim '{0}' is in console.oidc.roles")]
    NoRole(String),
}

/// Returns an OAuth error code such as `access_denied` unchanged, and replaces any other text.
pub(super) fn plain_code(code: &str) -> String {
    let is_code = (1..=64).contains(&code.len()) && code.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    if is_code { code.to_owned() } else { "unknown error".to_owned() }
}
