//! The configuration and its addresses without secrets.

use super::{ChannelConfig, Config, ProducerConfig};

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
        if !shown.payments.url.is_empty() {
            shown.payments.url = without_password(&shown.payments.url);
        }
        let payments = &mut shown.payments;
        let of_payments =
            [&mut payments.api_key, &mut payments.callback_secret, &mut payments.callback_secret_previous];
        let otp_keys = [&mut shown.bindings.otp_key, &mut shown.bindings.otp_key_previous];
        let api_keys = shown.providers.values_mut().map(|provider| &mut provider.api_key);
        let client_secret = shown.console.oidc.as_mut().map(|oidc| &mut oidc.client_secret);
        let headers = [&mut shown.traces.headers];
        let secrets = otp_keys.into_iter().chain(of_payments).chain(api_keys).chain(client_secret).chain(headers);
        for secret in secrets.filter(|secret| !secret.is_empty()) {
            "***".clone_into(secret);
        }
        shown.channels.values_mut().for_each(ChannelConfig::redact_secrets);
        shown.producers.values_mut().for_each(ProducerConfig::redact_secrets);
        shown
    }
}

/// A URL fit for logs.
pub fn without_password(url: &str) -> String {
    if url.contains("+sentinel://") || url.contains("+cluster://") {
        return without_passwords_of_many(url);
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
fn without_passwords_of_many(url: &str) -> String {
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
