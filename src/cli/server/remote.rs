//! `dispatchq server` over the API.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::{Command, ServerSetArgs, print_limit, print_server, print_servers};
use crate::cli::{
    binding::with_cure,
    remote::{ApiClient, ListedItems, PageNames, given_reason},
};
use bindings::error::BindingError;

const SERVERS: &str = "provider-servers";
const LIMIT: &str = "provider-call-limit";

impl Command {
    pub(in crate::cli) async fn run_over_api(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { json } => {
                let ListedItems { items, .. } = api.list(&[SERVERS], &[], PageNames::of("servers"), usize::MAX).await?;
                print_servers(&Value::Array(items), json)?;
            }
            Self::Set(args) => args.run_over_api(api).await?,
            Self::Limit { limit, default, reason, json } => {
                let holds = if limit.is_some() || default {
                    let change = json!({ "max_concurrent_calls": limit, "reason": given_reason(reason)? });
                    api.put(&[LIMIT], &change).await?
                } else {
                    api.get(&[LIMIT], &[]).await?
                };
                print_limit(&holds, json)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl ServerSetArgs {
    async fn run_over_api(self, api: &ApiClient) -> anyhow::Result<()> {
        let settings = self.settings()?;
        let change = json!({
            "provider": settings.provider, "base_url": settings.base_url, "max_concurrent": settings.max_concurrent,
            "enabled": settings.enabled, "repeats_are_safe": settings.repeats_are_safe,
            "reason": given_reason(self.reason)?,
        });
        if settings.provider.is_some() && settings.base_url.is_some() {
            let mut server = change.clone();
            server["id"] = json!(self.id);
            match api.post(&[SERVERS], &server).await {
                Err(error) if error.is_refusal("SERVER_EXISTS") => {}
                made => return print_server(&made?, self.json),
            }
        }
        match api.patch(&[SERVERS, self.id.as_str()], &change).await {
            Err(error) if error.is_refusal("SERVER_NOT_FOUND") => Err(with_cure(BindingError::NoServer(self.id))),
            changed => print_server(&changed?, self.json),
        }
    }
}
