//! Reads all of Redis in one call.

use super::reference::Image;
use crate::support::{Bench, patient_connection};

pub(super) struct Reader {
    connection: redis::aio::MultiplexedConnection,
    script: redis::Script,
}

impl Reader {
    pub(super) async fn connect(bench: &Bench) -> Self {
        let script = redis::Script::new(
            "local all = {}
             for _, key in ipairs(redis.call('KEYS', '*')) do
               local kind = redis.call('TYPE', key).ok
               local held = {}
               if kind == 'zset' then held = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
               elseif kind == 'hash' then held = redis.call('HGETALL', key)
               elseif kind == 'set' then
                 for _, member in ipairs(redis.call('SMEMBERS', key)) do
                   held[#held + 1] = member
                   held[#held + 1] = ''
                 end
               end
               if kind ~= 'string' then all[#all + 1] = { key, held } end
             end
             return all",
        );
        Self { connection: patient_connection(&bench.redis.url()).await, script }
    }

    pub(super) async fn read(&mut self) -> Image {
        let all: Vec<(String, Vec<String>)> = self.script.invoke_async(&mut self.connection).await.unwrap();
        let pairs = |held: Vec<String>| held.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
        all.into_iter().map(|(key, held)| (key, pairs(held))).collect()
    }
}
