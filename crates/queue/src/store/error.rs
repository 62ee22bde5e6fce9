//! Errors between the engine and Redis. Messages name the cure and never a password.

use redis::{ErrorKind, RedisError, ServerErrorKind};

/// Error of a call to the store. The call may or may not have taken effect.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    #[error(
        "redis.url is not a Redis address: {reason}; expected redis://[user:password@]host:port[/db], rediss:// for TLS, \
         redis+sentinel://[user:password@]host:port,host:port/primary[/db], or redis+cluster://[user:password@]host:port,host:port"
    )]
    Url { reason: String },
    #[error(
        "redis.root_certificate cannot be used: {reason}; it must be the PEM of the authority that signed the certificate of a \
         Redis at rediss://, rediss+sentinel:// or rediss+cluster://"
    )]
    Certificate { reason: String },
    #[error("cannot reach Redis at {address}: {reason}; is it running? check redis.url")]
    Unreachable { address: String, reason: String },
    #[error("Redis at {address} refuses the login: {reason}; check user and password in redis.url")]
    Login { address: String, reason: String },
    #[error(
        "Redis at {address} did not answer '{call}' within {secs} s; is it overloaded or blocked by a slow command?"
    )]
    Slow { address: String, call: &'static str, secs: u64 },
    #[error("Redis at {address} is full: it takes no new jobs; raise its maxmemory, or let the queues drain")]
    Full { address: String },
    #[error(
        "Redis at {address} is a replica and cannot be written to; name the primary, or all sentinels with \
         redis+sentinel:// in redis.url"
    )]
    Replica { address: String },
    #[error("Redis at {address} is a node of a cluster; name some of its nodes with redis+cluster:// in redis.url")]
    ClusterNode { address: String },
    #[error("Redis at {address} is moving the queue's slot to another node; retry in a moment")]
    SlotMoving { address: String },
    #[error("Redis at {address} failed '{call}': {reason}")]
    Refused { address: String, call: &'static str, reason: String },
    #[error("Redis answered '{call}' in an unknown format: {reason}; do all processes run the same version?")]
    Answer { call: &'static str, reason: String },
}

impl StoreError {
    pub(crate) fn new(address: &str, call: &'static str, error: &RedisError) -> Self {
        let address = address.to_owned();
        let reason = error.to_string();
        match error.kind() {
            ErrorKind::AuthenticationFailed => Self::Login { address, reason },
            _ if matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM")) => Self::Login { address, reason },
            ErrorKind::MasterNameNotFoundBySentinel => Self::Unreachable { address, reason },
            _ if error.is_io_error() => Self::Unreachable { address, reason },
            ErrorKind::Server(ServerErrorKind::ReadOnly) => Self::Replica { address },
            ErrorKind::Server(ServerErrorKind::ClusterDown) => Self::Unreachable { address, reason },
            ErrorKind::Server(ServerErrorKind::Moved) => Self::ClusterNode { address },
            ErrorKind::Server(ServerErrorKind::Ask | ServerErrorKind::TryAgain) => Self::SlotMoving { address },
            _ if error.code() == Some("OOM") => Self::Full { address },
            ErrorKind::Parse | ErrorKind::UnexpectedReturnType => Self::Answer { call, reason },
            _ => Self::Refused { address, call, reason },
        }
    }

    pub(super) fn invalid_url(error: RedisError) -> Self {
        Self::Url { reason: error.to_string() }
    }

    pub(crate) fn invalid_answer(call: &'static str, reason: impl ToString) -> Self {
        Self::Answer { call, reason: reason.to_string() }
    }

    /// Returns whether a later retry may help. It cannot help against an invalid address or certificate, or an answer
    /// of an unknown version.
    pub fn is_transient(&self) -> bool {
        !matches!(self, Self::Url { .. } | Self::Certificate { .. } | Self::Answer { .. })
    }
}
