//! `redis+cluster://` addresses.

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

use crate::store::StoreError;

/// Some nodes of a cluster, which name the others, and the login for all of them.
pub(in crate::store) struct ClusterUrl {
    pub(super) seeds: Vec<ConnectionInfo>,
}

impl ClusterUrl {
    /// Parses the URL. Returns `None` for a URL of another kind.
    pub(in crate::store) fn parse(url: &str) -> Result<Option<Self>, StoreError> {
        let Some((scheme @ ("redis" | "rediss"), rest)) = url.split_once("+cluster://") else { return Ok(None) };
        let (login, hosts) = rest.rsplit_once('@').map_or(("", rest), |(login, hosts)| (login, hosts));
        let (hosts, path) = hosts.split_once('/').unwrap_or((hosts, ""));
        if !matches!(path, "" | "0") {
            return Err(StoreError::Url { reason: "a cluster has only database 0".to_owned() });
        }
        let at = if login.is_empty() { "" } else { "@" };
        // Parsed by the same code as any other URL.
        let seed = |host: &str| {
            format!("{scheme}://{login}{at}{host}").into_connection_info().map_err(StoreError::invalid_url)
        };
        let seeds: Result<Vec<_>, _> = hosts.split(',').map(seed).collect();
        Ok(Some(Self { seeds: seeds? }))
    }

    /// Returns the address for messages, without secrets.
    pub(in crate::store) fn address(&self) -> String {
        let seeds: Vec<String> = self.seeds.iter().map(|seed| seed.addr().to_string()).collect();
        format!("the cluster of {}", seeds.join(", "))
    }

    pub(in crate::store) fn is_tls(&self) -> bool {
        self.seeds.iter().any(|seed| matches!(seed.addr(), ConnectionAddr::TcpTls { .. }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_url_has_nodes_and_login() {
        let url = ClusterUrl::parse("redis+cluster://app:p%40ss@a:7000,b,[::1]:7002").unwrap().unwrap();
        assert_eq!(url.address(), "the cluster of a:7000, b:6379, ::1:7002");
        for seed in &url.seeds {
            let settings = seed.redis_settings();
            assert_eq!((settings.username(), settings.password()), (Some("app"), Some("p@ss")));
        }
        assert!(!url.is_tls());
        assert!(ClusterUrl::parse("rediss+cluster://a").unwrap().unwrap().is_tls());
    }

    #[test]
    fn wrong_cluster_urls_are_refused() {
        for other in ["redis://a:1/0", "redis+sentinel://a:1/main"] {
            assert!(ClusterUrl::parse(other).unwrap().is_none(), "{other}");
        }
        assert!(ClusterUrl::parse("redis+cluster://a:1/0").unwrap().is_some());
        for wrong in ["redis+cluster://", "redis+cluster://a:1,", "redis+cluster://a:1/3"] {
            assert!(matches!(ClusterUrl::parse(wrong), Err(StoreError::Url { .. })), "{wrong}");
        }
    }
}
