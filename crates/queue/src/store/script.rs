//! The Lua scripts and their calls.
//!
//! Scripts are called by their hash. If a server does not know the script (new, restarted, `SCRIPT FLUSH`), the call
//! loads it and tries again.

use std::sync::LazyLock;

use redis::{Cmd, ErrorKind, Script, ServerErrorKind, ToRedisArgs};

use super::hash_slot::slots_of;

macro_rules! script_text {
    ($flags:literal: $($file:literal)+) => {
        concat!("#!lua", $flags, "\n", $(include_str!(concat!("../scripts/", $file, ".lua")), "\n"),+)
    };
}

macro_rules! scripts {
    ($($name:ident $flags:literal: $($file:literal)+;)+) => {
        $(
            pub(super) static $name: NamedScript = NamedScript {
                name: stringify!($name),
                script: LazyLock::new(|| Script::new(script_text!($flags: $($file)+))),
                slot_script: LazyLock::new(|| {
                    Script::new(&script_text!($flags: $($file)+).replace("'PUBLISH'", "'SPUBLISH'"))
                }),
            };
        )+
    };
}

// A Redis that has reached its maxmemory refuses every script that is not flagged `allow-oom`, so it accepts no new
// jobs. Scripts that free memory are flagged, because they must still run. So are scripts that end running jobs: their
// follow-ups take the place of the job.
scripts! {
    ENQUEUE "": "lib" "insert" "slots" "supersede" "enqueue";
    REPAIR "": "lib" "insert" "places" "repair_all" "repair";
    REBUILD "": "lib" "insert" "places" "repair_all" "horizon" "rebuild";
    TAKE " flags=allow-oom": "lib" "slots" "horizon" "take";
    SETTLE " flags=allow-oom": "lib" "insert" "slots" "supersede" "settle";
    EXTEND " flags=allow-oom": "lib" "extend";
    RELEASE " flags=allow-oom": "lib" "release";
    CANCEL " flags=allow-oom": "lib" "slots" "place" "cancel";
    RESCHEDULE " flags=allow-oom": "lib" "slots" "place" "reschedule";
    DEAD " flags=no-writes": "lib" "dead";
    REQUEUE " flags=allow-oom": "lib" "place" "requeue";
    DISCARD " flags=allow-oom": "lib" "place" "discard";
    RESTORE_DEAD "": "lib" "place" "restore_dead";
    DISCARD_OLDER " flags=allow-oom": "lib" "discard_older";
    STATS " flags=no-writes": "lib" "stats";
    OLDEST " flags=no-writes": "lib" "oldest";
    LIST " flags=no-writes": "lib" "list";
    FIND " flags=no-writes": "lib" "slots" "find";
    COMPARE " flags=no-writes": "lib" "places" "compare";
    ACQUIRE " flags=allow-oom": "acquire";
    KEEP_SLOTS " flags=allow-oom": "keep_slots";
    FREE_SLOTS " flags=allow-oom": "free_slots";
    ACQUIRE_SLOTS " flags=allow-oom": "lib" "slots" "acquire_slots";
    RELEASE_SLOTS " flags=allow-oom": "lib" "slots" "release_slots";
    SET_SLOT_LIMITS " flags=allow-oom": "lib" "slots" "set_slot_limits";
    RESTORE_SLOTS " flags=allow-oom": "lib" "slots" "restore_slots";
    PARK "": "lib" "slots" "place" "park";
    SLOT_STATS " flags=no-writes": "lib" "slots" "slot_stats";
    LIST_SLOTS " flags=no-writes": "lib" "slots" "list_slots";
    COMPARE_SLOTS " flags=no-writes": "lib" "slots" "compare_slots";
    BREAKER " flags=allow-oom": "breaker";
    HEARTBEAT " flags=allow-oom": "heartbeat";
    PUBLISH_HORIZON " flags=allow-oom": "publish_horizon";
    FINISH_REBUILD " flags=allow-oom": "finish_rebuild";
}

pub(super) struct NamedScript {
    pub(super) name: &'static str,
    script: LazyLock<Script>,
    /// Variant for a cluster. It publishes messages within the slot of its keys, and so only on one node and its
    /// replicas.
    slot_script: LazyLock<Script>,
}

/// A call under construction: first the keys, then the arguments, written directly into the command.
pub(super) struct ScriptCall {
    pub(super) script: &'static NamedScript,
    text: &'static Script,
    pub(super) cmd: Cmd,
}

/// Maximum number of loads for one call. After a failover the new server may not know a script that the old one had
/// just loaded.
const MOST_LOADS: u32 = 2;

impl NamedScript {
    pub(super) fn with_keys(&'static self, keys: &[String]) -> ScriptCall {
        self.call(&self.script, keys)
    }

    /// Starts a call as [`with_keys`](Self::with_keys) does, but for a cluster.
    pub(super) fn with_slot_keys(&'static self, keys: &[String]) -> ScriptCall {
        self.call(&self.slot_script, keys)
    }

    fn call(&'static self, text: &'static Script, keys: &[String]) -> ScriptCall {
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(text.get_hash()).arg(keys.len()).arg(keys);
        debug_assert!(slots_of(&cmd).len() < 2, "{} is given keys of several slots: {keys:?}", self.name);
        ScriptCall { script: self, text, cmd }
    }
}

impl ScriptCall {
    pub(super) fn push_arg(&mut self, arg: impl ToRedisArgs) -> &mut Self {
        self.cmd.arg(arg);
        self
    }

    pub(super) async fn invoke(
        &self,
        connection: &mut impl redis::aio::ConnectionLike,
    ) -> redis::RedisResult<redis::Value> {
        let mut loads = 0;
        loop {
            match self.cmd.query_async(connection).await {
                Err(error) if loads < MOST_LOADS && error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                    loads += 1;
                    self.text.prepare_invoke().load_async(connection).await?;
                }
                answer => return answer,
            }
        }
    }
}
