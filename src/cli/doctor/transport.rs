//! Warnings about the configuration: unencrypted connections, unsigned messages, alerts that reach only the log, and a
//! Redis that may drop timers. Hosts on this machine are not reported.

use std::net::IpAddr;

use reqwest::Url;
use sqlx::postgres::{PgConnectOptions, PgSslMode};

use super::{DoctorFinding, FindingVerdict, new_finding};
use settings::{ChannelConfig, Config, TlsMode};

/// Returns the warnings that need no connection.
pub(super) fn find_warnings(config: &Config) -> Vec<DoctorFinding> {
    let mut found = Vec::new();
    found.extend(check_postgres(&config.database.url).map(|detail| new_warning("encryption", detail)));
    found.extend(check_redis(&config.redis.url).into_iter().map(|detail| new_warning("encryption", detail)));
    check_partners(config, &mut found);
    check_payments(config, &mut found);
    check_channels(config, &mut found);
    check_routes(config, &mut found);
    for name in config.misspelt_variables() {
        let detail =
            format!("{name} is ignored; settings have two underscores between the levels: DISPATCHQ_REDIS__URL");
        found.push(new_warning("environment", detail));
    }
    found
}

/// Returns warnings from Redis' `INFO memory persistence`.
pub(super) fn check_redis_policy(info: &str) -> Vec<DoctorFinding> {
    let value = |name: &str| info.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'));
    let mut found = Vec::new();
    if let Some(policy) = value("maxmemory_policy").filter(|policy| *policy != "noeviction") {
        let detail = format!("maxmemory-policy is {policy}: a full Redis drops timers; set it to noeviction");
        found.push(new_warning("redis policy", detail));
    }
    if value("aof_enabled") == Some("0") {
        let detail = "appendonly is off: after a restart all timers are rebuilt from Postgres; set appendonly yes";
        found.push(new_warning("redis policy", detail.to_owned()));
    }
    found
}

fn new_warning(what: &'static str, detail: String) -> DoctorFinding {
    new_finding(what, FindingVerdict::Warn, detail)
}

fn check_postgres(url: &str) -> Option<String> {
    let options: PgConnectOptions = url.parse().ok()?;
    let is_open = matches!(options.get_ssl_mode(), PgSslMode::Disable | PgSslMode::Allow | PgSslMode::Prefer);
    let is_far = options.get_socket().is_none() && !is_local(options.get_host());
    (is_open && is_far).then(|| {
        format!("Postgres at {} may answer unencrypted; add ?sslmode=verify-full to database.url", options.get_host())
    })
}

fn check_redis(url: &str) -> Vec<String> {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    let far: Vec<_> = hosts.split(',').map(without_port).filter(|host| !is_local(host)).collect();
    let mut found = Vec::new();
    if scheme.ends_with("unix") || far.is_empty() {
        return found;
    }
    let hosts = far.join(", ");
    if !scheme.starts_with("rediss") {
        found.push(format!("Redis at {hosts} is reached unencrypted; use rediss:// in redis.url"));
    }
    if login.split_once(':').is_none_or(|(_, password)| password.is_empty()) {
        found.push(format!("Redis at {hosts} is reached without a password; add a login to redis.url"));
    }
    found
}

fn check_partners(config: &Config, found: &mut Vec<DoctorFinding>) {
    for (name, partner) in &config.partners {
        if let Some(host) = open_web_host(&partner.url) {
            let detail = format!("partners.{name}: its key and orders travel unencrypted to {host}; use https://");
            found.push(new_warning("encryption", detail));
        }
        let is_signed = !partner.callback_secret.is_empty()
            || partner.callback_secret_env.is_some()
            || partner.callback_secret_file.is_some();
        if !is_signed {
            let detail = format!("partners.{name}: without callback_secret none of its callbacks is accepted");
            found.push(new_warning("signatures", detail));
        }
    }
}

fn check_payments(config: &Config, found: &mut Vec<DoctorFinding>) {
    let payments = &config.payments;
    if payments.url.is_empty() {
        return;
    }
    let is_signed = !payments.callback_secret.is_empty()
        || payments.callback_secret_env.is_some()
        || payments.callback_secret_file.is_some();
    if !is_signed {
        let detail = "payments: without callback_secret none of its callbacks is accepted";
        found.push(new_warning("signatures", detail.to_owned()));
    }
}

fn check_channels(config: &Config, found: &mut Vec<DoctorFinding>) {
    for (name, channel) in &config.channels {
        // The loader of the configuration refuses addresses that cannot be parsed.
        let address = channel.web_address().ok().flatten();
        if let Some(host) = address.as_ref().and_then(|url| open_web_host(url.as_str())) {
            let detail = format!("channels.{name}: messages and tokens travel unencrypted to {host}; use https://");
            found.push(new_warning("encryption", detail));
        }
        match channel {
            ChannelConfig::Webhook(c) if c.secret.is_none() && c.secret_env.is_none() && c.secret_file.is_none() => {
                let detail = format!("channels.{name}: without secret its messages are not signed");
                found.push(new_warning("signatures", detail));
            }
            ChannelConfig::Voice(c) => {
                if let Some(host) = open_web_host(&c.callback_url) {
                    let detail = format!("channels.{name}: answers come back unencrypted to {host}; use https://");
                    found.push(new_warning("encryption", detail));
                }
            }
            ChannelConfig::Email(c) if c.tls == TlsMode::None && !is_local(&c.host) => {
                let detail = format!("channels.{name}: mail leaves unencrypted to {}; set tls = \"starttls\"", c.host);
                found.push(new_warning("encryption", detail));
            }
            _ => {}
        }
    }
}

fn check_routes(config: &Config, found: &mut Vec<DoctorFinding>) {
    for (name, _) in config.alert_routes().into_iter().filter(|(_, channels)| config.ends_in_log(channels)) {
        let detail = format!("notifications.{name} has only the log, so no person is notified; add [channels.NAME]");
        found.push(new_warning("alerts", detail));
    }
}

/// Returns the host of an `http://` address that is not on this machine.
fn open_web_host(address: &str) -> Option<String> {
    let url: Url = address.parse().ok()?;
    let host = url.host_str()?;
    (url.scheme() == "http" && !is_local(host)).then(|| host.to_owned())
}

fn without_port(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(host, _)| host),
    }
}

/// Returns whether a host is this machine: empty, a loopback address, `localhost`, or the directory of a socket.
fn is_local(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.is_empty()
        || host == "localhost"
        || host.starts_with('/')
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::{PartnerConfig, WebhookConfig};

    fn warnings_of(config: &Config) -> String {
        find_warnings(config).iter().map(|f| format!("{}: {}\n", f.what, f.detail)).collect()
    }

    // Fault S13
    #[test]
    fn local_servers_need_no_encryption() {
        let mut config = Config::defaults();
        config.notifications.support = vec!["desk".to_owned()];
        config.notifications.dispatchers = vec!["desk".to_owned()];
        for redis in
            ["redis://127.0.0.1:6379", "redis://localhost", "redis://[::1]:6379/1", "redis+unix:///run/redis.sock"]
        {
            redis.clone_into(&mut config.redis.url);
            assert_eq!(warnings_of(&config), "", "{redis}");
        }
        for postgres in ["postgres://u@127.0.0.1/d", "postgres://u@localhost:5/d", "postgres://u@%2Frun%2Fpostgres/d"] {
            postgres.clone_into(&mut config.database.url);
            assert_eq!(warnings_of(&config), "", "{postgres}");
        }
    }

    // Fault S13
    #[test]
    fn remote_servers_need_encryption_and_login() {
        for (url, open, nameless) in [
            ("redis://cache.internal:6379", true, true),
            ("redis://:hunter2@10.0.0.5:6379", true, false),
            ("rediss://cache.internal", false, true),
            ("rediss://u:hunter2@cache.internal", false, false),
            ("redis+sentinel://a:1,b:2/main", true, true),
            ("redis+cluster://a:1,b:2", true, true),
            ("rediss+cluster://u:hunter2@a:1,b:2", false, false),
            ("rediss+sentinel://u:hunter2@a:1,b:2/main", false, false),
        ] {
            let found = check_redis(url).join("\n");
            assert_eq!(found.contains("unencrypted"), open, "{url}: {found}");
            assert_eq!(found.contains("without a password"), nameless, "{url}: {found}");
            assert!(!found.contains("hunter2"), "{found}");
        }
        for (url, open) in [
            ("postgres://u:hunter2@db.internal/d", true),
            ("postgres://u@db.internal/d?sslmode=prefer", true),
            ("postgres://u@db.internal/d?sslmode=disable", true),
            ("postgres://u@db.internal/d?sslmode=require", false),
            ("postgres://u@db.internal/d?sslmode=verify-full", false),
        ] {
            assert_eq!(check_postgres(url).is_some(), open, "{url}");
        }
    }

    // Fault S13
    #[test]
    fn doctor_warns_of_insecure_settings() {
        let mut config = Config::defaults();
        config.partners.insert("bbd".into(), PartnerConfig::with_url("http://partner.example.com/api"));
        config.channels.insert("app".to_owned(), ChannelConfig::unsigned_webhook("http://app.example.com/"));
        let found = warnings_of(&config);
        for told in [
            "encryption: partners.bbd",
            "signatures: partners.bbd",
            "encryption: channels.app",
            "signatures: channels.app",
            "alerts: notifications.support",
            "alerts: notifications.dispatchers",
        ] {
            assert!(found.contains(told), "{told}: {found}");
        }
        let partner = config.partners.get_mut("bbd").unwrap();
        "https://partner.example.com/api".clone_into(&mut partner.url);
        partner.callback_secret_file = Some("/run/secrets/bbd".into());
        config.channels.insert(
            "app".to_owned(),
            ChannelConfig::Webhook(WebhookConfig {
                url: Some("https://app.example.com/".to_owned()),
                secret_env: Some("APP_SECRET".to_owned()),
                ..WebhookConfig::default()
            }),
        );
        config.notifications.support = vec!["app".to_owned()];
        config.notifications.dispatchers = vec!["log".to_owned(), "app".to_owned()];
        assert_eq!(warnings_of(&config), "");
        config.notifications.escalation = vec!["log".to_owned()];
        config.notifications.unresolved = vec!["lines".to_owned()];
        config.channels.insert("lines".to_owned(), ChannelConfig::Log {});
        "https://payments.example.com".clone_into(&mut config.payments.url);
        let found = warnings_of(&config);
        for told in ["alerts: notifications.escalation", "alerts: notifications.unresolved", "signatures: payments"] {
            assert!(found.contains(told), "{told}: {found}");
        }
    }

    // Fault S13
    #[test]
    fn doctor_warns_of_evicting_redis() {
        let good = "# Memory\r\nmaxmemory_policy:noeviction\r\n# Persistence\r\naof_enabled:1\r\n";
        assert!(check_redis_policy(good).is_empty());
        let bad = "maxmemory_policy:allkeys-lru\r\naof_enabled:0\r\n";
        let found: Vec<_> = check_redis_policy(bad).into_iter().map(|f| f.detail).collect();
        assert!(found[0].contains("allkeys-lru") && found[1].contains("appendonly"), "{found:?}");
    }
}
