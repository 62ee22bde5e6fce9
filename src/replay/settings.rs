//! The configuration of a replay: the shipped defaults, with the order's own durations divided by the speed.
//!
//! Nothing is read from the environment or a file: a replay must never touch another installation.

use std::{collections::hash_map::RandomState, fmt::Write, hash::BuildHasher, net::TcpListener, time::Duration};

use super::fleet::SERVICE_TYPE;
use crate::{
    config::{ChannelConfig, Config, WebhookConfig},
    dispatch::policy::DispatchPolicy,
};

/// The channel that reaches the simulated drivers.
const CHANNEL: &str = "replay-drivers";
/// Rides of a whole city and drivers who stay where they are: somewhat more than the default.
const RADIUS_M: f64 = 6_000.0;
/// Connections that all processes share; the private Postgres allows 200.
const CONNECTIONS: usize = 160;

/// Offers go to `offers_url`; `redis` and `postgres` are URLs.
pub(super) fn config(speed: f64, workers: usize, offers_url: &str, redis: &str, postgres: &str) -> Config {
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
    config.channels.insert(CHANNEL.to_owned(), ChannelConfig::webhook(offers_url));
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
pub(super) fn toml(config: &Config) -> String {
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
    for (name, channel) in &config.channels {
        if let ChannelConfig::Webhook(WebhookConfig { url: Some(url), .. }) = channel {
            // Writing to a String cannot fail.
            let _ = write!(text, "[channels.{name}]\ntype = \"webhook\"\nurl = {url:?}\n");
        }
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{super::run_dir::RunDir, *};

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
}
