//! Changes that operators make to providers' servers and to the limits on calls.

use model::{binding::ServerId, ids::ProviderName};
use serde::Serialize;
use serde_json::json;

use super::error::BindingError;
use crate::{
    capability::Bindings,
    store::servers::{self, ProviderServer, ServerSettings},
};
use foundation::{
    core::Core,
    error::ServiceError,
    staff_actions::{ActionAuthor, ActionValues, StaffAction, record_action},
};
use queue::store::SlotLimits;

/// Number of servers read at a time.
const PAGE: i64 = 500;
const MOST_CALLS: i32 = 100_000;
const MOST_CALLS_PER_SERVER: i32 = 1000;
/// Reserved ids: the engine has no slots with the first name, and HTTP paths cannot end in the other two.
const NO_IDS: [&str; 3] = ["-", ".", ".."];

/// Limit on open calls to all servers together, and the source of the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TotalLimit {
    pub max_concurrent_calls: u32,
    /// Whether an operator set the limit. Otherwise it comes from the configuration.
    pub set_by_operator: bool,
}

/// A server with the numbers of its calls in Redis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListedServer {
    #[serde(flatten)]
    pub server: ProviderServer,
    /// Open calls. `None`: Redis did not respond.
    pub in_use: Option<u32>,
    /// Bindings in the server's line. `None`: Redis did not respond.
    pub waiting: Option<u64>,
    /// Whether the server is not called now, because `paused_until` is in the future.
    pub left_alone: bool,
}

/// Lists one page of servers with their calls, ordered by id. A page has at most 500.
pub async fn list_with_calls(
    bindings: &Bindings,
    after: Option<&ServerId>,
    limit: i64,
) -> Result<Vec<ListedServer>, sqlx::Error> {
    let page = servers::list_servers(&bindings.core.db, after, limit.min(PAGE)).await?;
    if page.is_empty() {
        return Ok(Vec::new());
    }
    let names: Vec<&str> = page.iter().map(|server| server.id.as_str()).collect();
    let counted = bindings.core.store.slot_stats(&names).await.map_or_else(
        |error| {
            tracing::warn!(%error, "Redis did not return the open calls of servers.");
            Vec::new()
        },
        |stats| stats.groups,
    );
    let mut counted = counted.into_iter();
    let now = bindings.core.database_clock.now();
    let listed = page.into_iter().map(|server| {
        let slots = counted.next();
        ListedServer {
            in_use: slots.as_ref().map(|slots| slots.in_use),
            waiting: slots.as_ref().map(|slots| slots.waiting),
            left_alone: server.paused_until.is_some_and(|until| until > now),
            server,
        }
    });
    Ok(listed.collect())
}

/// Creates a server and records the action. Provider and base URL are required.
pub async fn create_server(
    bindings: &Bindings,
    id: &ServerId,
    settings: &ServerSettings,
    by: impl Into<ActionAuthor<'_>>,
) -> Result<ProviderServer, BindingError> {
    let by = by.into();
    if NO_IDS.contains(&id.as_str()) {
        return Err(BindingError::Invalid(format!(
            "'{id}' is not a valid id of a server: choose one with a letter or a digit"
        )));
    }
    let (Some(provider), Some(base_url)) = (&settings.provider, &settings.base_url) else {
        return Err(BindingError::Invalid("a new server needs provider and base_url".to_owned()));
    };
    check_settings(bindings, settings)?;
    check_address(bindings, provider, base_url)?;
    let mut tx = bindings.core.db.begin().await?;
    let created = servers::insert_server(&mut tx, id, settings, by.actor).await?;
    let created = created.ok_or_else(|| BindingError::ServerExists(id.clone()))?;
    let values = ActionValues::created(created.recorded_settings());
    record_action(&mut tx, by, StaffAction::ServerCreated, id.as_str(), values).await?;
    tx.commit().await?;
    publish_server(bindings, &created).await?;
    Ok(created)
}

/// Changes a server and records the action. A new limit applies immediately. If it is lower, open calls above it may
/// finish. A change without effect writes nothing.
pub async fn change_server(
    bindings: &Bindings,
    id: &ServerId,
    settings: &ServerSettings,
    by: impl Into<ActionAuthor<'_>>,
) -> Result<ProviderServer, BindingError> {
    let by = by.into();
    check_settings(bindings, settings)?;
    let mut tx = bindings.core.db.begin().await?;
    let before = servers::lock_server(&mut tx, id).await?.ok_or_else(|| BindingError::NoServer(id.clone()))?;
    if settings.provider.is_some() || settings.base_url.is_some() {
        let provider = settings.provider.as_ref().unwrap_or(&before.provider);
        check_address(bindings, provider, settings.base_url.as_ref().unwrap_or(&before.base_url))?;
    }
    let changed = servers::update_server(&mut tx, id, settings, by.actor).await?;
    let changed = changed.ok_or_else(|| BindingError::NoServer(id.clone()))?;
    let (old, new) = (before.recorded_settings(), changed.recorded_settings());
    if old == new {
        tx.rollback().await?;
        return Ok(before);
    }
    record_action(&mut tx, by, StaffAction::ServerChanged, id.as_str(), ActionValues::changed(old, new)).await?;
    tx.commit().await?;
    publish_server(bindings, &changed).await?;
    Ok(changed)
}

/// Checks that the configuration allows calls to this provider at this address.
fn check_address(bindings: &Bindings, provider: &ProviderName, base_url: &str) -> Result<(), BindingError> {
    let checked = bindings.providers.check_address(provider, base_url);
    checked.map_err(|error| BindingError::Invalid(error.to_string()))
}

fn check_settings(bindings: &Bindings, settings: &ServerSettings) -> Result<(), BindingError> {
    let invalid = |text: String| Err(BindingError::Invalid(text));
    if let Some(provider) = settings.provider.as_ref().filter(|name| !bindings.providers.knows_provider(name)) {
        let known = bindings.providers.names().join(", ");
        let known = if known.is_empty() { "none".to_owned() } else { known };
        return invalid(format!(
            "provider '{provider}' is not configured; known are {known} (config.toml, [providers.{provider}])"
        ));
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

/// Returns the limit in effect on open calls to all servers together.
pub async fn total_limit(bindings: &Bindings) -> Result<TotalLimit, sqlx::Error> {
    Ok(limit_that_holds(bindings, servers::find_total_limit(&bindings.core.db).await?))
}

fn limit_that_holds(bindings: &Bindings, set: Option<i32>) -> TotalLimit {
    let set = set.and_then(|limit| u32::try_from(limit).ok());
    TotalLimit {
        max_concurrent_calls: set.unwrap_or(bindings.config.bindings.max_concurrent_calls),
        set_by_operator: set.is_some(),
    }
}

/// Sets the limit on open calls to all servers together at run time and records the action. `None` restores the
/// configured limit.
pub async fn change_total_limit(
    bindings: &Bindings,
    limit: Option<i32>,
    by: impl Into<ActionAuthor<'_>>,
) -> Result<TotalLimit, BindingError> {
    let by = by.into();
    if let Some(limit) = limit.filter(|limit| !(1..=MOST_CALLS).contains(limit)) {
        let text = format!("max_concurrent_calls is {limit}: expected 1 to {MOST_CALLS}");
        return Err(BindingError::Invalid(text));
    }
    let mut tx = bindings.core.db.begin().await?;
    let before = limit_that_holds(bindings, servers::find_total_limit(&mut *tx).await?);
    servers::set_total_limit(&mut tx, limit, by.actor).await?;
    let limit = limit_that_holds(bindings, limit);
    if before != limit {
        let values = ActionValues::changed(json!(before), json!(limit));
        record_action(&mut tx, by, StaffAction::CallLimitSet, "provider-call-limit", values).await?;
    }
    tx.commit().await?;
    let limits = SlotLimits { all: Some(limit.max_concurrent_calls), groups: Vec::new() };
    tell_redis(&bindings.core, &limits).await;
    Ok(limit)
}

/// Sends the limit of a server to Redis, together with the total limit. Redis gets the total limit only when the first
/// server exists.
async fn publish_server(bindings: &Bindings, server: &ProviderServer) -> Result<(), BindingError> {
    let mut limits = SlotLimits::for_shard(total_limit(bindings).await?.max_concurrent_calls);
    add_group_limit(&mut limits, server);
    tell_redis(&bindings.core, &limits).await;
    Ok(())
}

/// Sets limits in Redis. A failure is logged, because the reconciler sets all limits every few seconds.
async fn tell_redis(core: &Core, limits: &SlotLimits) {
    match tokio::time::timeout(core.patience, core.store.set_slot_limits(limits)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "A limit could not be set in Redis; the reconciler sets it."),
        Err(_) => tracing::warn!("A limit could not be set in Redis; the reconciler sets it."),
    }
}

/// Adds the limit of a server. A server that cannot have slots is left out; the limits of the other servers still
/// apply.
fn add_group_limit(limits: &mut SlotLimits, server: &ProviderServer) {
    let most = u32::try_from(server.max_concurrent).unwrap_or(1);
    match SlotLimits::default().with_group(server.id.as_str(), most) {
        Ok(of_server) => limits.groups.extend(of_server.groups),
        Err(error) => tracing::warn!(server_id = %server.id, %error, "The server's limit cannot be set."),
    }
}

/// Sets all limits in Redis: the limit on open calls to all servers together, and the limit of each server.
pub async fn publish_limits(bindings: &Bindings) -> Result<(), ServiceError> {
    let mut after: Option<ServerId> = None;
    let mut limits = SlotLimits::for_shard(total_limit(bindings).await?.max_concurrent_calls);
    loop {
        let page = servers::list_servers(&bindings.core.db, after.as_ref(), PAGE).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.id.clone());
        for server in &page {
            add_group_limit(&mut limits, server);
        }
    }
    // Without servers there is nothing to limit, so an installation without bindings sends no command.
    if limits.groups.is_empty() {
        return Ok(());
    }
    bindings.core.store.set_slot_limits(&limits).await?;
    Ok(())
}
