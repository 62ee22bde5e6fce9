//! Checks that the configuration allows the addresses of the provider servers in Postgres.

use super::{DoctorFinding, FindingVerdict, new_finding};
use bindings::{
    provider_client::ProviderRegistry,
    store::servers::{self, ProviderServer},
};
use foundation::db::Pool;
use settings::Config;

/// Servers read per statement.
const PAGE: i64 = 500;
/// Maximum number of servers that are listed. The rest is counted.
const MOST_NAMED: usize = 20;

/// Returns a warning for each provider without hosts, and for each server whose address the configuration does not
/// allow.
pub(super) async fn check_servers(config: &Config, db: &Pool) -> Vec<DoctorFinding> {
    let registry = match ProviderRegistry::new(&config.providers) {
        Ok(registry) => registry,
        Err(error) => return vec![new_warning(error.to_string())],
    };
    let mut found: Vec<DoctorFinding> = Vec::new();
    for name in registry.names_without_hosts() {
        found.push(new_warning(format!(
            "providers.{name}: hosts is empty, so none of its servers is called; list their hosts"
        )));
    }
    match find_refused(&registry, db).await {
        Ok(refused) => {
            let more = refused.len().saturating_sub(MOST_NAMED);
            found.extend(refused.into_iter().take(MOST_NAMED).map(new_warning));
            if more > 0 {
                found.push(new_warning(format!("{more} more servers cannot be called: dispatchq server list")));
            }
        }
        Err(error) => found.push(new_warning(format!("the servers could not be read: {error}"))),
    }
    found
}

/// Returns for each server that must not be called the reason.
async fn find_refused(registry: &ProviderRegistry, db: &Pool) -> Result<Vec<String>, sqlx::Error> {
    let (mut refused, mut page) = (Vec::new(), servers::list_servers(db, None, PAGE).await?);
    while let Some(last) = page.last().map(|server| server.id.clone()) {
        refused.extend(page.iter().filter_map(|server| describe_refusal(registry, server)));
        page = servers::list_servers(db, Some(&last), PAGE).await?;
    }
    Ok(refused)
}

fn describe_refusal(registry: &ProviderRegistry, server: &ProviderServer) -> Option<String> {
    let problem = registry.check_address(&server.provider, &server.base_url).err()?;
    Some(format!("server {} cannot be called, and its bindings stop: {problem}", server.id))
}

fn new_warning(detail: String) -> DoctorFinding {
    new_finding("providers", FindingVerdict::Warn, detail)
}
