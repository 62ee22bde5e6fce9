//! Addresses in settings: the Postgres address and the listen address. Errors never contain a value, because it may
//! include a password.

use std::{
    net::{IpAddr, Ipv6Addr},
    path::Path,
    str::FromStr,
};

use model::plain_text;
use reqwest::Url;
use sqlx::postgres::{PgConnectOptions, PgSslMode};

use super::error::{ConfigError, ensure_fits};

/// Parameters accepted in a Postgres address.
const PARAMETERS: [&str; 15] = [
    "application_name",
    "dbname",
    "host",
    "hostaddr",
    "options",
    "password",
    "port",
    "ssl-ca",
    "ssl-cert",
    "ssl-key",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "user",
];
/// Aliases that sqlx accepts for parameters.
const OTHER_NAMES: [&str; 3] = ["ssl-mode", "ssl-root-cert", "statement-cache-capacity"];

/// Parses a Postgres address. Refuses parameters that sqlx does not know, because sqlx would log their values.
pub fn parse_database_url(text: &str) -> Result<PgConnectOptions, ConfigError> {
    let form = "must be the address of a Postgres, such as postgres://USER@HOST:5432/DATABASE";
    let url = Url::parse(text).map_err(|error| ConfigError::new(format!("{form}: {error}")))?;
    ensure_fits(matches!(url.scheme(), "postgres" | "postgresql"), form)?;
    ensure_fits(url.fragment().is_none(), "must have no '#': in a password write %23")?;
    let hosts = url.host_str().unwrap_or_default();
    ensure_fits(!hosts.contains(','), "must name one host: the address of a pooler or of the primary")?;
    for (name, value) in url.query_pairs() {
        check_parameter(&name, &value)?;
    }
    PgConnectOptions::from_str(text).map_err(|_| ConfigError::new(form))
}

fn check_parameter(name: &str, value: &str) -> Result<(), ConfigError> {
    let is_known = PARAMETERS.contains(&name) || OTHER_NAMES.contains(&name) || name.starts_with("options[");
    if !is_known {
        let known = PARAMETERS.join(", ");
        return Err(ConfigError::new(format!(
            "must have no parameter '{}'; known are {known}",
            plain_text::excerpt(name)
        )));
    }
    let fits = match name {
        "sslmode" | "ssl-mode" => value.parse::<PgSslMode>().is_ok(),
        "port" => value.parse::<u16>().is_ok(),
        "hostaddr" => value.parse::<IpAddr>().is_ok(),
        "statement-cache-capacity" => value.parse::<u16>().is_ok(),
        "sslrootcert" | "ssl-root-cert" | "ssl-ca" | "sslcert" | "ssl-cert" | "sslkey" | "ssl-key" => {
            Path::new(value).is_file()
        }
        _ => true,
    };
    let rule = match name {
        "sslmode" | "ssl-mode" => "disable, allow, prefer, require, verify-ca or verify-full",
        "port" => "a port, 1 to 65535",
        "hostaddr" => "an address such as 10.0.0.7",
        "statement-cache-capacity" => "a whole number",
        _ => "a file that can be read",
    };
    ensure_fits(fits, format_args!("must have {rule} as its parameter '{name}'"))
}

/// Parses a listen address: a host name or IP address, and a port.
pub fn parse_bind(text: &str) -> Result<String, String> {
    let fits = text.rsplit_once(':').is_some_and(|(host, port)| {
        let is_v6 =
            host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).map(|host| host.parse::<Ipv6Addr>().is_ok());
        let is_name = || {
            (1..=253).contains(&host.len())
                && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
        };
        is_v6.unwrap_or_else(is_name)
            && !port.is_empty()
            && port.bytes().all(|b| b.is_ascii_digit())
            && port.parse::<u16>().is_ok()
    });
    if fits { Ok(text.to_owned()) } else { Err("must be HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080".to_owned()) }
}

/// Validates a listen address.
pub fn be_bind(text: &str, (): &()) -> garde::Result {
    parse_bind(text).map(drop).map_err(garde::Error::new)
}

/// Validates a listen address that may be empty.
pub fn be_bind_or_empty(text: &str, (): &()) -> garde::Result {
    if text.is_empty() { Ok(()) } else { be_bind(text, &()) }
}

/// Returns an address without its secrets, for logs. A server's address keeps the user, host and database. A web
/// address keeps only the host, because a path or query may be a secret.
pub fn without_password(url: &str) -> String {
    if url.contains("+sentinel://") || url.contains("+cluster://") {
        return without_passwords_of_many(url);
    }
    match url.parse::<Url>() {
        Ok(mut parsed) => {
            if matches!(parsed.scheme(), "http" | "https") {
                let rest = if parsed.path() == "/" && parsed.query().is_none() { "" } else { "***" };
                return format!("{}/{rest}", parsed.origin().ascii_serialization());
            }
            if parsed.password().is_some() {
                let _ = parsed.set_password(Some("***"));
            }
            parsed.set_query(None);
            parsed.set_fragment(None);
            parsed.to_string()
        }
        Err(_) => "(not a URL)".to_owned(),
    }
}

/// Removes the secrets of a URL that names several hosts, which the URL parser refuses. Removes the login and the
/// query, which may hold the sentinels' login.
fn without_passwords_of_many(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let (servers, query) = rest.split_once('?').unwrap_or((rest, ""));
    let shown = match servers.rsplit_once('@') {
        // A password contains a '?' or an '@', so the hosts cannot be told from the password.
        _ if query.contains('@') => "***".to_owned(),
        Some((_, hosts)) => format!("***@{hosts}"),
        None => servers.to_owned(),
    };
    format!("{scheme}://{shown}")
}
