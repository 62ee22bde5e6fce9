//! A Redis Cluster of three masters, each with a replica, on this machine. For tests.

use std::{io, net::Ipv4Addr, path::PathBuf, time::Duration};

use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::Instant,
};

use crate::{RedisServer, ServerError, error::IoErrorContext, ports::ReservedPort, tls::make_certificates};

const MASTERS: usize = 3;
const NODES: usize = 2 * MASTERS;
const SLOTS: usize = 16_384;
/// Time in milliseconds after which the nodes vote a silent master out.
const NODE_TIMEOUT_MS: u32 = 1_000;
/// Timeout for forming the cluster. Nodes exchange their state several times a second.
const FORMED_WAIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);

/// A running cluster. Dropping it ends the processes and removes their data.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
    /// Ports of the cluster bus between the nodes.
    buses: Vec<ReservedPort>,
    tls: Option<ClusterTls>,
}

/// Certificates and ports for TLS, to clients and between nodes.
#[derive(Debug)]
struct ClusterTls {
    dir: TempDir,
    ports: Vec<ReservedPort>,
}

impl RedisCluster {
    /// Starts six nodes on free ports. Returns when each node knows all others, all slots are served, and all replicas
    /// follow their masters.
    pub async fn start() -> Result<RedisCluster, ServerError> {
        RedisCluster::start_with(None).await
    }

    /// Starts a cluster like [`RedisCluster::start`], with TLS for clients and between nodes. Creates a certificate
    /// authority with `openssl`.
    pub async fn start_with_tls() -> Result<RedisCluster, ServerError> {
        let dir = tempfile::Builder::new().prefix("dispatchq-tls-").tempdir();
        let dir = dir.while_doing(|| "create a directory for certificates".into())?;
        make_certificates(dir.path())?;
        let ports = (0..NODES).map(|_| ReservedPort::find()).collect();
        RedisCluster::start_with(Some(ClusterTls { dir, ports })).await
    }

    async fn start_with(tls: Option<ClusterTls>) -> Result<RedisCluster, ServerError> {
        let mut nodes = Vec::new();
        let mut buses = Vec::new();
        for number in 0..NODES {
            let bus = ReservedPort::find();
            let mut args = cluster_args(bus.port());
            args.extend(tls.iter().flat_map(|tls| tls.args(number)));
            nodes.push(RedisServer::start_with_args(args).await?);
            buses.push(bus);
        }
        let cluster = RedisCluster { nodes, buses, tls };
        cluster.form().await.while_doing(|| "form a Redis Cluster".to_owned())?;
        Ok(cluster)
    }

    /// Returns `redis+cluster://host:port,..` with all nodes, or `rediss+cluster://` with TLS.
    pub fn url(&self) -> String {
        let (scheme, ports): (_, Vec<u16>) = match &self.tls {
            Some(tls) => ("rediss", tls.ports.iter().map(ReservedPort::port).collect()),
            None => ("redis", self.nodes.iter().map(RedisServer::port).collect()),
        };
        let hosts: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("{scheme}+cluster://{}", hosts.join(","))
    }

    /// Returns the PEM file of the authority that signed the nodes' certificates, if the cluster uses TLS.
    pub fn root_certificate(&self) -> Option<PathBuf> {
        self.tls.as_ref().map(|tls| tls.dir.path().join("ca.crt"))
    }

    /// Returns the nodes, the initial masters first. The replica of node `n` is node `n + 3`.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// Returns the number of the node that served this slot at the start.
    pub fn first_owner(slot: u16) -> usize {
        (0..MASTERS).rfind(|number| first_slot(*number) <= usize::from(slot)).unwrap_or_default()
    }

    /// Returns one node, to stop, kill or restart it.
    pub fn node_mut(&mut self, number: usize) -> &mut RedisServer {
        &mut self.nodes[number]
    }

    async fn form(&self) -> io::Result<()> {
        for (number, node) in self.nodes.iter().enumerate() {
            // Two nodes with the same epoch would first have to resolve the conflict.
            run(node, &format!("CLUSTER SET-CONFIG-EPOCH {}", number + 1)).await?;
            if number < MASTERS {
                let (first, end) = (first_slot(number), first_slot(number + 1));
                run(node, &format!("CLUSTER ADDSLOTSRANGE {first} {}", end - 1)).await?;
            }
            if number > 0 {
                // Nodes with TLS are identified by their TLS port.
                let first = self.tls.as_ref().map_or(self.nodes[0].port(), |tls| tls.ports[0].port());
                let meet = format!("CLUSTER MEET 127.0.0.1 {first} {}", self.buses[0].port());
                run(node, &meet).await?;
            }
        }
        self.wait_for("CLUSTER INFO", &format!("cluster_known_nodes:{NODES}")).await?;
        for number in MASTERS..NODES {
            let master = run(&self.nodes[number - MASTERS], "CLUSTER MYID").await?;
            let master = master.last().cloned().unwrap_or_default();
            run(&self.nodes[number], &format!("CLUSTER REPLICATE {master}")).await?;
        }
        self.wait_for("CLUSTER INFO", "cluster_state:ok").await?;
        self.wait_for_replicas().await
    }

    /// Waits until each replica follows its master.
    async fn wait_for_replicas(&self) -> io::Result<()> {
        for node in &self.nodes[MASTERS..] {
            wait_until(node, "INFO replication", "master_link_status:up").await?;
        }
        // A master accepts a replica for failover only after it has seen the replica online.
        for node in &self.nodes[..MASTERS] {
            wait_until(node, "INFO replication", "state=online").await?;
        }
        Ok(())
    }

    async fn wait_for(&self, command: &str, wanted: &str) -> io::Result<()> {
        for node in &self.nodes {
            wait_until(node, command, wanted).await?;
        }
        Ok(())
    }
}

impl ClusterTls {
    fn args(&self, number: usize) -> Vec<String> {
        let file = |name: &str| self.dir.path().join(name).display().to_string();
        let (port, cert, key, ca) =
            (self.ports[number].port().to_string(), file("server.crt"), file("server.key"), file("ca.crt"));
        [
            ["--tls-port", &port],
            ["--tls-cert-file", &cert],
            ["--tls-key-file", &key],
            ["--tls-ca-cert-file", &ca],
            ["--tls-auth-clients", "no"],
            ["--tls-cluster", "yes"],
            ["--tls-replication", "yes"],
        ]
        .as_flattened()
        .iter()
        .map(|word| (*word).to_owned())
        .collect()
    }
}

fn first_slot(master: usize) -> usize {
    master * SLOTS / MASTERS
}

fn cluster_args(bus: u16) -> Vec<String> {
    let timeout = NODE_TIMEOUT_MS.to_string();
    let bus = bus.to_string();
    [
        ["--cluster-enabled", "yes"],
        ["--cluster-config-file", "nodes.conf"],
        ["--cluster-node-timeout", &timeout],
        ["--cluster-port", &bus],
        ["--cluster-announce-ip", "127.0.0.1"],
        // When a master and its replica are lost, the other slots stay available.
        ["--cluster-require-full-coverage", "no"],
        ["--repl-diskless-sync-delay", "0"],
    ]
    .as_flattened()
    .iter()
    .map(|word| (*word).to_owned())
    .collect()
}

async fn wait_until(node: &RedisServer, command: &str, wanted: &str) -> io::Result<()> {
    let deadline = Instant::now() + FORMED_WAIT;
    loop {
        let answer = run(node, command).await?;
        if answer.iter().any(|line| line.contains(wanted)) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let (port, secs) = (node.port(), FORMED_WAIT.as_secs());
            let said = answer.join(" ");
            return Err(io::Error::other(format!("node {port} does not report '{wanted}' after {secs} s: {said}")));
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Runs a command. Returns the lines of the answer without their lengths; a Redis error becomes an error.
async fn run(node: &RedisServer, command: &str) -> io::Result<Vec<String>> {
    let mut stream = BufReader::new(TcpStream::connect((Ipv4Addr::LOCALHOST, node.port())).await?);
    stream.write_all(format!("{command}\r\nPING\r\n").as_bytes()).await?;
    let mut lines = stream.lines();
    let mut answer = Vec::new();
    while let Some(line) = lines.next_line().await? {
        match line.as_str() {
            "+PONG" => break,
            error if error.starts_with('-') => return Err(io::Error::other(format!("{command}: {error}"))),
            line if line.starts_with(['$', '*']) => {}
            line => answer.push(line.to_owned()),
        }
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_split_over_three_masters() {
        let owners = [0, 5_460, 5_461, 10_921, 10_922, 16_383].map(RedisCluster::first_owner);
        assert_eq!(owners, [0, 0, 1, 1, 2, 2]);
    }
}
