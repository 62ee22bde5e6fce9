//! Operations on the six nodes, based on each node's own view.

use std::{ops::RangeInclusive, time::Duration};

use anyhow::{Context, ensure};
use redis::{AsyncConnectionConfig, FromRedisValue};
use servers::{RedisCluster, RedisServer};
use tokio::time::{Instant, sleep, timeout};

use crate::testbed::signals::send_signal;

/// Timeouts for reading the state of a node, and for its commands.
const VIEW_WAIT: Duration = Duration::from_secs(1);
const ANSWER_WAIT: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(50);
/// Timeout for the nodes to agree, also on a busy machine.
const AGREED_WAIT: Duration = Duration::from_secs(60);
/// Time after which a replica is asked again. It may have lost the vote, or refused because it lagged behind.
const ASK_AGAIN: Duration = Duration::from_secs(3);
/// Keys of a slot that move in one call. Clients can run commands between the calls.
const KEYS_AT_ONCE: &str = "10";
const MOVE_TIMEOUT_MS: &str = "5000";

/// State of a node, as the node reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NodeView {
    id: String,
    /// Id of its master. `None` if the node is a master.
    master: Option<String>,
    /// Configuration epoch. If two masters claim a slot, the one with the higher epoch owns it.
    epoch: u64,
    slots: Vec<RangeInclusive<u16>>,
}

impl NodeView {
    /// Parses the node's own line of `CLUSTER NODES`: id, address, flags, master, two times, epoch, link, slots.
    fn parse_own_line(nodes: &str) -> Option<Self> {
        let words: Vec<&str> =
            nodes.lines().map(|line| line.split(' ').collect()).find(|words: &Vec<&str>| is_own_line(words))?;
        let ranges = words.iter().skip(8).filter_map(|range| {
            // Migrating slots are in brackets and do not parse as a range.
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some(first.parse().ok()?..=last.parse().ok()?)
        });
        let is_master = words.get(2)?.split(',').any(|flag| flag == "master");
        Some(Self {
            id: (*words.first()?).to_owned(),
            master: if is_master { None } else { words.get(3).map(|master| (*master).to_owned()) },
            epoch: words.get(6)?.parse().ok()?,
            slots: ranges.collect(),
        })
    }

    fn serves(&self, slot: u16) -> bool {
        self.master.is_none() && self.slots.iter().any(|range| range.contains(&slot))
    }
}

fn is_own_line(words: &[&str]) -> bool {
    words.get(2).is_some_and(|flags| flags.split(',').any(|flag| flag == "myself"))
}

/// Returns the number of the node that serves a slot. Waits while a new master is elected.
pub(super) async fn find_owner(cluster: &RedisCluster, slot: u16) -> anyhow::Result<usize> {
    let begun = Instant::now();
    loop {
        if let Some(owner) = look_for_owner(cluster, slot).await {
            return Ok(owner);
        }
        ensure!(begun.elapsed() < AGREED_WAIT, "no node serves the slot {slot}");
        sleep(LOOK).await;
    }
}

/// Returns the node that serves a slot. `None` if no node claims it.
async fn look_for_owner(cluster: &RedisCluster, slot: u16) -> Option<usize> {
    let mut owner: Option<(u64, usize)> = None;
    for (number, node) in cluster.nodes().iter().enumerate() {
        let Some(view) = read_view(node).await else { continue };
        if view.serves(slot) && owner.is_none_or(|(epoch, _)| view.epoch > epoch) {
            owner = Some((view.epoch, number));
        }
    }
    owner.map(|(_, number)| number)
}

/// Returns the numbers of the nodes that follow a master.
pub(super) async fn find_replicas(cluster: &RedisCluster, master: usize) -> anyhow::Result<Vec<usize>> {
    let id = read_id(&cluster.nodes()[master]).await?;
    let mut replicas = Vec::new();
    for (number, node) in cluster.nodes().iter().enumerate() {
        if read_view(node).await.is_some_and(|view| view.master.as_ref() == Some(&id)) {
            replicas.push(number);
        }
    }
    Ok(replicas)
}

/// Performs a planned failover of a slot's master to a replica. Returns the time until the replica serves the slot.
pub(super) async fn fail_over(cluster: &RedisCluster, slot: u16) -> anyhow::Result<Duration> {
    let before = find_owner(cluster, slot).await?;
    let (begun, mut asked): (_, Option<Instant>) = (Instant::now(), None);
    while look_for_owner(cluster, slot).await.is_none_or(|owner| owner == before) {
        ensure!(begun.elapsed() < AGREED_WAIT, "no replica takes over from node {before}");
        if asked.is_none_or(|at| at.elapsed() >= ASK_AGAIN) {
            asked = Some(Instant::now());
            if let Err(error) = ask_to_take_over(cluster, before).await {
                tracing::debug!(%error, "No replica takes over yet.");
            }
        }
        sleep(LOOK).await;
    }
    Ok(begun.elapsed())
}

async fn ask_to_take_over(cluster: &RedisCluster, master: usize) -> anyhow::Result<()> {
    let replicas = find_replicas(cluster, master).await?;
    let replica = *replicas.first().with_context(|| format!("node {master} has no replica"))?;
    ask_node(&cluster.nodes()[replica], &["CLUSTER", "FAILOVER"]).await
}

/// Kills a slot's master like a crash, and restarts it when its replica serves the slot. Returns the time until then.
/// `before_kill` gets the pid of the master.
pub(super) async fn kill_master(
    cluster: &mut RedisCluster,
    slot: u16,
    before_kill: impl FnOnce(u32),
) -> anyhow::Result<Duration> {
    let killed = find_owner(cluster, slot).await?;
    before_kill(cluster.nodes()[killed].pid());
    let begun = Instant::now();
    cluster.node_mut(killed).kill().await;
    while look_for_owner(cluster, slot).await.is_none() {
        ensure!(begun.elapsed() < AGREED_WAIT, "no replica takes over from node {killed}");
        sleep(LOOK).await;
    }
    let took = begun.elapsed();
    cluster.node_mut(killed).restart().await?;
    let node = &cluster.nodes()[killed];
    while !follows_closely(node).await {
        ensure!(begun.elapsed() < 2 * AGREED_WAIT, "node {killed} does not follow its new master");
        sleep(LOOK).await;
    }
    Ok(took)
}

async fn follows_closely(replica: &RedisServer) -> bool {
    let is_replica = read_view(replica).await.is_some_and(|view| view.master.is_some());
    let info = ask_node::<String>(replica, &["INFO", "replication"]).await.unwrap_or_default();
    is_replica && info.contains("master_link_status:up")
}

/// Moves a slot and its keys to another master, like `redis-cli --cluster reshard`. Returns the time it took.
pub(super) async fn move_slot(cluster: &RedisCluster, slot: u16) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    // On a busy machine a node may be voted out during the move.
    while let Err(error) = try_moving(cluster, slot).await {
        ensure!(begun.elapsed() < AGREED_WAIT, "the slot {slot} cannot be moved: {error:#}");
        tracing::debug!(%error, "Moving a slot again.");
        sleep(LOOK).await;
    }
    Ok(begun.elapsed())
}

async fn try_moving(cluster: &RedisCluster, slot: u16) -> anyhow::Result<()> {
    let from = find_owner(cluster, slot).await?;
    let to = find_other_master(cluster, from).await?;
    let (source, target) = (&cluster.nodes()[from], &cluster.nodes()[to]);
    let (source_id, target_id) = (read_id(source).await?, read_id(target).await?);
    let (text, port) = (slot.to_string(), target.port().to_string());
    ask_node::<()>(target, &["CLUSTER", "SETSLOT", &text, "IMPORTING", &source_id]).await?;
    ask_node::<()>(source, &["CLUSTER", "SETSLOT", &text, "MIGRATING", &target_id]).await?;
    loop {
        let keys: Vec<String> = ask_node(source, &["CLUSTER", "GETKEYSINSLOT", &text, KEYS_AT_ONCE]).await?;
        if keys.is_empty() {
            break;
        }
        // An interrupted call may have left a copy on the target. The copy on the source is newer.
        let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", MOVE_TIMEOUT_MS, "REPLACE", "KEYS"];
        words.extend(keys.iter().map(String::as_str));
        ask_node::<String>(source, &words).await?;
    }
    for node in [target, source] {
        ask_node::<()>(node, &["CLUSTER", "SETSLOT", &text, "NODE", &target_id]).await?;
    }
    let begun = Instant::now();
    while look_for_owner(cluster, slot).await.is_none_or(|owner| owner != to) {
        ensure!(begun.elapsed() < AGREED_WAIT, "node {to} does not serve the slot {slot}");
        sleep(LOOK).await;
    }
    Ok(())
}

async fn find_other_master(cluster: &RedisCluster, master: usize) -> anyhow::Result<usize> {
    for (number, node) in cluster.nodes().iter().enumerate() {
        let is_master = read_view(node).await.is_some_and(|view| view.master.is_none() && !view.slots.is_empty());
        if is_master && number != master {
            return Ok(number);
        }
    }
    anyhow::bail!("node {master} is the only master")
}

/// Flushes a node.
pub(super) async fn flush_node(cluster: &RedisCluster, number: usize) -> anyhow::Result<()> {
    ask_node(&cluster.nodes()[number], &["FLUSHALL"]).await
}

/// Freezes nodes (SIGSTOP), or resumes them (SIGCONT).
pub(super) fn freeze_nodes(cluster: &RedisCluster, numbers: &[usize], frozen: bool) -> anyhow::Result<()> {
    let pids = numbers.iter().map(|number| cluster.nodes()[*number].pid());
    send_signal(if frozen { "STOP" } else { "CONT" }, pids)
}

async fn read_id(node: &RedisServer) -> anyhow::Result<String> {
    ask_node(node, &["CLUSTER", "MYID"]).await
}

/// Returns the state of a node. `None` if it does not answer.
async fn read_view(node: &RedisServer) -> Option<NodeView> {
    let nodes = timeout(VIEW_WAIT, ask_node::<String>(node, &["CLUSTER", "NODES"])).await.ok()?.ok()?;
    NodeView::parse_own_line(&nodes)
}

/// Runs a command over a new connection, because nodes come and go.
async fn ask_node<T: FromRedisValue>(node: &RedisServer, words: &[&str]) -> anyhow::Result<T> {
    let patient =
        AsyncConnectionConfig::new().set_connection_timeout(Some(ANSWER_WAIT)).set_response_timeout(Some(ANSWER_WAIT));
    let client = redis::Client::open(node.url())?;
    let mut connection = client.get_multiplexed_async_connection_with_config(&patient).await?;
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command.query_async(&mut connection).await.with_context(|| format!("{} at {}", words.join(" "), node.url()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nodes_fail_over_recover_and_move_slots() {
        let mut cluster = RedisCluster::start().await.unwrap();
        let (first, last) = (0, 16_383);
        let owner = find_owner(&cluster, first).await.unwrap();
        assert_eq!((owner, find_replicas(&cluster, owner).await.unwrap()), (0, vec![3]));
        let mut heard = None;
        let killed = cluster.nodes()[0].pid();
        kill_master(&mut cluster, first, |pid| heard = Some(pid)).await.unwrap();
        assert_eq!((heard, find_owner(&cluster, first).await.unwrap()), (Some(killed), 3));
        fail_over(&cluster, first).await.unwrap();
        assert_eq!(find_owner(&cluster, first).await.unwrap(), 0, "it follows its replica, which hands back");

        let node = &cluster.nodes()[2];
        let key = (0..).map(|n| format!("key:{n}")).find(|key| queue::store::key_slot(key.as_bytes()) == last).unwrap();
        ask_node::<()>(node, &["SET", &key, "value"]).await.unwrap();
        move_slot(&cluster, last).await.unwrap();
        let owner = find_owner(&cluster, last).await.unwrap();
        assert_ne!(owner, 2);
        assert_eq!(ask_node::<String>(&cluster.nodes()[owner], &["GET", &key]).await.unwrap(), "value");
        flush_node(&cluster, owner).await.unwrap();
        assert_eq!(ask_node::<Option<String>>(&cluster.nodes()[owner], &["GET", &key]).await.unwrap(), None);

        freeze_nodes(&cluster, &[1, 4], true).unwrap();
        assert_eq!(look_for_owner(&cluster, 8_000).await, None, "neither it nor its replica answers");
        freeze_nodes(&cluster, &[1, 4], false).unwrap();
        assert_eq!(find_owner(&cluster, 8_000).await.unwrap(), 1);
    }
}
