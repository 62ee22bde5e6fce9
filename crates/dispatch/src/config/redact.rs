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
        let issuer = shown.console.oidc.as_mut().map(|oidc| &mut oidc.issuer);
        for address in [&mut shown.payments.url, &mut shown.traces.endpoint].into_iter().chain(issuer) {
            if !address.is_empty() {
                *address = without_password(address);
            }
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

/// Returns an address fit for logs: of a server the user, host and database, of a web address only the host, because a path or
/// query may be a secret.
pub fn without_password(url: &str) -> String {
    if url.contains("+sentinel://") || url.contains("+cluster://") {
        return without_passwords_of_many(url);
    }
    match url.parse::<reqwest::Url>() {
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
