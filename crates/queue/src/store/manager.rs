//! What all connections to Redis share: timeouts, keepalive, messages, and how one takes the place of another.

use std::time::Duration;

use apalis_redis::ConnectionManager;
use redis::{
    FromRedisValue, PushInfo, PushKind, RedisResult,
    aio::ConnectionManagerConfig,
    io::tcp::{TcpSettings, socket2::TcpKeepalive},
};
use tokio::sync::broadcast;

use super::address::RedisConfig;

/// Messages that may wait for a slow supervisor. It only needs to know that there was one.
pub(super) const WAKES_KEPT: usize = 64;

/// A peer that is gone without a word is noticed after this, which ends the connection and begins a new one.
const DEAD_PEER: Duration = Duration::from_secs(10);
const RESUBSCRIBE_TRIES: u32 = 10;

pub(super) fn manager_config(config: &RedisConfig, wakes: broadcast::Sender<String>) -> ConnectionManagerConfig {
    ConnectionManagerConfig::new()
        .set_connection_timeout(Some(config.connect_timeout))
        .set_response_timeout(Some(config.worker_timeout))
        // Enough to bridge a restart. Longer outages are the callers': each call then fails, and each reconnects.
        .set_number_of_retries(2)
        .set_min_delay(Duration::from_millis(50))
        .set_max_delay(Duration::from_millis(500))
        .set_automatic_resubscription()
        .set_push_sender(move |push: PushInfo| {
            if let Some(queue) = woken_queue(push) {
                // A process that only enqueues has no listener.
                let _ = wakes.send(queue);
            }
            Ok::<(), redis::aio::SendError>(())
        })
}

pub(super) fn tcp_settings() -> TcpSettings {
    let keepalive = TcpKeepalive::new().with_time(DEAD_PEER / 2).with_interval(DEAD_PEER / 5);
    // Without nodelay, small requests wait for the peer's delayed acknowledgements.
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(DEAD_PEER);
    settings
}

fn woken_queue(push: PushInfo) -> Option<String> {
    if !matches!(push.kind, PushKind::Message | PushKind::SMessage) {
        return None;
    }
    let message = push.data.into_iter().nth(1)?;
    String::from_redis_value(message).ok()
}

/// A server that is only blocked still performs what it was sent over its old connection.
pub(super) fn drop_later(old: ConnectionManager) {
    tokio::spawn(async move {
        tokio::time::sleep(DEAD_PEER).await;
        drop(old);
    });
}

/// Subscribes to a channel on a connection that took the place of another.
pub(super) async fn subscribe_to(manager: ConnectionManager, channel: String) {
    subscribe_again(manager, async move |manager: &mut ConnectionManager| manager.subscribe(&channel).await).await;
}

/// Subscribes on a connection that took the place of another. A take that the other one still answered would not notice that the
/// subscription is gone; one that fails subscribes again itself, so some tries are enough.
pub(super) async fn subscribe_again(
    mut manager: ConnectionManager,
    subscribe: impl AsyncFn(&mut ConnectionManager) -> RedisResult<()>,
) {
    for _ in 0..RESUBSCRIBE_TRIES {
        match subscribe(&mut manager).await {
            Ok(()) => return,
            Err(error) => tracing::debug!(%error, "The wake channel cannot be subscribed to yet."),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
