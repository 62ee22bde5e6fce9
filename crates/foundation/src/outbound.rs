//! Outgoing HTTP requests. `tls`: the certificate authorities that they trust.

mod tls;

use std::{
    env,
    error::Error,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use reqwest::{
    ClientBuilder, NoProxy, Proxy,
    dns::{Addrs, Name, Resolve, Resolving},
};

/// Installs ring as the TLS provider of this process. Further calls have no effect.
pub fn install_tls() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Describes the failure of a request and its causes. Omits the URL, because its path is often a secret.
pub fn describe_error(error: &reqwest::Error) -> String {
    let mut text = if error.is_timeout() { "no answer in time".to_owned() } else { String::new() };
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&error.to_string());
        cause = error.source();
    }
    if text.is_empty() { "the request failed".to_owned() } else { text }
}

/// Returns a builder with reqwest's defaults. Its clients share this machine's certificate authorities, which are read
/// when the first server is verified.
pub fn client_builder() -> ClientBuilder {
    reqwest::Client::builder().tls_backend_preconfigured(tls::client_config())
}

/// Builds a client that has a timeout and follows no redirects, because all its addresses are configured. It uses a
/// proxy from the environment for https only, because a proxy could read http requests.
pub fn build_client(timeout: Duration) -> Result<reqwest::Client, reqwest::Error> {
    let builder = bounded_builder(timeout);
    match https_proxy() {
        Some(address) => builder.proxy(Proxy::https(address)?.no_proxy(NoProxy::from_env())).build(),
        None => builder.build(),
    }
}

/// Builds a client like [`build_client`] that uses no proxy.
pub fn build_direct_client(timeout: Duration) -> Result<reqwest::Client, reqwest::Error> {
    bounded_builder(timeout).build()
}

/// Returns the https proxy that the environment names.
fn https_proxy() -> Option<String> {
    let names = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
    names.iter().find_map(|name| env::var(name).ok().filter(|address| !address.is_empty()))
}

/// Builds a client like [`build_client`] that connects only to public addresses, whatever a name resolves to. It uses
/// no proxy, because the proxy would resolve names. IP addresses in URLs bypass the resolver; check them with
/// [`is_public`].
pub fn build_public_client(timeout: Duration) -> Result<reqwest::Client, reqwest::Error> {
    build_public_client_with(MachineResolver, timeout)
}

/// Builds a client like [`build_public_client`] that resolves names with `resolver`.
pub fn build_public_client_with(
    resolver: impl Resolve + 'static,
    timeout: Duration,
) -> Result<reqwest::Client, reqwest::Error> {
    bounded_builder(timeout).dns_resolver(PublicResolver(resolver)).build()
}

/// Returns a builder with timeouts and without a proxy.
fn bounded_builder(timeout: Duration) -> ClientBuilder {
    install_tls();
    client_builder()
        .no_proxy()
        .timeout(timeout)
        .connect_timeout(timeout.min(Duration::from_secs(3)))
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("dispatchq/", env!("CARGO_PKG_VERSION")))
}

/// Resolver of the operating system.
#[derive(Debug)]
pub struct MachineResolver;

impl Resolve for MachineResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(look_up(name))
    }
}

/// Resolver that returns only the public addresses of another resolver.
struct PublicResolver<R>(R);

impl<R: Resolve> Resolve for PublicResolver<R> {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(keep_public(self.0.resolve(name)))
    }
}

async fn look_up(name: Name) -> Result<Addrs, Box<dyn Error + Send + Sync>> {
    let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
    Ok(Box::new(found.into_iter()))
}

/// Returns the public addresses. The error is the same for a name that does not exist and for a name with private addresses
/// only, because a producer sees it and must not learn which names a private network has.
async fn keep_public(found: Resolving) -> Result<Addrs, Box<dyn Error + Send + Sync>> {
    let found = found.await.inspect_err(|error| tracing::debug!(error, "A name could not be resolved."));
    let public: Vec<SocketAddr> = found.into_iter().flatten().filter(|address| is_public(address.ip())).collect();
    if public.is_empty() {
        return Err(io::Error::other("the name does not resolve, or only to private addresses").into());
    }
    Ok(Box::new(public.into_iter()))
}

/// Returns whether an address belongs to the public Internet. Addresses of private networks, of this machine, of local
/// links and of documentation do not, even if they are wrapped in IPv6.
pub fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    // 0/8; 100.64/10 of carriers; 192.0.0/24; 198.18/15 of benchmarks; 240/4.
    let is_reserved = a == 0
        || (a == 100 && (64..128).contains(&b))
        || (a, b, c) == (192, 0, 0)
        || (a == 198 && (b == 18 || b == 19))
        || a >= 240;
    !(is_reserved
        || address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation())
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    match address.segments() {
        // NAT64: the last 32 bits are an IPv4 address.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
            is_public_v4(Ipv4Addr::new(a, b, c, d))
        }
        // 2000::/3 is assigned. Exclude documentation ranges and tunnels that wrap IPv4.
        [first @ 0x2000..=0x3fff, second, ..] => !matches!((first, second), (0x2001, 0 | 0xdb8) | (0x2002 | 0x3fff, _)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the error for a name with these addresses.
    async fn error_of(found: Result<Vec<SocketAddr>, io::Error>) -> String {
        let found: Resolving = Box::pin(async move {
            let found: Addrs = Box::new(found?.into_iter());
            Ok(found)
        });
        keep_public(found).await.err().unwrap().to_string()
    }

    #[tokio::test]
    async fn missing_and_private_names_have_one_error() {
        let private = error_of(Ok(vec!["10.0.0.1:0".parse().unwrap()])).await;
        assert_eq!(error_of(Err(io::Error::other("no such name"))).await, private);
    }
}
