//! How people sign in at a provider of OpenID Connect: authorization code with PKCE.
//! Design: docs/design/keys-and-secrets.md.
//!
//! * `provider`: the provider, from its settings to a person who has signed in.
//! * `error`: why a person could not sign in. `pending`: a sign-in under way, which the browser keeps sealed.
//! * `id_token`: whether a token is the provider's, for us and for this sign-in. The cryptography is ring's.
//! * `person`: who the token says the person is, and which role that gives.
//!
//! No secret, code or token is in an error, a log or a `Debug`.

mod error;
mod id_token;
mod pending;
mod person;
mod provider;

pub use error::SignInError;
pub use id_token::TokenFault;
pub use person::OidcPerson;
pub use provider::{BegunSignIn, OidcProvider, SignInAnswer};
