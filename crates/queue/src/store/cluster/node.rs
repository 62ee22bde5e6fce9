//! The connection to one node of a cluster.

use std::time::{Duration, Instant};

use apalis_redis::{Client, ConnectionManager};
use parking_lot::Mutex;
use redis::{Cmd, RedisResult, Value, aio::ConnectionManagerConfig};

use super::map::NodeAddress;
use crate::store::manager::drop_later;

/// A node and its connection, which reconnects by itself.
pub(super) struct ClusterNode {
    pub(super) address: NodeAddress,
    client: Client,
    config: ConnectionManagerConfig,
    manager: Mutex<ConnectionManager>,
    /// Start of the first call since the last answer. `None` if all calls were answered.
    unanswered: Mutex<Option<Instant>>,
}

impl ClusterNode {
    /// Creates the node without connecting.
    pub(super) fn new(address: NodeAddress, client: Client, config: ConnectionManagerConfig) -> RedisResult<Self> {
        let manager = ConnectionManager::new_lazy_with_config(client.clone(), config.clone())?;
        Ok(Self { address, client, config, manager: Mutex::new(manager), unanswered: Mutex::default() })
    }

    /// Opens another connection to this node, for traffic that must not share the one for calls.
    pub(super) fn open_connection(&self) -> RedisResult<ConnectionManager> {
        ConnectionManager::new_lazy_with_config(self.client.clone(), self.config.clone())
    }

    pub(super) async fn send(&self, cmd: &Cmd) -> RedisResult<Value> {
        let mut manager = self.current_manager();
        let answer = manager.send_packed_command(cmd).await;
        self.record_contact(&answer);
        answer?.extract_error()
    }

    /// Sends a command about a slot that this node is about to take over.
    pub(super) async fn ask(&self, cmd: &Cmd) -> RedisResult<Value> {
        let mut pipeline = redis::pipe();
        pipeline.cmd("ASKING").add_command(cmd.clone());
        let mut manager = self.current_manager();
        let answer = manager.send_packed_commands(&pipeline, 1, 1).await;
        self.record_contact(&answer);
        answer?.pop().unwrap_or(Value::Nil).extract_error()
    }

    pub(super) async fn send_all(
        &self,
        pipeline: &redis::Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisResult<Vec<Value>> {
        let mut manager = self.current_manager();
        let answers = manager.send_packed_commands(pipeline, offset, count).await;
        self.record_contact(&answers);
        answers
    }

    fn current_manager(&self) -> ConnectionManager {
        self.unanswered.lock().get_or_insert_with(Instant::now);
        self.manager.lock().clone()
    }

    /// Ends the silence of the connection, unless the command timed out. Any other error is an answer of the server, or
    /// comes from a broken connection, which the manager repairs.
    fn record_contact<T>(&self, answer: &RedisResult<T>) {
        if !answer.as_ref().is_err_and(redis::RedisError::is_timeout) {
            *self.unanswered.lock() = None;
        }
    }

    /// Replaces the connection if it has been silent for `patience`. A connection that a firewall drops silently stays
    /// open forever, and the manager reconnects only when it breaks.
    pub(super) fn replace_if_silent(&self, patience: Duration) {
        {
            let mut unanswered = self.unanswered.lock();
            if unanswered.is_none_or(|since| since.elapsed() < patience) {
                return;
            }
            *unanswered = None;
        }
        tracing::warn!(node = %self.address, "A connection to a node of the Redis cluster is silent and is replaced.");
        self.replace_connection();
    }

    /// Replaces the connection. Also needed after a refused login, because the manager would answer every later call
    /// with that refusal.
    pub(super) fn replace_connection(&self) {
        match self.open_connection() {
            Ok(new) => drop_later(std::mem::replace(&mut *self.manager.lock(), new)),
            Err(error) => tracing::error!(%error, "Cannot replace a connection to Redis."),
        }
    }
}
