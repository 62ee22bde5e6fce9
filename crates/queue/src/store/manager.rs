//! Settings and functions for all connections to Redis: timeouts, keepalive, messages, and replacing a connection.

use std::time::Duration;

use apalis_redis::ConnectionManager;
use redis::{
    FromRedisValue, PushInfo, PushKind, RedisResult,
    aio::ConnectionManagerConfig,
    io::tcp::{TcpSettings, socket2::TcpKeepalive},
};
use tokio::sync::broadcast;

use super::address::RedisConfig;

/// Capacity for messages when the supervisor is slow. It needs only one of them to wake up.
pub(super) const WAKES_KEPT: usize = 64;

/// Time after which a silent peer counts as dead. The connection then ends and a new one is opened.
const DEAD_PEER: Duration = Duration::from_secs(10);
const RESUBSCRIBE_TRIES: u32 = 10;

pub(super) fn manager_config(config: &RedisConfig, wakes: broadcast::Sender<String>) -> ConnectionManagerConfig {
    ConnectionManagerConfig::new()
        .set_connection_timeout(Some(config.connect_timeout))
        .set_response_timeout(Some(config.worker_timeout))
        // Enough for a restart of the server. During a longer outage each call fails, and the next one reconnects.
        .set_number_of_retries(2)
        .set_min_delay(Duration::from_millis(50))
        .set_max_delay(Duration::from_millis(500))
        .set_automatic_resubscription()
        .set_push_sender(move |push: PushInfo| {
            if let Some(queue) = woken_queue(push) {
                // A process that only enqueues has no receiver.
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

/// Drops a replaced connection later, because a server that is only blocked still runs the commands sent over it.
pub(super) fn drop_later(old: ConnectionManager) {
    tokio::spawn(async move {
        tokio::time::sleep(DEAD_PEER).await;
        drop(old);
    });
}

/// Subscribes to a channel on a connection that replaced another.
pub(super) async fn subscribe_to(manager: ConnectionManager, channel: String) {
    subscribe_again(manager, async move |manager: &mut ConnectionManager| manager.subscribe(&channel).await).await;
}

/// Subscribes on a connection that replaced another, with a limited number of tries. A failed take subscribes again,
/// too. This task is needed when the old connection still answers a take, because that take does not notice the lost
/// subscription.
pub(super) async fn subscribe_again(
    mut manager: ConnectionManager,
    subscribe: impl AsyncFn(&mut ConnectionManager) -> RedisResult<()>,
) {
    for _ in 0..RESUBSCRIBE_TRIES {
        match subscribe(&mut manager).await {
            Ok(()) => return,
            Err(error) => tracing::debug!(%error, "Cannot subscribe to the wake channel yet."),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
