//! The client's address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use axum::{
    extract::{ConnectInfo, MatchedPath, Request},
    http::{Extensions, HeaderMap, request::Parts},
};
use ipnet::IpNet;

const FORWARDED_FOR: &str = "x-forwarded-for";

/// Address of the client that makes this request, as reported by trusted sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientAddress(pub IpAddr);

impl ClientAddress {
    /// Returns the address that [`of_peer`](Self::of_peer) found and the server stored in the request.
    pub fn of_request(request: &Request) -> Self {
        Self::of_extensions(request.extensions())
    }

    fn of_extensions(extensions: &Extensions) -> Self {
        let known = extensions.get::<Self>().copied();
        let peer = || Some(Self(extensions.get::<ConnectInfo<SocketAddr>>()?.0.ip().to_canonical()));
        known.or_else(peer).unwrap_or(Self(Ipv4Addr::UNSPECIFIED.into()))
    }

    /// Returns the address of the peer. For a trusted proxy, returns the last address in X-Forwarded-For that is not a
    /// trusted proxy. The client can write all addresses before that one.
    pub fn of_peer(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> Self {
        let is_trusted = |address: &IpAddr| trusted.iter().any(|network| network.contains(address));
        let mut client = peer.to_canonical();
        let hops: Vec<&str> = headers
            .get_all(FORWARDED_FOR)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .collect();
        for hop in hops.into_iter().rev() {
            if !is_trusted(&client) {
                break;
            }
            let Ok(address) = hop.trim().parse::<IpAddr>() else { break };
            client = address.to_canonical();
        }
        Self(client)
    }

    /// Returns the address that identifies one client for limits. For IPv6 it is the network, because one client has
    /// 2^64 addresses.
    pub fn network(self) -> IpAddr {
        match self.0 {
            IpAddr::V4(_) => self.0,
            IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
        }
    }
}

/// Returns the client's address, and the method and route pattern of a request. The pattern contains no ids.
pub fn describe_request(parts: &Parts) -> (IpAddr, String) {
    let route = parts.extensions.get::<MatchedPath>().map_or(parts.uri.path(), MatchedPath::as_str);
    (ClientAddress::of_extensions(&parts.extensions).0, format!("{} {route}", parts.method))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(peer: &str, forwarded: &[&str]) -> String {
        let trusted: Vec<IpNet> = ["10.0.0.0/8", "192.0.2.7/32"].map(|n| n.parse().unwrap()).to_vec();
        let headers = forwarded.iter().map(|v| (FORWARDED_FOR.parse().unwrap(), v.parse().unwrap())).collect();
        ClientAddress::of_peer(peer.parse().unwrap(), &headers, &trusted).0.to_string()
    }

    #[test]
    fn only_trusted_proxies_set_client_address() {
        assert_eq!(client("203.0.113.5", &["198.51.100.1"]), "203.0.113.5");
        assert_eq!(client("10.1.2.3", &["198.51.100.1"]), "198.51.100.1");
        assert_eq!(client("10.1.2.3", &[]), "10.1.2.3");
        assert_eq!(client("::ffff:10.1.2.3", &["198.51.100.1"]), "198.51.100.1");
    }

    #[test]
    fn untrusted_forwarded_address_is_ignored() {
        assert_eq!(client("10.1.2.3", &["1.1.1.1, 198.51.100.1"]), "198.51.100.1");
        assert_eq!(client("10.1.2.3", &["1.1.1.1", "198.51.100.1, 192.0.2.7"]), "198.51.100.1");
        assert_eq!(client("10.1.2.3", &["1.1.1.1, nonsense"]), "10.1.2.3");
    }
}
