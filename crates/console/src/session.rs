//! Signing in: a staff key, or what a provider says of a person, is exchanged for a session, whose token is in a cookie that scripts cannot read.
//!
//! Over https the cookie is `__Host-`: Secure, for this host alone. Over plain http there are sessions on this machine only, where
//! none can listen in; elsewhere the sign-in page says what to do.

use api::{
    client::{self, ClientAddress},
    connections::RequestConnection,
};
use axum::{
    extract::{ConnectInfo, FromRequestParts, Request},
    http::{
        HeaderMap, HeaderValue, Method,
        header::{ACCEPT, COOKIE, HOST},
        request::Parts,
        uri::Authority,
    },
};
use dispatch::{
    accounts::{
        api_keys::AccountRole,
        sessions::{self, ConsoleSession, LONGEST},
        staff_requests,
    },
    actor::Actor,
    app::App,
};
use ipnet::IpNet;
use std::net::{IpAddr, SocketAddr};

use crate::{language::both, page::PageError};

/// A sign-in at a provider takes no longer.
const SIGN_IN_SECS: u64 = 600;
const FORWARDED_PROTO: &str = "x-forwarded-proto";

/// What a cookie is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CookieKind {
    Session,
    /// A sign-in at the provider of `[console.oidc]`, while the person is there.
    SignIn,
}

impl CookieKind {
    /// Of https. Browsers take it from this host alone.
    fn secure_name(self) -> &'static str {
        match self {
            Self::Session => "__Host-dispatchq",
            Self::SignIn => "__Host-dispatchq-oidc",
        }
    }

    /// Of plain http on this machine.
    fn plain_name(self) -> &'static str {
        match self {
            Self::Session => "dispatchq-console",
            Self::SignIn => "dispatchq-console-oidc",
        }
    }

    fn max_age(self) -> u64 {
        match self {
            Self::Session => LONGEST.as_secs(),
            Self::SignIn => SIGN_IN_SECS,
        }
    }
}

/// How the browser reached this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    /// A trusted proxy took the request over https.
    Https,
    /// Plain http, from this machine to this machine.
    Loopback,
    /// Plain http, or a proxy that is not trusted to say otherwise.
    Exposed,
}

impl Transport {
    /// Judged by the peer, by what a trusted proxy says, and by the name the browser used.
    pub(crate) fn of_request(request: &Request, proxies: &[IpNet]) -> Self {
        let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0.ip().to_canonical());
        let is_proxy = peer.is_some_and(|peer| proxies.iter().any(|network| network.contains(&peer)));
        let proto = request.headers().get(FORWARDED_PROTO).and_then(|value| value.to_str().ok());
        // The last word is that of the nearest proxy.
        let last = proto.and_then(|value| value.rsplit(',').next()).map(str::trim);
        if is_proxy && last.is_some_and(|proto| proto.eq_ignore_ascii_case("https")) {
            return Self::Https;
        }
        let client = ClientAddress::of_request(request).0;
        let is_here = client.is_loopback() && host_of(request.headers()).is_some_and(is_loopback_name);
        if is_here { Self::Loopback } else { Self::Exposed }
    }

    fn cookie_name(self, kind: CookieKind) -> Option<&'static str> {
        match self {
            Self::Https => Some(kind.secure_name()),
            Self::Loopback => Some(kind.plain_name()),
            Self::Exposed => None,
        }
    }

    /// The address of a path on the host that the browser named. `None`: it named none, or others could listen in.
    pub(crate) fn own_address(self, headers: &HeaderMap, path: &str) -> Option<String> {
        let scheme = match self {
            Self::Https => "https",
            Self::Loopback => "http",
            Self::Exposed => return None,
        };
        let host: Authority = headers.get(HOST)?.to_str().ok()?.parse().ok()?;
        Some(format!("{scheme}://{host}{path}"))
    }

    /// The cookie that holds a token; an empty one is forgotten. `None`: none may be set.
    pub(crate) fn write_cookie(self, kind: CookieKind, base: &str, token: &str) -> Option<HeaderValue> {
        let name = self.cookie_name(kind)?;
        let age = if token.is_empty() { 0 } else { kind.max_age() };
        let scope = match self {
            Self::Https => "Path=/; Secure".to_owned(),
            Self::Loopback | Self::Exposed => format!("Path={base}"),
        };
        HeaderValue::from_str(&format!("{name}={token}; {scope}; HttpOnly; SameSite=Lax; Max-Age={age}")).ok()
    }

    /// The token of the cookie that fits.
    pub(crate) fn read_cookie(self, kind: CookieKind, headers: &HeaderMap) -> Option<String> {
        find_cookie(headers, self.cookie_name(kind)?)
    }
}

/// The value of the cookie of this name.
pub(crate) fn find_cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(found, _)| *found == name).map(|(_, value)| value.to_owned())
}

/// The host that the browser named, without its port.
fn host_of(headers: &HeaderMap) -> Option<&str> {
    let host = headers.get(HOST)?.to_str().ok()?;
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next(),
        None => host.split(':').next(),
    }
}

/// A name of elsewhere may lead here too, if its owner wants it to.
fn is_loopback_name(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The person who makes this request.
#[derive(Debug, Clone)]
pub(crate) struct SignedIn(pub(crate) ConsoleSession);

impl SignedIn {
    pub(crate) fn role(&self) -> AccountRole {
        self.0.key.role
    }

    /// Lets these roles pass, and admin.
    pub(crate) fn require_role(&self, roles: &[AccountRole]) -> Result<(), PageError> {
        if self.may(roles) {
            Ok(())
        } else {
            Err(PageError::Forbidden(both("Your role may not do this.", "Peran Anda tidak boleh melakukan ini.")))
        }
    }

    pub(crate) fn may(&self, roles: &[AccountRole]) -> bool {
        self.role() == AccountRole::Admin || roles.contains(&self.role())
    }

    /// How histories name this person.
    pub(crate) fn actor(&self) -> Actor {
        self.0.key.actor()
    }
}

/// A page that refreshes itself says so, and a stream of changes is one: neither keeps a session alive.
pub(crate) fn is_refresh(headers: &HeaderMap) -> bool {
    headers.contains_key("x-console-refresh") || headers.get(ACCEPT).is_some_and(|kind| kind == "text/event-stream")
}

impl FromRequestParts<App> for SignedIn {
    type Rejection = PageError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, PageError> {
        let target =
            (parts.method == Method::GET).then(|| parts.uri.path_and_query().map(ToString::to_string)).flatten();
        let unknown = || PageError::SignIn(target.clone());
        let transport = parts.extensions.get::<Transport>().copied().unwrap_or(Transport::Exposed);
        let token = transport.read_cookie(CookieKind::Session, &parts.headers).ok_or_else(unknown)?;
        // However many people look at pages, an action has the connections of orders.
        let db = if parts.method.is_safe() { &app.pages } else { &app.db };
        let session = sessions::find_session(db, &token).await?.ok_or_else(unknown)?;
        if let Some(connection) = parts.extensions.get::<RequestConnection>() {
            connection.caller_is_known();
        }
        app.limits.count_request(session.key.id).map_err(PageError::TooMany)?;
        app.key_use.record_use(session.key.id);
        if session.is_stale
            && !is_refresh(&parts.headers)
            && let Err(error) = sessions::record_seen(&app.db, session.session_id).await
        {
            // Postgres may take no writes: reading goes on.
            tracing::debug!(%error, "That a session is used could not be written down.");
        }
        // Each handler checks its roles; this holds for those to come, too.
        if session.key.role == AccountRole::Viewer && !parts.method.is_safe() {
            let text = both("A viewer reads, and changes nothing.", "Viewer hanya membaca dan tidak mengubah apa pun.");
            return Err(PageError::Forbidden(text));
        }
        if !parts.method.is_safe() {
            let (address, request) = client::describe_request(parts);
            staff_requests::record_request(&app.db, session.key.id, address, &request).await?;
        }
        Ok(Self(session))
    }
}
