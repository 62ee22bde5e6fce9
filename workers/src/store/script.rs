//! The Lua scripts, and calling them.
//!
//! Scripts are called by their hash. A server that does not know it (new, restarted, `SCRIPT FLUSH`) gets it loaded and
//! is called again.

use std::sync::LazyLock;

use redis::{Cmd, ErrorKind, Script, ServerErrorKind, ToRedisArgs};

macro_rules! scripts {
    ($($name:ident: $($file:literal)+;)+) => {
        $(
            pub(super) static $name: NamedScript = NamedScript {
                name: stringify!($name),
                script: LazyLock::new(|| Script::new(concat!($(include_str!(concat!("../scripts/", $file, ".lua")), "\n"),+))),
            };
        )+
    };
}

scripts! {
    ENQUEUE: "lib" "insert" "enqueue";
    REPAIR: "lib" "insert" "repair";
    TAKE: "lib" "take";
    SETTLE: "lib" "insert" "settle";
    EXTEND: "lib" "extend";
    RELEASE: "lib" "release";
    STATS: "lib" "stats";
    LIST: "lib" "list";
    FIND: "lib" "find";
    HEARTBEAT: "heartbeat";
    FINISH_REBUILD: "finish_rebuild";
}

pub(super) struct NamedScript {
    pub(super) name: &'static str,
    script: LazyLock<Script>,
}

/// A call being put together: the keys first, then the arguments, written straight into the command.
pub(super) struct ScriptCall {
    pub(super) script: &'static NamedScript,
    pub(super) cmd: Cmd,
}

impl NamedScript {
    pub(super) fn with_keys(&'static self, keys: &[String]) -> ScriptCall {
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(self.script.get_hash()).arg(keys.len()).arg(keys);
        ScriptCall { script: self, cmd }
    }
}

impl ScriptCall {
    pub(super) fn arg(&mut self, arg: impl ToRedisArgs) -> &mut Self {
        self.cmd.arg(arg);
        self
    }

    pub(super) async fn invoke(
        &self,
        connection: &mut impl redis::aio::ConnectionLike,
    ) -> redis::RedisResult<redis::Value> {
        match self.cmd.query_async(connection).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.script.script.prepare_invoke().load_async(connection).await?;
                self.cmd.query_async(connection).await
            }
            answer => answer,
        }
    }
}
