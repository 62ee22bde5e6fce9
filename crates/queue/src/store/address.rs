//! Redis addresses (one server, sentinels, a cluster) and the certificate for encrypted connections.

use std::time::Duration;

use apalis_redis::Client;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, TlsCertificates};

use super::{cluster::ClusterUrl, error::StoreError, sentinel::SentinelUrl};

/// Address of Redis, and timeouts for it.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisConfig {
    /// One of:
    ///
    /// * `redis://[user:password@]host:port[/db]`: one server.
    /// * `redis+sentinel://[user:password@]host:port,host:port,../primary[/db]`: a primary behind sentinels, with
    ///   `?user=..&password=..` if the sentinels themselves require a login.
    /// * `redis+cluster://[user:password@]host:port,host:port,..`: some nodes of a cluster.
    ///
    /// `rediss://`, `rediss+sentinel://` and `rediss+cluster://` use TLS. For TLS the program must install a
    /// process-wide rustls provider before it connects, such as
    /// `rustls::crypto::ring::default_provider().install_default()`. This crate chooses none.
    pub url: String,
    /// PEM of the authority that signed the servers' certificates. Needed only for a private authority.
    pub root_certificate: Option<Vec<u8>>,
    /// Timeout of one connection attempt.
    pub connect_timeout: Duration,
    /// Timeout of a call that a user or a request waits for.
    pub response_timeout: Duration,
    /// Timeout of a worker's call. It must be as long as a lease. A server that was only busy may still run a `take`
    /// that timed out, and its jobs would then wait for their leases to expire.
    pub worker_timeout: Duration,
}

impl RedisConfig {
    /// Creates a configuration with timeouts of 2 s to connect, 2 s for an answer and 8 s for a worker's answer.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            root_certificate: None,
            connect_timeout: Duration::from_secs(2),
            response_timeout: Duration::from_secs(2),
            worker_timeout: Duration::from_secs(8),
        }
    }

    /// Checks the address and the certificate as [`Store::with_config`](super::Store::with_config) does, without
    /// connecting.
    pub fn check(&self) -> Result<(), StoreError> {
        let address = RedisAddress::parse(&self.url)?;
        self.read_certificates(address.is_tls()).map(drop)
    }

    /// Reads the certificate. A certificate for an address without TLS is an error, because the operator would believe
    /// that the connection is encrypted.
    pub(super) fn read_certificates(&self, tls: bool) -> Result<Option<TlsCertificates>, StoreError> {
        let Some(pem) = &self.root_certificate else { return Ok(None) };
        let wrong = |reason: String| StoreError::Certificate { reason };
        if !tls {
            return Err(wrong("redis.url does not use TLS".to_owned()));
        }
        if !String::from_utf8_lossy(pem).contains("-----BEGIN CERTIFICATE-----") {
            return Err(wrong("it contains no certificate".to_owned()));
        }
        let certificates = TlsCertificates { client_tls: None, root_cert: Some(pem.clone()) };
        // Parses the certificate now. With sentinels it would otherwise be parsed only when they name a primary.
        Client::build_with_tls("rediss://localhost", certificates.clone()).map_err(|error| wrong(error.to_string()))?;
        Ok(Some(certificates))
    }
}

/// Kind of Redis that a URL names.
pub(super) enum RedisAddress {
    Server(ConnectionInfo),
    Sentinels(SentinelUrl),
    Cluster(ClusterUrl),
}

impl RedisAddress {
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        if let Some(url) = SentinelUrl::parse(url)? {
            return Ok(Self::Sentinels(url));
        }
        match ClusterUrl::parse(url)? {
            Some(url) => Ok(Self::Cluster(url)),
            None => connection_info(url).map(Self::Server),
        }
    }

    pub(super) fn is_tls(&self) -> bool {
        match self {
            Self::Server(info) => matches!(info.addr(), ConnectionAddr::TcpTls { .. }),
            Self::Sentinels(url) => url.is_tls(),
            Self::Cluster(url) => url.is_tls(),
        }
    }
}

impl std::fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisConfig")
            .field("url", &"..")
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .field("worker_timeout", &self.worker_timeout)
            .finish()
    }
}

fn connection_info(url: &str) -> Result<ConnectionInfo, StoreError> {
    let info = url.into_connection_info().map_err(StoreError::invalid_url)?;
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    Ok(info.set_redis_settings(settings))
}
