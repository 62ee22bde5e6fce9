//! Cookies, and the transport that they need.
//!
//! Over https the cookie of a session is `__Host-`: Secure, and only for this host. Over plain http there are sessions
//! only on this machine, where no third party can read them. To people on other machines, the sign-in page explains the
//! remedy.

use std::net::{IpAddr, SocketAddr};

use accounts::{driver_sessions, sessions::LONGEST};
use api::client::ClientAddress;
use axum::{
    extract::{ConnectInfo, Request},
    http::{
        HeaderMap, HeaderValue,
        header::{COOKIE, HOST},
        uri::Authority,
    },
};
use ipnet::IpNet;

/// Maximum time for a sign-in at a provider.
const SIGN_IN_SECS: u64 = 600;
const FORWARDED_PROTO: &str = "x-forwarded-proto";

/// Purpose of a cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CookieKind {
    Session,
    /// A sign-in in progress at the provider of `[console.oidc]`.
    SignIn,
    /// The session of a driver.
    Driver,
}

impl CookieKind {
    /// Returns the name over https. Browsers accept a cookie of this name only from this host.
    fn secure_name(self) -> &'static str {
        match self {
            Self::Session => "__Host-dispatchq",
            Self::SignIn => "__Host-dispatchq-oidc",
            Self::Driver => "__Host-dispatchq-driver",
        }
    }

    /// Returns the name over plain http on this machine.
    fn plain_name(self) -> &'static str {
        match self {
            Self::Session => "dispatchq-console",
            Self::SignIn => "dispatchq-console-oidc",
            Self::Driver => "dispatchq-driver",
        }
    }

    fn max_age(self) -> u64 {
        match self {
            Self::Session => LONGEST.as_secs(),
            Self::SignIn => SIGN_IN_SECS,
            Self::Driver => driver_sessions::VALID.as_secs(),
        }
    }
}

/// Transport between the browser and this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    /// A trusted proxy took the request over https.
    Https,
    /// Plain http, from this machine to this machine.
    Loopback,
    /// Plain http, or https that only an untrusted proxy reports.
    Exposed,
}

impl Transport {
    /// Returns the transport, from the peer, the header of a trusted proxy, and the host that the browser named.
    pub(crate) fn of_request(request: &Request, proxies: &[IpNet]) -> Self {
        let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0.ip().to_canonical());
        let is_proxy = peer.is_some_and(|peer| proxies.iter().any(|network| network.contains(&peer)));
        let proto = request.headers().get(FORWARDED_PROTO).and_then(|value| value.to_str().ok());
        // The nearest proxy adds the last value.
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

    /// Returns the address of a path on the host that the browser named. Returns `None` if it named no host, or if
    /// others could listen.
    pub(crate) fn own_address(self, headers: &HeaderMap, path: &str) -> Option<String> {
        let scheme = match self {
            Self::Https => "https",
            Self::Loopback => "http",
            Self::Exposed => return None,
        };
        let host: Authority = headers.get(HOST)?.to_str().ok()?.parse().ok()?;
        Some(format!("{scheme}://{host}{path}"))
    }

    /// Returns the cookie for a token; an empty token deletes the cookie. `None`: the transport allows no cookie.
    pub(crate) fn write_cookie(self, kind: CookieKind, base: &str, token: &str) -> Option<HeaderValue> {
        let name = self.cookie_name(kind)?;
        let age = if token.is_empty() { 0 } else { kind.max_age() };
        let scope = match self {
            Self::Https => "Path=/; Secure".to_owned(),
            Self::Loopback | Self::Exposed => format!("Path={base}"),
        };
        HeaderValue::from_str(&format!("{name}={token}; {scope}; HttpOnly; SameSite=Lax; Max-Age={age}")).ok()
    }

    /// Returns the token of the cookie of this kind.
    pub(crate) fn read_cookie(self, kind: CookieKind, headers: &HeaderMap) -> Option<String> {
        find_cookie(headers, self.cookie_name(kind)?)
    }
}

/// Returns the value of the cookie of this name.
pub(crate) fn find_cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(found, _)| *found == name).map(|(_, value)| value.to_owned())
}

/// Returns the host that the browser named, without its port.
fn host_of(headers: &HeaderMap) -> Option<&str> {
    let host = headers.get(HOST)?.to_str().ok()?;
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next(),
        None => host.split(':').next(),
    }
}

/// Returns whether the name always means this machine. Other names may resolve to it too, and are not trusted.
fn is_loopback_name(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
