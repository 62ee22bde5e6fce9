//! Providers' servers and the limits of calls, as operators set them.

use model::{actor::Actor, binding::ServerId};
use serde::Serialize;
use workers::store::SlotLimits;

use super::change::BindingError;
use crate::{
    app::App,
    binding_store::servers::{self, ProviderServer, ServerSettings},
    error::ServiceError,
    provider_client,
};

/// Servers read at a time.
const PAGE: i64 = 500;
const MOST_CALLS: i32 = 100_000;
const MOST_CALLS_PER_SERVER: i32 = 1000;
/// Names that are no ids: the engine has no slots of the first, and no path of HTTP ends in the others.
const NO_IDS: [&str; 3] = ["-", ".", ".."];

/// The limit of all calls, and where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TotalLimit {
    pub max_concurrent_calls: u32,
    /// False: the configuration's.
    pub set_by_operator: bool,
}

/// Creates a server. Provider and base URL are needed.
pub async fn create_server(
    app: &App,
    id: &ServerId,
    settings: &ServerSettings,
    by: &Actor,
) -> Result<ProviderServer, BindingError> {
    if NO_IDS.contains(&id.as_str()) {
        return Err(BindingError::Invalid(format!("'{id}' is no id of a server: choose one with a letter or a digit")));
    }
    if settings.provider.is_none() || settings.base_url.is_none() {
        return Err(BindingError::Invalid("a new server needs provider and base_url".to_owned()));
    }
    check_settings(app, settings)?;
    let created = servers::insert_server(&app.db, id, settings, by).await?;
    let created = created.ok_or_else(|| BindingError::ServerExists(id.clone()))?;
    publish_server(app, &created).await?;
    Ok(created)
}

/// Changes a server. A new limit holds at once; calls beyond a lower one may end.
pub async fn change_server(
    app: &App,
    id: &ServerId,
    settings: &ServerSettings,
    by: &Actor,
) -> Result<ProviderServer, BindingError> {
    check_settings(app, settings)?;
    let changed = servers::update_server(&app.db, id, settings, by).await?;
    let changed = changed.ok_or_else(|| BindingError::NoServer(id.clone()))?;
    publish_server(app, &changed).await?;
    Ok(changed)
}

fn check_settings(app: &App, settings: &ServerSettings) -> Result<(), BindingError> {
    let invalid = |text: String| Err(BindingError::Invalid(text));
    if let Some(provider) = settings.provider.as_ref().filter(|name| !app.providers.knows_provider(name)) {
        let known = app.providers.names().join(", ");
        let known = if known.is_empty() { "none".to_owned() } else { known };
        return invalid(format!(
            "provider '{provider}' is not configured; known are {known} (config.toml, [providers.{provider}])"
        ));
    }
    if let Some(url) = &settings.base_url
        && let Err(error) = provider_client::check_base_url(url)
    {
        return invalid(error.to_string());
    }
    if let Some(url) = settings.base_url.as_ref().filter(|url| url.len() > 500) {
        return invalid(format!("base_url has {} characters: expected at most 500", url.len()));
    }
    match settings.max_concurrent {
        Some(most) if !(1..=MOST_CALLS_PER_SERVER).contains(&most) => invalid(format!(
            "max_concurrent is {most}: expected 1 to {MOST_CALLS_PER_SERVER}; to stop all calls, disable the server"
        )),
        _ => Ok(()),
    }
}

/// The limit of all calls, as it holds.
pub async fn total_limit(app: &App) -> Result<TotalLimit, sqlx::Error> {
    let set = servers::find_total_limit(&app.db).await?.and_then(|limit| u32::try_from(limit).ok());
    Ok(TotalLimit {
        max_concurrent_calls: set.unwrap_or(app.config.bindings.max_concurrent_calls),
        set_by_operator: set.is_some(),
    })
}

/// Sets the limit of all calls at run time; `None` goes back to the configuration's.
pub async fn change_total_limit(app: &App, limit: Option<i32>, by: &Actor) -> Result<TotalLimit, BindingError> {
    if let Some(limit) = limit.filter(|limit| !(1..=MOST_CALLS).contains(limit)) {
        let text = format!("max_concurrent_calls is {limit}: expected 1 to {MOST_CALLS}");
        return Err(BindingError::Invalid(text));
    }
    servers::set_total_limit(&app.db, limit, by).await?;
    let limit = total_limit(app).await?;
    let limits = SlotLimits { all: Some(limit.max_concurrent_calls), groups: Vec::new() };
    tell_redis(app, &limits).await;
    Ok(limit)
}

/// The total goes with it: before the first server there was nothing to limit, and Redis has none.
async fn publish_server(app: &App, server: &ProviderServer) -> Result<(), BindingError> {
    let mut limits = SlotLimits::for_shard(total_limit(app).await?.max_concurrent_calls);
    add_group_limit(&mut limits, server);
    tell_redis(app, &limits).await;
    Ok(())
}

/// A failure is logged: the reconciler sets all limits every few seconds.
async fn tell_redis(app: &App, limits: &SlotLimits) {
    match tokio::time::timeout(app.patience, app.store.set_slot_limits(limits)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "A limit could not be set in Redis yet; it will be."),
        Err(_) => tracing::warn!("A limit could not be set in Redis yet; it will be."),
    }
}

/// A server of which the engine can have no slots is left out: it is called by none, and keeps no other from its calls.
fn add_group_limit(limits: &mut SlotLimits, server: &ProviderServer) {
    let most = u32::try_from(server.max_concurrent).unwrap_or(1);
    match SlotLimits::default().with_group(server.id.as_str(), most) {
        Ok(of_server) => limits.groups.extend(of_server.groups),
        Err(error) => tracing::warn!(server_id = %server.id, %error, "A server's limit cannot be set."),
    }
}

/// Has Redis know the limits that hold: that of all calls, and each server's.
pub async fn publish_limits(app: &App) -> Result<(), ServiceError> {
    let mut after: Option<ServerId> = None;
    let mut limits = SlotLimits::for_shard(total_limit(app).await?.max_concurrent_calls);
    loop {
        let page = servers::list_servers(&app.db, after.as_ref(), PAGE).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.id.clone());
        for server in &page {
            add_group_limit(&mut limits, server);
        }
    }
    // Without servers there is nothing to limit: an installation without bindings pays for nothing.
    if limits.groups.is_empty() {
        return Ok(());
    }
    app.store.set_slot_limits(&limits).await?;
    Ok(())
}
