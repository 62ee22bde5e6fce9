//! The configuration and its addresses without secrets.

use super::{ChannelConfig, Config};

impl Config {
    /// The configuration without its secrets, for people's eyes.
    pub fn without_secrets(&self) -> Self {
        let mut shown = self.clone();
        shown.redis.url = without_password(&shown.redis.url);
        shown.database.url = without_password(&shown.database.url);
        if !shown.database.maintenance_url.is_empty() {
            shown.database.maintenance_url = without_password(&shown.database.maintenance_url);
        }
        for partner in shown.partners.values_mut() {
            for secret in [&mut partner.api_key, &mut partner.callback_secret, &mut partner.callback_secret_previous] {
                if !secret.is_empty() {
                    "***".clone_into(secret);
                }
            }
            partner.url = without_password(&partner.url);
        }
        shown.channels.values_mut().for_each(ChannelConfig::redact_secrets);
        shown
    }
}

/// A URL fit for logs.
pub fn without_password(url: &str) -> String {
    if url.contains("+sentinel://") {
        return without_sentinel_passwords(url);
    }
    match url.parse::<reqwest::Url>() {
        Ok(mut parsed) => {
            // Of a server the user is worth knowing; in front of a web address it may be a token.
            let is_web = matches!(parsed.scheme(), "http" | "https");
            if is_web && !parsed.username().is_empty() {
                let _ = parsed.set_username("***");
                let _ = parsed.set_password(None);
            }
            if parsed.password().is_some() {
                let _ = parsed.set_password(Some("***"));
            }
            parsed.set_query(None);
            parsed.to_string()
        }
        Err(_) => "(not a URL)".to_owned(),
    }
}

/// Such a URL names several hosts, which no parser of URLs accepts. The login, and the sentinels' own login in the
/// query, are left out.
fn without_sentinel_passwords(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let (servers, query) = rest.split_once('?').unwrap_or((rest, ""));
    let shown = match servers.rsplit_once('@') {
        // One of the passwords holds a '?' or an '@', and it is not for us to guess which.
        _ if query.contains('@') => "***".to_owned(),
        Some((_, hosts)) => format!("***@{hosts}"),
        None => servers.to_owned(),
    };
    format!("{scheme}://{shown}")
}
