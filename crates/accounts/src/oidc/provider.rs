//! Client of the OpenID Connect provider. It fetches the provider's endpoints and keys on first use and caches them. It
//! starts and finishes sign-ins.
//!
//! A slow or unreachable provider delays a sign-in by seconds. It does not affect open sessions or API keys.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use chrono::Utc;
use reqwest::{
    RequestBuilder, StatusCode, Url,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue},
};
use serde::{Deserialize, de::DeserializeOwned};
use tokio::{
    sync::{Mutex, Semaphore},
    time::timeout,
};

use super::{
    error::{SignInError, plain_code},
    id_token::{self, Claims, Expected, KeySet, SigningKey, TokenFault},
    pending::{PendingSignIn, SignInSealer},
    person::{OidcPerson, PersonRules},
};
use foundation::{
    config::{
        error::{ConfigError, ensure_fits},
        secret::{Secret, ensure_encrypted, parse_web_address},
    },
    outbound,
};
use settings::{ConsoleConfig, OidcConfig};

/// Timeout for one request to the provider.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for all requests of one sign-in together.
const SIGN_IN_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum age of cached endpoints and keys. A token with an unknown key id also makes the client fetch the keys again.
const KEPT: Duration = Duration::from_secs(3600);
/// Minimum time between two requests for the endpoints after a failure.
const PAUSE: Duration = Duration::from_secs(2);
/// Maximum sign-ins that wait for the provider at the same time. Further ones fail immediately.
const MAX_WAITING: usize = 32;
/// Maximum length of a response. A longer one is an error.
const MAX_ANSWER_BYTES: usize = 256 * 1024;
const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";

/// Parameters that the provider adds when it redirects the browser back.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub struct SignInAnswer {
    pub state: String,
    pub code: String,
    pub error: String,
    /// Issuer of the response. Some providers do not send it.
    pub iss: Option<String>,
}

impl fmt::Debug for SignInAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SignInAnswer(***)")
    }
}

pub struct BegunSignIn {
    /// Address that the browser is sent to.
    pub address: String,
    /// Sealed pending sign-in, which the browser sends back in a cookie.
    pub sealed: String,
}

impl fmt::Debug for BegunSignIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BegunSignIn(***)")
    }
}

/// The configured provider. Cheap to clone.
#[derive(Clone)]
pub struct OidcProvider(Arc<ProviderClient>);

struct ProviderClient {
    http: reqwest::Client,
    issuer: String,
    host: String,
    metadata: Url,
    client_id: String,
    client_secret: String,
    scope: String,
    rules: PersonRules,
    sealer: SignInSealer,
    endpoints: Mutex<KnownEndpoints>,
    keys: Mutex<Option<KnownKeySet>>,
    places: Semaphore,
}

#[derive(Default)]
struct KnownEndpoints {
    found: Option<(Instant, Arc<Endpoints>)>,
    failed: Option<(Instant, SignInError)>,
}

struct Endpoints {
    authorization: Url,
    token: Url,
    keys: Url,
    /// Whether the client's secret is sent in the `Authorization` header. Otherwise the form contains it.
    takes_basic: bool,
}

struct KnownKeySet {
    /// Time of the request for the keys.
    at: Instant,
    keys: Arc<[SigningKey]>,
}

/// The provider's metadata document.
#[derive(Deserialize)]
struct Metadata {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    /// Without this list, the secret is sent in the header.
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct TokenAnswer {
    id_token: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TokenRefusal {
    error: String,
}

impl fmt::Debug for OidcProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OidcProvider({})", self.0.host)
    }
}

impl OidcProvider {
    /// Returns the provider, or `None` if the config has none. Sends no request.
    pub fn from_config(config: &ConsoleConfig) -> Result<Option<Self>, ConfigError> {
        let Some(config) = &config.oidc else { return Ok(None) };
        Self::new(config).map(Some).map_err(|error| error.within("console.oidc"))
    }

    fn new(config: &OidcConfig) -> Result<Self, ConfigError> {
        let issuer = parse_web_address("issuer", &config.issuer)?;
        ensure_encrypted("issuer", &issuer)?;
        let is_plain = issuer.query().is_none() && issuer.fragment().is_none();
        ensure_fits(is_plain, "issuer must have neither a query nor a fragment")?;
        let metadata = format!("{}/.well-known/openid-configuration", config.issuer.trim_end_matches('/'));
        ensure_fits(!config.client_id.is_empty(), "client_id is empty")?;
        let secret = Secret {
            name: "client_secret",
            value: Some(config.client_secret.as_str()).filter(|secret| !secret.is_empty()),
            env: config.client_secret_env.as_deref(),
            file: config.client_secret_file.as_deref(),
        };
        let missing = || ConfigError::new("client_secret is missing; or give client_secret_env or client_secret_file");
        let client_secret = secret.read()?.ok_or_else(missing)?;
        ensure_fits(config.scopes.iter().any(|scope| scope == "openid"), "scopes must contain \"openid\"")?;
        let has_claims = !config.role_claim.is_empty() && !config.name_claim.is_empty();
        ensure_fits(has_claims, "role_claim and name_claim must not be empty")?;
        let empty = format!("roles is empty: give a value of the claim '{}' its role", config.role_claim);
        ensure_fits(!config.roles.is_empty(), empty)?;
        Ok(Self(Arc::new(ProviderClient {
            http: outbound::build_client(CALL_TIMEOUT)?,
            issuer: config.issuer.clone(),
            host: issuer.host_str().unwrap_or_default().to_owned(),
            metadata: parse_web_address("issuer", &metadata)?,
            client_id: config.client_id.clone(),
            sealer: SignInSealer::new(&config.client_id, &client_secret),
            client_secret,
            scope: config.scopes.join(" "),
            rules: PersonRules::new(config),
            endpoints: Mutex::default(),
            keys: Mutex::default(),
            places: Semaphore::new(MAX_WAITING),
        })))
    }

    /// Returns the provider's host, which people recognize it by.
    pub fn host(&self) -> &str {
        &self.0.host
    }

    /// Starts a sign-in. The provider redirects the browser to `callback`; afterwards the person sees the page `next`.
    pub async fn begin_sign_in(&self, callback: &str, next: &str) -> Result<BegunSignIn, SignInError> {
        let provider = &self.0;
        let endpoints = provider.find_endpoints().await?;
        let pending = PendingSignIn::new(callback, next, Utc::now().timestamp());
        let mut address = endpoints.authorization.clone();
        address
            .query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &provider.client_id)
            .append_pair("redirect_uri", callback)
            .append_pair("scope", &provider.scope)
            .append_pair("state", &pending.state)
            .append_pair("nonce", &pending.nonce)
            .append_pair("code_challenge", &pending.challenge())
            .append_pair("code_challenge_method", "S256");
        Ok(BegunSignIn { address: address.into(), sealed: provider.sealer.seal(&pending) })
    }

    /// Finishes a sign-in. Returns the person and the page that the person asked for.
    pub async fn finish_sign_in(
        &self,
        sealed: &str,
        answer: &SignInAnswer,
    ) -> Result<(OidcPerson, String), SignInError> {
        let provider = &self.0;
        let pending = provider.sealer.open(sealed, Utc::now().timestamp()).ok_or(SignInError::NotBegun)?;
        let is_ours = answer.iss.as_ref().is_none_or(|issuer| *issuer == provider.issuer);
        if answer.state != pending.state || !is_ours {
            return Err(SignInError::NotBegun);
        }
        if !answer.error.is_empty() || answer.code.is_empty() {
            return Err(SignInError::Declined(plain_code(&answer.error)));
        }
        let Ok(_place) = provider.places.try_acquire() else {
            return Err(SignInError::Away(format!("{MAX_WAITING} sign-ins are already waiting")));
        };
        let slow = |_| SignInError::Away(format!("not finished within {SIGN_IN_TIMEOUT:?}"));
        let claims = timeout(SIGN_IN_TIMEOUT, provider.exchange_code(&pending, &answer.code)).await.map_err(slow)??;
        Ok((provider.rules.read_person(&claims)?, pending.next))
    }
}

impl ProviderClient {
    async fn exchange_code(&self, pending: &PendingSignIn, code: &str) -> Result<Claims, SignInError> {
        let endpoints = self.find_endpoints().await?;
        let begun = Instant::now();
        let token = self.fetch_token(&endpoints, pending, code).await?;
        let expected = Expected {
            issuer: &self.issuer,
            client_id: &self.client_id,
            nonce: &pending.nonce,
            now: Utc::now().timestamp(),
        };
        let keys = self.find_keys(&endpoints, None).await?;
        match id_token::verify_token(&token, &keys, expected) {
            // The provider may have changed its keys.
            Err(TokenFault::UnknownKey) => {
                let keys = self.find_keys(&endpoints, Some(begun)).await?;
                Ok(id_token::verify_token(&token, &keys, expected)?)
            }
            verified => Ok(verified?),
        }
    }

    async fn fetch_token(
        &self,
        endpoints: &Endpoints,
        pending: &PendingSignIn,
        code: &str,
    ) -> Result<String, SignInError> {
        let mut fields = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", pending.callback.as_str()),
            ("code_verifier", pending.verifier.as_str()),
        ];
        let mut request = self.http.post(endpoints.token.clone()).header(CONTENT_TYPE, FORM);
        if endpoints.takes_basic {
            request = request.header(AUTHORIZATION, self.basic_credentials());
        } else {
            fields.extend([("client_id", self.client_id.as_str()), ("client_secret", self.client_secret.as_str())]);
        }
        let request = request.body(write_form(&fields));
        let (status, body) = send_request(request).await?;
        if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
            return Err(SignInError::Away(status.as_u16().to_string()));
        }
        if !status.is_success() {
            let refusal: TokenRefusal = serde_json::from_slice(&body).unwrap_or_default();
            let text = format!("{} {}", status.as_u16(), plain_code(&refusal.error));
            return Err(SignInError::Refused(text));
        }
        let answer: TokenAnswer = serde_json::from_slice(&body).map_err(|_| TokenFault::Malformed)?;
        Ok(answer.id_token)
    }

    /// Returns the `Authorization` header. RFC 6749 requires form encoding of both parts.
    fn basic_credentials(&self) -> HeaderValue {
        let encode = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let pair = format!("{}:{}", encode(&self.client_id), encode(&self.client_secret));
        let header = format!("Basic {}", STANDARD.encode(pair));
        let mut header = HeaderValue::try_from(header).expect("base64 is valid in a header");
        header.set_sensitive(true);
        header
    }

    /// Returns the provider's endpoints. While one request fetches them, other requests wait for its result.
    async fn find_endpoints(&self) -> Result<Arc<Endpoints>, SignInError> {
        let mut known = self.endpoints.lock().await;
        if let Some((at, endpoints)) = &known.found
            && at.elapsed() < KEPT
        {
            return Ok(endpoints.clone());
        }
        if let Some((at, error)) = &known.failed
            && at.elapsed() < PAUSE
        {
            return Err(error.clone());
        }
        match self.fetch_endpoints().await {
            Ok(endpoints) => {
                let endpoints = Arc::new(endpoints);
                known.found = Some((Instant::now(), endpoints.clone()));
                Ok(endpoints)
            }
            Err(error) => {
                known.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    async fn fetch_endpoints(&self) -> Result<Endpoints, SignInError> {
        let found: Metadata = self.fetch_json(&self.metadata).await?;
        if found.issuer != self.issuer {
            let problem = format!("its issuer is {:?}; set console.oidc.issuer to this value", found.issuer);
            return Err(SignInError::Away(problem));
        }
        let read = |name: &str, text: &str| {
            let address =
                parse_web_address(name, text).and_then(|address| ensure_encrypted(name, &address).map(|()| address));
            address.map_err(|error| SignInError::Away(error.to_string()))
        };
        let methods = found.token_endpoint_auth_methods_supported;
        Ok(Endpoints {
            authorization: read("authorization_endpoint", &found.authorization_endpoint)?,
            token: read("token_endpoint", &found.token_endpoint)?,
            keys: read("jwks_uri", &found.jwks_uri)?,
            takes_basic: methods.is_none_or(|methods| methods.iter().any(|method| method == "client_secret_basic")),
        })
    }

    /// Returns the provider's keys, at most one hour old. With `not_before`, keys fetched earlier are fetched again.
    async fn find_keys(
        &self,
        endpoints: &Endpoints,
        not_before: Option<Instant>,
    ) -> Result<Arc<[SigningKey]>, SignInError> {
        let mut known = self.keys.lock().await;
        if let Some(set) = &*known
            && set.at.elapsed() < KEPT
            && not_before.is_none_or(|moment| set.at >= moment)
        {
            return Ok(set.keys.clone());
        }
        let at = Instant::now();
        let found: KeySet = self.fetch_json(&endpoints.keys).await?;
        let keys: Arc<[SigningKey]> = found.keys.into();
        *known = Some(KnownKeySet { at, keys: keys.clone() });
        Ok(keys)
    }

    async fn fetch_json<T: DeserializeOwned>(&self, address: &Url) -> Result<T, SignInError> {
        let (status, body) = send_request(self.http.get(address.clone())).await?;
        let path = address.path();
        if status != StatusCode::OK {
            return Err(SignInError::Away(format!("{} at {path}", status.as_u16())));
        }
        serde_json::from_slice(&body)
            .map_err(|error| SignInError::Away(format!("the response of {path} is unreadable: {error}")))
    }
}

fn write_form(fields: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish()
}

async fn send_request(request: RequestBuilder) -> Result<(StatusCode, Vec<u8>), SignInError> {
    let away = |error: reqwest::Error| SignInError::Away(outbound::describe_error(&error));
    let mut answer = request.header(ACCEPT, JSON).send().await.map_err(away)?;
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(away)? {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_ANSWER_BYTES {
            return Err(SignInError::Away("the response is too long".to_owned()));
        }
    }
    Ok((answer.status(), body))
}
