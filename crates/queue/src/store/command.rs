//! Commands about data of the capabilities, and their Lua scripts.

use std::sync::OnceLock;

use redis::{Cmd, ErrorKind, RedisResult, Script, ServerErrorKind, ToRedisArgs, aio::ConnectionLike};

/// A Lua script, called by its hash. Its file has a header with keys, arguments, answer and bound.
#[derive(Debug)]
pub struct LuaScript {
    text: &'static str,
    script: OnceLock<Script>,
}

impl LuaScript {
    pub const fn new(text: &'static str) -> Self {
        Self { text, script: OnceLock::new() }
    }

    fn script(&self) -> &Script {
        self.script.get_or_init(|| Script::new(self.text))
    }

    /// Returns a call with these keys. The caller appends the arguments.
    pub fn call<K: ToRedisArgs>(&'static self, keys: impl IntoIterator<Item = K>) -> Command {
        let keys: Vec<K> = keys.into_iter().collect();
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(self.script().get_hash()).arg(keys.len()).arg(keys);
        Command { cmd, script: Some(self) }
    }
}

/// A plain command, or the call of a [`LuaScript`].
#[derive(Debug)]
pub struct Command {
    cmd: Cmd,
    script: Option<&'static LuaScript>,
}

impl From<Cmd> for Command {
    fn from(cmd: Cmd) -> Self {
        Self { cmd, script: None }
    }
}

impl Command {
    pub fn arg(&mut self, value: impl ToRedisArgs) -> &mut Self {
        self.cmd.arg(value);
        self
    }
}

/// A command that the store can run.
pub trait RedisCall: Sync {
    fn cmd(&self) -> &Cmd;
    fn script(&self) -> Option<&'static LuaScript>;
}

impl RedisCall for Cmd {
    fn cmd(&self) -> &Cmd {
        self
    }

    fn script(&self) -> Option<&'static LuaScript> {
        None
    }
}

impl RedisCall for Command {
    fn cmd(&self) -> &Cmd {
        &self.cmd
    }

    fn script(&self) -> Option<&'static LuaScript> {
        self.script
    }
}

/// Runs a command. Loads its script first if the server does not have it: the server is new, has restarted, or ran `SCRIPT FLUSH`.
pub(super) async fn run_call(call: &impl RedisCall, connection: &mut impl ConnectionLike) -> RedisResult<redis::Value> {
    match (call.cmd().query_async(connection).await, call.script()) {
        (Err(error), Some(script)) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
            script.script().prepare_invoke().load_async(connection).await?;
            call.cmd().query_async(connection).await
        }
        (answer, _) => answer,
    }
}
