//! The configuration without secrets.

use super::{Config, channels::ChannelConfig, producers::ProducerConfig};
use foundation::config::address::without_password;

impl Config {
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
