//! Why a person could not sign in.

use super::id_token::TokenFault;

/// Why a person could not sign in. Texts are for the log: no code, token or secret is in them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignInError {
    /// The browser brings no sign-in under way, or that of another one.
    #[error("the sign-in was not begun in this browser, or longer than ten minutes ago")]
    NotBegun,
    /// The person or the provider said no.
    #[error("the provider says {0}")]
    Declined(String),
    #[error("the provider does not answer: {0}")]
    Away(String),
    /// The code was used before, or the settings of the client do not fit.
    #[error("the provider gives no token: {0}")]
    Refused(String),
    #[error(transparent)]
    Untrusted(#[from] TokenFault),
    #[error("the ID token has no usable claim '{0}': console.oidc.name_claim, or console.oidc.scopes")]
    NoName(String),
    #[error("no value of the claim '{0}' is in console.oidc.roles")]
    NoRole(String),
}

/// An error code of OAuth, such as `access_denied`. Other texts are not repeated.
pub(super) fn plain_code(code: &str) -> String {
    let is_code = (1..=64).contains(&code.len()) && code.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    if is_code { code.to_owned() } else { "an error of no known name".to_owned() }
}
