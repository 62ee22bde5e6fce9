//! Redis Sentinel: finds the primary, now and after a failover.
//!
//! A failover may lose the last writes, which the replicas did not have yet. The new primary's `run_id` differs from
//! the one in the epoch, so the reconciler rebuilds as after a restart.

use redis::{
    Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisResult, TlsCertificates, TlsMode,
    io::tcp::TcpSettings,
    sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType},
};

use super::error::StoreError;

/// `redis+sentinel://[user:password@]host:port,host:port,../primary[/db][?user=..&password=..]`, or `rediss+sentinel`.
///
/// User and password before the hosts are for the Redis servers, those in the query for the sentinels.
#[derive(Debug)]
pub(super) struct SentinelUrl {
    primary: String,
    /// Addresses of the sentinels, each with the sentinels' login.
    sentinels: Vec<ConnectionInfo>,
    /// Login and database of the Redis servers. Its address is not used.
    server: ConnectionInfo,
}

/// Client that asks the sentinels for the primary.
pub(super) struct SentinelClients(SentinelClient);

impl SentinelUrl {
    /// Parses the URL. Returns `None` for a URL of another kind.
    pub(super) fn parse(url: &str) -> Result<Option<Self>, StoreError> {
        let Some((scheme @ ("redis" | "rediss"), rest)) = url.split_once("+sentinel://") else { return Ok(None) };
        let wrong = |reason: &str| StoreError::Url { reason: reason.to_owned() };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (login, rest) = rest.rsplit_once('@').map_or(("", rest), |(login, rest)| (login, rest));
        let (hosts, path) = rest.split_once('/').ok_or_else(|| wrong("the primary's name is missing"))?;
        let (primary, db) = path.split_once('/').unwrap_or((path, ""));
        if primary.is_empty() {
            return Err(wrong("the primary's name is missing"));
        }
        let (mut user, mut password) = ("", "");
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("user", value)) => user = value,
                Some(("password", value)) => password = value,
                _ => return Err(wrong("only user= and password= of the sentinels may follow the '?'")),
            }
        }
        // Parsed by the same code as any other URL.
        let info = |user_password: &str, host: &str, db: &str| {
            let at = if user_password.is_empty() { "" } else { "@" };
            format!("{scheme}://{user_password}{at}{host}/{db}").into_connection_info().map_err(StoreError::invalid_url)
        };
        let sentinel_login =
            if password.is_empty() && user.is_empty() { String::new() } else { format!("{user}:{password}") };
        let with_port = |host: &str| if has_port(host) { host.to_owned() } else { format!("{host}:26379") };
        let sentinels: Result<Vec<_>, _> =
            hosts.split(',').map(|host| info(&sentinel_login, &with_port(host), "")).collect();
        let server = info(login, "primary", db)?;
        Ok(Some(Self { primary: primary.to_owned(), sentinels: sentinels?, server }))
    }

    /// Returns the address for messages, without secrets.
    pub(super) fn address(&self) -> String {
        let sentinels: Vec<String> = self.sentinels.iter().map(|info| info.addr().to_string()).collect();
        format!("the primary '{}' of the sentinels {}", self.primary, sentinels.join(", "))
    }

    /// Returns whether sentinels and servers use TLS.
    pub(super) fn is_tls(&self) -> bool {
        self.sentinels.iter().any(|info| matches!(info.addr(), ConnectionAddr::TcpTls { .. }))
    }

    /// Creates the client without connecting.
    pub(super) fn connect(
        self,
        tcp_settings: TcpSettings,
        certificates: Option<TlsCertificates>,
    ) -> Result<SentinelClients, StoreError> {
        let addresses: Vec<ConnectionAddr> = self.sentinels.iter().map(|info| info.addr().clone()).collect();
        let tls = self.is_tls();
        let login = self.sentinels.first().map(|info| info.redis_settings().clone()).unwrap_or_default();
        let server = self.server.redis_settings();
        let builder = SentinelClientBuilder::new(addresses, &self.primary, SentinelServerType::Master);
        let mut builder = builder
            .map_err(StoreError::invalid_url)?
            .set_client_to_redis_db(server.db())
            .set_client_to_redis_protocol(ProtocolVersion::RESP3)
            .set_client_to_redis_tcp_settings(tcp_settings.clone())
            .set_client_to_sentinel_tcp_settings(tcp_settings);
        if let Some(user) = server.username() {
            builder = builder.set_client_to_redis_username(user);
        }
        if let Some(password) = server.password() {
            builder = builder.set_client_to_redis_password(password);
        }
        if let Some(user) = login.username() {
            builder = builder.set_client_to_sentinel_username(user);
        }
        if let Some(password) = login.password() {
            builder = builder.set_client_to_sentinel_password(password);
        }
        if tls {
            builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
            if let Some(certificates) = certificates {
                builder = builder
                    .set_client_to_redis_certificates(certificates.clone())
                    .set_client_to_sentinel_certificates(certificates);
            }
        }
        builder.build().map(SentinelClients).map_err(StoreError::invalid_url)
    }
}

impl SentinelClients {
    /// Returns a client of the current primary, after that server has confirmed its role.
    pub(super) async fn find_primary(&mut self) -> RedisResult<Client> {
        self.0.async_get_client().await
    }
}

fn has_port(host: &str) -> bool {
    host.rsplit_once(':').is_some_and(|(_, port)| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentinel_url_has_primary_and_both_logins() {
        let url = "redis+sentinel://app:p%40ss@a:1,b,[::1]:3/main/2?password=secret";
        let url = SentinelUrl::parse(url).unwrap().unwrap();
        assert_eq!(url.address(), "the primary 'main' of the sentinels a:1, b:26379, ::1:3");
        let server = url.server.redis_settings();
        assert_eq!((server.username(), server.password(), server.db()), (Some("app"), Some("p@ss"), 2));
        let login = url.sentinels[1].redis_settings();
        assert_eq!((login.username(), login.password()), (None, Some("secret")));
    }

    #[test]
    fn tls_covers_sentinels_and_servers() {
        let url = SentinelUrl::parse("rediss+sentinel://a:1/main").unwrap().unwrap();
        assert!(url.is_tls());
        assert!(!SentinelUrl::parse("redis+sentinel://a:1/main").unwrap().unwrap().is_tls());
    }

    #[test]
    fn incomplete_sentinel_urls_are_refused() {
        assert!(SentinelUrl::parse("redis://a:1/0").unwrap().is_none());
        for half in ["redis+sentinel://a:1", "redis+sentinel://a:1/", "redis+sentinel://a:1/main?db=1"] {
            assert!(matches!(SentinelUrl::parse(half), Err(StoreError::Url { .. })), "{half}");
        }
    }
}
