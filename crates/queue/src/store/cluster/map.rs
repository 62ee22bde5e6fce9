//! Maps each slot to the node that serves it.

use std::{collections::BTreeSet, fmt, sync::Arc};

use redis::{FromRedisValue, RedisResult, Value};

use crate::store::hash_slot::SLOTS;

/// Host and port of a node, as the cluster announces them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct NodeAddress {
    pub(super) host: Arc<str>,
    pub(super) port: u16,
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl NodeAddress {
    /// Parses `host:port`. A node that does not know its own host omits it; the host of the node that was asked is used
    /// instead.
    pub(super) fn parse(text: &str, asked: &NodeAddress) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Some(Self::announced(host, port.parse().ok()?, asked))
    }

    fn announced(host: &str, port: u16, asked: &NodeAddress) -> Self {
        // `?` means that the node should announce a host name but has none.
        let host = if matches!(host, "" | "?") { asked.host.clone() } else { host.into() };
        Self { host, port }
    }
}

/// Owner of each slot, as one node reported it.
#[derive(Debug)]
pub(super) struct SlotMap {
    owners: Vec<Option<NodeAddress>>,
    /// Masters and replicas. Any of them can report the map.
    pub(super) nodes: BTreeSet<NodeAddress>,
}

impl Default for SlotMap {
    fn default() -> Self {
        Self { owners: vec![None; usize::from(SLOTS)], nodes: BTreeSet::new() }
    }
}

impl SlotMap {
    /// Parses the answer to `CLUSTER SLOTS`: per range the first slot, the last slot, the master and the replicas.
    pub(super) fn parse(answer: Value, asked: &NodeAddress) -> RedisResult<Self> {
        let mut map = Self::default();
        for range in Vec::<Vec<Value>>::from_redis_value(answer)? {
            let mut range = range.into_iter();
            let mut next = || u16::from_redis_value(range.next().unwrap_or(Value::Nil));
            let (first, last) = (next()?, next()?);
            for (position, node) in range.enumerate() {
                let mut node = Vec::<Value>::from_redis_value(node)?.into_iter();
                let host = Option::<String>::from_redis_value(node.next().unwrap_or(Value::Nil))?;
                let port = u16::from_redis_value(node.next().unwrap_or(Value::Nil))?;
                let address = NodeAddress::announced(&host.unwrap_or_default(), port, asked);
                map.nodes.insert(address.clone());
                if position == 0 {
                    for slot in first..=last.min(SLOTS - 1) {
                        map.set_owner(slot, address.clone());
                    }
                }
            }
        }
        Ok(map)
    }

    pub(super) fn owner(&self, slot: u16) -> Option<&NodeAddress> {
        self.owners.get(usize::from(slot))?.as_ref()
    }

    /// Records the new owner of a slot, as reported by a node.
    pub(super) fn set_owner(&mut self, slot: u16, address: NodeAddress) {
        if let Some(owner) = self.owners.get_mut(usize::from(slot)) {
            *owner = Some(address);
        }
    }

    /// Returns the first slot of each owner.
    pub(super) fn a_slot_of_each_owner(&self) -> Vec<u16> {
        let mut seen = BTreeSet::new();
        let owned = (0..).zip(&self.owners).filter_map(|(slot, owner)| Some((slot, owner.as_ref()?)));
        owned.filter(|(_, owner)| seen.insert(*owner)).map(|(slot, _)| slot).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(host: &str, port: u16) -> NodeAddress {
        NodeAddress { host: host.into(), port }
    }

    fn node(host: Value, port: i64) -> Value {
        Value::Array(vec![host, Value::Int(port), Value::BulkString(b"id".to_vec()), Value::Map(Vec::new())])
    }

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    #[test]
    fn cluster_answer_names_owners_and_nodes() {
        let asked = address("seed", 7000);
        let answer = Value::Array(vec![
            Value::Array(vec![Value::Int(0), Value::Int(99), node(text("a"), 1), node(text("b"), 2)]),
            // The asked node does not know its own host, or should announce a host name but has none.
            Value::Array(vec![Value::Int(100), Value::Int(16_383), node(Value::Nil, 3), node(text("?"), 4)]),
        ]);
        let map = SlotMap::parse(answer, &asked).unwrap();
        assert_eq!(map.owner(0), Some(&address("a", 1)));
        assert_eq!(map.owner(99), Some(&address("a", 1)));
        assert_eq!(map.owner(100), Some(&address("seed", 3)));
        assert_eq!(map.owner(16_383), Some(&address("seed", 3)));
        assert_eq!(map.nodes.len(), 4);
        assert_eq!(map.a_slot_of_each_owner(), [0, 100]);
    }

    #[test]
    fn slots_that_no_node_serves_have_no_owner() {
        let map = SlotMap::parse(Value::Array(Vec::new()), &address("a", 1)).unwrap();
        assert_eq!(map.owner(7), None);
        assert!(SlotMap::parse(Value::Int(1), &address("a", 1)).is_err());
    }

    #[test]
    fn redirection_without_host_keeps_the_host() {
        let asked = address("::1", 7000);
        assert_eq!(NodeAddress::parse(":7001", &asked), Some(address("::1", 7001)));
        assert_eq!(NodeAddress::parse("10.0.0.1:7001", &asked), Some(address("10.0.0.1", 7001)));
        assert_eq!(NodeAddress::parse("nonsense", &asked), None);
    }
}
