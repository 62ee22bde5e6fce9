//! Staff sign-in at an OpenID Connect provider: authorization code flow with PKCE. Design:
//! docs/design/keys-and-secrets.md.
//!
//! * `provider`: client of the provider, from its settings to a signed-in person.
//! * `error`: errors of a sign-in. `pending`: the pending sign-in that the browser keeps in a sealed cookie.
//! * `id_token`: verification of ID tokens. The cryptography is from ring.
//! * `person`: the name and role that the claims of a token give.
//!
//! Errors, logs and `Debug` output contain no secret, code or token.

mod error;
mod id_token;
mod pending;
mod person;
mod provider;

pub use error::SignInError;
pub use id_token::TokenFault;
pub use person::OidcPerson;
pub use provider::{BegunSignIn, OidcProvider, SignInAnswer};
