//! All that a replay runs on: private Redis and Postgres, the configuration, `serve` and `work`. Dropping it takes
//! everything down again, whatever went wrong.

use std::{
    collections::hash_map::RandomState,
    fs,
    hash::BuildHasher,
    net::TcpListener,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail};
use serde::Serialize;
use servers::{Postgres, Redis};
use tokio::time::{Instant, sleep};
use workers::Store;

use super::{api::Api, fleet::SERVICE_TYPE, processes::Processes};
use crate::{
    app::App,
    config::{ChannelConfig, Config},
    db,
    dispatch::policy::DispatchPolicy,
};

/// The channel that reaches the simulated drivers.
const CHANNEL: &str = "replay-drivers";
/// Rides of a whole city and drivers who stay where they are: somewhat more than the default.
const RADIUS_M: f64 = 6_000.0;
/// What `serve` and `work` may take to be ready.
const START_WAIT: Duration = Duration::from_secs(30);
const START_POLL: Duration = Duration::from_millis(50);
/// Connections that all processes share; the private Postgres allows 200.
const CONNECTIONS: usize = 160;

// Dropped in this order: processes before the servers they use.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) processes: Processes,
    pub(super) api: Api,
    pub(super) app: App,
    redis: Redis,
    postgres: Postgres,
    pub(super) dir: RunDir,
}

/// Where a run that was kept goes on.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Kept {
    pub(super) database_url: String,
    pub(super) redis_url: String,
    pub(super) pids: Pids,
    /// For other commands: `dispatchq order list --config FILE`.
    pub(super) config: PathBuf,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Pids {
    pub(super) postgres: u32,
    pub(super) redis: u32,
}

impl Stage {
    /// Starts everything and waits until it is ready. Offers go to `offers_url`.
    pub(super) async fn start(speed: f64, workers: usize, offers_url: &str) -> anyhow::Result<Self> {
        let (redis, postgres) = tokio::try_join!(Redis::start(), Postgres::start())
            .context("a replay needs a Redis and a Postgres of its own")?;
        let config = config(speed, workers, offers_url, &redis.url(), &postgres.url());
        let db = db::connect(&config.database).await?;
        db::migrate(&db).await?;
        db::publish_service_types(&db, &config).await?;
        let store = Store::connect(&config.redis.url).await?;
        let mut dir = RunDir::make()?;
        let file = dir.config_file();
        fs::write(&file, toml(&config)).with_context(|| format!("cannot write {}", file.display()))?;
        let api = Api::new(format!("http://{}", config.http.bind))?;
        let app = App::new(config, db, store)?;
        let processes = Processes::start(dir.path(), &file, workers)?;
        let mut stage = Self { processes, api, app, redis, postgres, dir };
        if let Err(error) = stage.wait_until_ready(workers).await {
            dir = stage.dir;
            dir.keep();
            return Err(error);
        }
        Ok(stage)
    }

    async fn wait_until_ready(&mut self, workers: usize) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_WAIT;
        loop {
            if let Some(ended) = self.processes.replace_ended()?.pop() {
                bail!("{ended}");
            }
            let at_work = self.app.store.workers().await?.len();
            if at_work >= workers && self.api.is_ready().await {
                return Ok(());
            }
            if Instant::now() >= deadline {
                bail!(
                    "not ready within {START_WAIT:?}: {at_work} of {workers} workers; serve: {}\nwork-1: {}",
                    self.processes.log_tail("serve"),
                    self.processes.log_tail("work-1")
                );
            }
            sleep(START_POLL).await;
        }
    }

    /// Leaves Redis and Postgres running. The processes must have been stopped.
    pub(super) fn keep(redis: Redis, postgres: Postgres, dir: &mut RunDir) -> Kept {
        dir.keep();
        let (redis, postgres) = (redis.detach(), postgres.detach());
        Kept {
            database_url: postgres.url,
            redis_url: redis.url,
            pids: Pids { postgres: postgres.pid, redis: redis.pid },
            config: dir.config_file(),
        }
    }

    /// Takes it apart, to stop the parts one by one.
    pub(super) fn into_parts(self) -> (Processes, App, Redis, Postgres, RunDir) {
        (self.processes, self.app, self.redis, self.postgres, self.dir)
    }
}

/// The shipped defaults, with the order's own durations divided by the speed. Nothing is read from the environment or
/// a file: a replay must never touch another installation.
fn config(speed: f64, workers: usize, offers_url: &str, redis: &str, postgres: &str) -> Config {
    let mut config = Config::defaults();
    redis.clone_into(&mut config.redis.url);
    postgres.clone_into(&mut config.database.url);
    let share = CONNECTIONS / (workers + 2);
    config.database.max_connections = u32::try_from(share).unwrap_or(2).clamp(2, config.database.max_connections);
    config.http.bind = format!("127.0.0.1:{}", free_port());
    config.http.admin_bind = String::new();
    config.worker.admin_bind = String::new();
    let dispatch = &mut config.dispatch;
    dispatch.attempt = scaled(dispatch.attempt, speed);
    dispatch.retry.iter_mut().for_each(|pause| *pause = scaled(*pause, speed));
    dispatch.lifetime = scaled(dispatch.lifetime, speed);
    dispatch.radius_m = RADIUS_M;
    config.notifications.driver = vec![CHANNEL.to_owned()];
    config.channels.insert(CHANNEL.to_owned(), ChannelConfig::Webhook { url: offers_url.to_owned() });
    config
}

/// The real durations, unscaled.
pub(super) fn real_policy() -> DispatchPolicy {
    Config::defaults().policy(SERVICE_TYPE)
}

/// In whole milliseconds, as deadlines are kept; never nothing.
fn scaled(duration: Duration, speed: f64) -> Duration {
    Duration::from_millis(u64::try_from(duration.div_f64(speed).as_millis()).unwrap_or(u64::MAX).max(1))
}

/// What differs from the defaults, as a file for the processes.
fn toml(config: &Config) -> String {
    let ms = |duration: &Duration| format!("\"{}ms\"", duration.as_millis());
    let (database, dispatch) = (&config.database, &config.dispatch);
    let retry: Vec<String> = dispatch.retry.iter().map(ms).collect();
    let mut text = format!(
        "# Written by dispatchq replay.\n\
         [redis]\nurl = {:?}\n\
         [database]\nurl = {:?}\nmax_connections = {}\n\
         [http]\nbind = {:?}\nadmin_bind = {:?}\n\
         [worker]\nadmin_bind = {:?}\n\
         [dispatch]\nattempt = {}\nretry = [{}]\nlifetime = {}\nradius_m = {:?}\n\
         [notifications]\ndriver = {:?}\n",
        config.redis.url,
        database.url,
        database.max_connections,
        config.http.bind,
        config.http.admin_bind,
        config.worker.admin_bind,
        ms(&dispatch.attempt),
        retry.join(", "),
        ms(&dispatch.lifetime),
        dispatch.radius_m,
        config.notifications.driver,
    );
    for (name, ChannelConfig::Webhook { url }) in &config.channels {
        text += &format!("[channels.{name}]\ntype = \"webhook\"\nurl = {url:?}\n");
    }
    text
}

/// A port for `serve`. Below the ports that systems hand to outgoing connections, of which a replay has many.
fn free_port() -> u16 {
    const FIRST: u16 = 10_240;
    const LAST: u16 = 32_767;
    loop {
        let random = RandomState::new().hash_one(()) % u64::from(LAST - FIRST + 1);
        let port = FIRST + u16::try_from(random).unwrap_or_default();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A directory for configuration and logs; removed with this value unless kept.
#[derive(Debug)]
pub(super) struct RunDir {
    path: PathBuf,
    kept: bool,
}

impl RunDir {
    fn make() -> anyhow::Result<Self> {
        let unique = RandomState::new().hash_one(());
        let path = std::env::temp_dir().join(format!("dispatchq-replay-{}-{unique:016x}", std::process::id()));
        let made = fs::DirBuilder::new().mode(0o700).create(&path);
        made.with_context(|| format!("cannot make the directory {}", path.display()))?;
        Ok(Self { path, kept: false })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn config_file(&self) -> PathBuf {
        self.path.join("config.toml")
    }

    pub(super) fn keep(&mut self) {
        self.kept = true;
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        if !self.kept {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture(speed: f64, workers: usize) -> Config {
        let (redis, postgres) = ("redis://127.0.0.1:2/", "postgres://dispatchq@127.0.0.1:3/dispatchq");
        config(speed, workers, "http://127.0.0.1:1/offers", redis, postgres)
    }

    #[test]
    fn the_file_says_what_the_configuration_is() {
        let dir = RunDir::make().unwrap();
        let config = fixture(300.0, 2);
        fs::write(dir.config_file(), toml(&config)).unwrap();
        let read = Config::load(Some(&dir.config_file())).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), serde_json::to_value(config).unwrap());
    }

    #[test]
    fn the_speed_divides_the_orders_durations_and_no_others() {
        let (config, defaults) = (fixture(300.0, 2), Config::defaults());
        assert_eq!(config.dispatch.attempt, Duration::from_millis(400));
        assert_eq!(config.dispatch.retry, [Duration::from_millis(50)]);
        assert_eq!(config.dispatch.lifetime, Duration::from_secs(6));
        assert_eq!(config.worker.drain, defaults.worker.drain);
        assert_eq!(config.database.statement_timeout, defaults.database.statement_timeout);
        assert_eq!(fixture(1e9, 2).dispatch.retry, [Duration::from_millis(1)]);
    }

    #[test]
    fn many_workers_share_the_connections() {
        assert_eq!([1, 2, 30, 500].map(|n| fixture(60.0, n).database.max_connections), [16, 16, 5, 2]);
    }

    #[test]
    fn the_directory_goes_unless_it_is_kept() {
        let mut dir = RunDir::make().unwrap();
        let path = dir.path().to_owned();
        dir.keep();
        drop(dir);
        assert!(path.exists());
        drop(RunDir { path: path.clone(), kept: false });
        assert!(!path.exists());
    }
}
