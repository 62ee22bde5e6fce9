//! Page of keys for the API and the sign-in, which admins create and revoke. Only the page that creates a key shows its
//! text.

use std::time::Duration;

use askama::Template;
use axum::{
    extract::{
        Form, Path, Query, State,
        rejection::{FormRejection, QueryRejection},
    },
    response::{IntoResponse, Redirect, Response},
};
use chrono::{DateTime, Utc};
use model::input::Given;
use serde::Deserialize;
use uuid::Uuid;

use super::{
    driver::driver_page,
    roles::ADMINS,
    rows::ReasonForm,
    scope_form::{ScopeForm, describe_role, scope_fields},
};
use crate::{
    catalogue::{Words, fill, tr},
    form::{given_text, optional_text, read_form, read_query, write_query},
    page::{Shell, go_back, render},
    page_error::PageError,
    session::SignedIn,
    shown::{Chip, Moment, role_word, sentence},
    table::{Action, Cell, Field, TablePage, TableRow},
};
use accounts::{
    api_keys::AccountRole,
    key_admin::{self, KeyError, KeyFilter, KeySelection, ListedKey, NewKey},
    recorded,
};
use app::App;
use foundation::{db, staff_actions::ActionAuthor};
use model::ids::DriverId;

const PAGE: i64 = 100;
const REFRESH_S: u32 = 15;
/// Maximum lifetime in days: ten years.
const LONGEST_DAYS: u32 = 3650;
const DAY: Duration = Duration::from_secs(86_400);

const ROLES: [AccountRole; 7] = [
    AccountRole::Producer,
    AccountRole::Driver,
    AccountRole::Viewer,
    AccountRole::Dispatcher,
    AccountRole::Support,
    AccountRole::Operator,
    AccountRole::Admin,
];
const HEADINGS: [Words; 7] = [
    tr("common.key"),
    tr("common.role"),
    tr("common.driver"),
    tr("common.state"),
    tr("common.created"),
    tr("common.last_used"),
    tr("common.expires"),
];

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct KeyQuery {
    name: String,
    role: String,
    show: String,
    after: String,
    did: Option<String>,
}

impl KeyQuery {
    fn to_query(&self, after: &str) -> String {
        write_query(&[("name", &self.name), ("role", &self.role), ("show", &self.show), ("after", after)])
    }

    fn to_filter(&self) -> Result<KeyFilter, PageError> {
        Ok(KeyFilter {
            role: if self.role.is_empty() { None } else { Some(parse_role(&self.role)?) },
            driver: None,
            name: optional_text(tr("common.name"), Some(&self.name))?,
            all: self.show == "all",
            unused_for: None,
        })
    }
}

fn parse_role(word: &str) -> Result<AccountRole, PageError> {
    let found = ROLES.into_iter().find(|role| role_word(*role) == word);
    found.ok_or_else(|| PageError::Invalid(tr("common.role_not_exist").into()))
}

/// Returns whether the key is valid, with the reason if it is not.
fn state_chip(key: &ListedKey) -> Chip {
    match key {
        ListedKey { revoked_at: Some(_), .. } => Chip::new("bad", tr("keys.revoked")),
        ListedKey { superseded_at: Some(_), valid: true, .. } => Chip::new("wait", tr("keys.replaced_expires_soon")),
        ListedKey { superseded_at: Some(_), .. } => Chip::new("plain", tr("keys.replaced")),
        ListedKey { valid: true, .. } => Chip::new("good", tr("keys.valid")),
        _ => Chip::new("plain", tr("common.expired")),
    }
}

fn moment_or_dash(at: Option<DateTime<Utc>>) -> Cell {
    at.map_or_else(|| Cell::text(""), |at| Cell::html(Moment(at)))
}

pub(crate) async fn show_keys(
    State(app): State<App>,
    person: SignedIn,
    query: Result<Query<KeyQuery>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&ADMINS)?;
    let app = app.showing();
    let query: KeyQuery = read_query(query)?;
    let filter = query.to_filter()?;
    let after: Option<Uuid> = match query.after.as_str() {
        "" => None,
        id => Some(id.parse().map_err(|_| PageError::Invalid(tr("keys.no_such_key_it").into()))?),
    };
    let keys = key_admin::list_page(&app.core.db, &filter, after, PAGE).await?;
    let now = db::database_now(&app.core.db).await?;
    let is_full = i64::try_from(keys.len()).is_ok_and(|n| n == PAGE);
    let next = keys.last().filter(|_| is_full).map(|key| query.to_query(&key.id.to_string()));
    let base = &app.config.console.path;
    let rows = keys.into_iter().map(|key| {
        let state = state_chip(&key);
        let actions = if key.revoked_at.is_none() {
            let revoke = tr("keys.revoke_key");
            let revoke = Action::new(revoke, format!("/keys/{}/revoke", key.id), vec![Field::reason()]).danger();
            scope_action(&key).into_iter().chain([revoke]).collect()
        } else {
            Vec::new()
        };
        let driver = key.driver_id.map(DriverId::into_string);
        TableRow::plain(vec![
            Cell::text(&key.name),
            Cell::text(describe_role(key.role, key.scope.as_ref())),
            driver.map_or_else(|| Cell::text(""), |id| Cell::link(&driver_page(base, &id), &id)),
            Cell::html(state),
            Cell::html(Moment(key.created_at)),
            moment_or_dash(key.last_used_at),
            moment_or_dash(key.expires_at),
        ])
        .with_actions(actions)
    });
    let rows = rows.collect();
    let mut roles = vec![("", tr("common.any").get())];
    roles.extend(ROLES.map(|role| (role_word(role), role_word(role))));
    let shows = [("", tr("keys.valid_keys").get()), ("all", tr("keys.all_keys_including_expired").get())];
    let shell = Shell::for_person(&app.config, &person, "/keys", tr("common.keys"), query.did.as_deref()).made_at(now);
    let shell = shell.live(if query.after.is_empty() { REFRESH_S } else { 0 });
    let page = TablePage {
        note: tr("keys.these_keys_give_access").into(),
        filters: vec![
            Field::text("name", tr("keys.name_contains"), &query.name),
            Field::choice("role", tr("common.role"), &query.role, &roles),
            Field::choice("show", tr("keys.show"), &query.show, &shows),
        ],
        actions: vec![form_for_new_key()],
        if_empty: (tr("keys.no_keys_found"), tr("keys.remove_filter_create_key")),
        next,
        ..TablePage::new(shell, &format!("/keys{}", query.to_query(&query.after)), &HEADINGS, rows)
    };
    render(&page)
}

/// Returns the form for the scope of a key of staff.
fn scope_action(key: &ListedKey) -> Option<Action> {
    let fields = scope_fields(key.scope.as_ref()).into_iter().chain([Field::reason()]).collect();
    let action = Action::new(tr("scope.set"), format!("/keys/{}/scope", key.id), fields);
    Some(action).filter(|_| key.role.is_staff())
}

fn form_for_new_key() -> Action {
    let roles = ROLES.map(|role| (role_word(role), role_word(role)));
    let name = tr("keys.name_such_as_anna");
    let fields = vec![
        Field::required("name", name),
        Field::choice("role", tr("common.role"), role_word(AccountRole::Viewer), &roles),
        Field::text("driver_id", tr("keys.driver_id_only_role"), ""),
        Field::text("days", tr("keys.expires_after_number_days"), ""),
        Field::choice(
            "take_over",
            tr("keys.if_earlier_producer_name"),
            "",
            &[("", tr("keys.refuse_name").get()), ("yes", tr("keys.give_these_orders_new").get())],
        ),
    ];
    let fields = fields.into_iter().chain(scope_fields(None)).chain([Field::reason()]).collect();
    Action::new(tr("keys.create_key"), "/keys/create".to_owned(), fields)
}

#[derive(Debug, Deserialize)]
pub(crate) struct NewKeyForm {
    #[serde(default)]
    name: String,
    #[serde(default)]
    role: String,
    #[serde(default)]
    driver_id: String,
    #[serde(default)]
    days: String,
    /// Empty or "yes".
    #[serde(default)]
    take_over: String,
    #[serde(flatten)]
    scope: ScopeForm,
    #[serde(default)]
    reason: String,
}

/// Has no `Debug`, so that the key appears in no log.
#[derive(Template)]
#[template(path = "new_key.html")]
struct NewKeyPage {
    shell: Shell,
    name: String,
    role: &'static str,
    /// Text of the key, which is shown only once.
    key: String,
    ends: Option<Moment>,
}

/// Parses the driver of a key; `None` if it has none.
fn parse_driver(id: &str) -> Result<Option<DriverId>, PageError> {
    let Some(id) = Some(id.trim()).filter(|id| !id.is_empty()) else { return Ok(None) };
    match id.parse() {
        Ok(Given(id)) => Ok(Some(id)),
        Err(_) => Err(PageError::Invalid(tr("keys.driver_id_1_64").into())),
    }
}

/// Parses the lifetime of a key; `None` if it is valid until revoked.
fn parse_days(days: &str) -> Result<Option<Duration>, PageError> {
    let days = match days.trim() {
        "" => return Ok(None),
        text => text.parse::<u32>().ok().filter(|days| (1..=LONGEST_DAYS).contains(days)),
    };
    let days = days.ok_or_else(|| PageError::Invalid(fill!("keys.number_days_from_1", most = LONGEST_DAYS)))?;
    Ok(Some(DAY * days))
}

/// Redirects to the list, because the address of the form has no page. Browsers request it on a reload or a change of
/// language.
pub(crate) async fn to_keys(State(app): State<App>) -> Redirect {
    Redirect::to(&format!("{}/keys", app.config.console.path))
}

/// Creates a key and shows it. The page is the answer to the form, so that no address, cookie or row contains the key.
/// A repeated form is refused because the name is taken.
pub(crate) async fn create_key(
    State(app): State<App>,
    person: SignedIn,
    form: Result<Form<NewKeyForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&ADMINS)?;
    let NewKeyForm { name, role, driver_id, days, take_over, scope, reason } = read_form(form)?;
    let name = given_text(tr("common.name"), &name)?;
    let role = parse_role(&role)?;
    let driver = parse_driver(&driver_id)?;
    if (role == AccountRole::Driver) != driver.is_some() {
        let text = tr("keys.driver_id_required_role");
        return Err(PageError::Invalid(text.into()));
    }
    let scope = scope.check(&app).await?;
    if scope.is_some() && !role.is_staff() {
        return Err(PageError::Invalid(tr("scope.only_for_staff").into()));
    }
    let expires_in = parse_days(&days)?;
    let reason = given_text(tr("common.reason"), &reason)?;
    let by = ActionAuthor { actor: &person.actor(), reason: Some(&reason) };
    let (driver_id, scope) = (driver.as_ref(), scope.as_ref());
    let wanted = NewKey { name: &name, role, driver_id, expires_in, takes_over: take_over == "yes", scope };
    let (made, key) = recorded::create_key(&app.core.db, &wanted, by).await.map_err(key_error)?;
    let page = NewKeyPage {
        shell: Shell::for_person(&app.config, &person, "/keys", tr("keys.new_key"), None),
        name: made.name,
        role: role_word(made.role),
        key,
        ends: expires_in.map(|time| Moment(made.created_at + time)),
    };
    render(&page)
}

/// Returns the page for an error.
fn key_error(error: KeyError) -> PageError {
    match error {
        KeyError::NameTaken(name) => PageError::Conflict(fill!("keys.key_name_already_exists", name)),
        KeyError::OwnsOrders(name) => PageError::Conflict(fill!("keys.orders_belong_name_choose", name)),
        KeyError::NoSuchDriver(driver) => PageError::Invalid(fill!("keys.no_active_driver_id", driver)),
        KeyError::NoScopes => PageError::Conflict(tr("scope.role_missing").into()),
        KeyError::Database(error) => error.into(),
        error @ (KeyError::NoSuchName(_) | KeyError::BadName(_)) => PageError::Invalid(sentence(&error.to_string())),
    }
}

/// Revokes a key. The key is invalid within a second, and its sessions end.
pub(crate) async fn revoke_key(
    State(app): State<App>,
    person: SignedIn,
    Path(id): Path<String>,
    form: Result<Form<ReasonForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&ADMINS)?;
    let id: Uuid = id.parse().map_err(|_| PageError::NotFound(tr("keys.no_such_key_it")))?;
    let reason = given_text(tr("common.reason"), &read_form(form)?.reason)?;
    let by = ActionAuthor { actor: &person.actor(), reason: Some(&reason) };
    if recorded::revoke_keys(&app.core.db, &KeySelection::Id(id), by).await?.is_empty() {
        return Err(PageError::NotFound(tr("keys.no_such_key_it")));
    }
    Ok(go_back(&app.config, "/keys", "key-revoked").into_response())
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct KeyScopeForm {
    #[serde(flatten)]
    scope: ScopeForm,
    reason: String,
}

/// Sets or removes the scope of a key. It takes effect within a second, also in the open sessions of the key.
pub(crate) async fn set_scope(
    State(app): State<App>,
    person: SignedIn,
    Path(id): Path<String>,
    form: Result<Form<KeyScopeForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&ADMINS)?;
    let id: Uuid = id.parse().map_err(|_| PageError::NotFound(tr("keys.no_such_key_it")))?;
    let KeyScopeForm { scope, reason } = read_form(form)?;
    let scope = scope.check(&app).await?;
    let reason = given_text(tr("common.reason"), &reason)?;
    let by = ActionAuthor { actor: &person.actor(), reason: Some(&reason) };
    match recorded::set_key_scope(&app.core.db, id, scope.as_ref(), by).await {
        Err(KeyError::NoSuchName(_)) => Err(PageError::NotFound(tr("keys.no_such_key_it"))),
        done => {
            done.map_err(key_error)?;
            Ok(go_back(&app.config, "/keys", "key-scope-set").into_response())
        }
    }
}
