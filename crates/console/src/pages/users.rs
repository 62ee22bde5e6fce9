//! Page of users: staff who receive messages, and their channels. The page of keys decides who may sign in.

use axum::{
    extract::{
        Form, Path, Query, State,
        rejection::{FormRejection, QueryRejection},
    },
    response::{IntoResponse, Response},
};
use model::messages::routes::LOG;
use serde::Deserialize;
use settings::Config;

use super::{
    roles::ADMINS,
    rows::{Deed, ReasonForm},
    scope_form::{ScopeForm, describe_role, scope_fields},
};
use crate::{
    catalogue::{Words, tr},
    form::{encode_component, given_text, optional_text, read_form, read_query},
    page::{Shell, go_back, render},
    page_error::PageError,
    session::SignedIn,
    shown::{Chip, role_word, sentence},
    table::{Action, Cell, Field, TablePage, TableRow},
};
use accounts::{
    api_keys::AccountRole,
    recorded,
    users::{self, ListedUser, UserAccount, UserError},
};
use app::App;
use foundation::{db, staff_actions::ActionAuthor};

const REFRESH_S: u32 = 15;
/// Roles of users who receive messages.
const ROLES: [AccountRole; 4] =
    [AccountRole::Dispatcher, AccountRole::Support, AccountRole::Operator, AccountRole::Admin];

const HEADINGS: [Words; 7] = [
    tr("users.user"),
    tr("common.name"),
    tr("common.role"),
    tr("common.channel"),
    tr("users.e_mail_address"),
    tr("users.phone"),
    tr("common.state"),
];

fn row_of(ListedUser { user, disabled_at }: ListedUser) -> TableRow {
    let path = |action: &str| format!("/users/{}/{action}", encode_component(&user.id));
    let change = if disabled_at.is_some() {
        Action::new(tr("users.enable_user"), path("enable"), vec![Field::reason()])
    } else {
        Action::new(tr("users.disable_user"), path("disable"), vec![Field::reason()])
    };
    let remove = Action::new(tr("users.remove_user"), path("remove"), vec![Field::reason()]).danger();
    let state = match disabled_at {
        Some(_) => Chip::new("bad", tr("common.disabled")),
        None => Chip::new("good", tr("users.receives_messages")),
    };
    TableRow::plain(vec![
        Cell::id(&user.id),
        Cell::text(&user.name),
        Cell::text(describe_role(user.role, user.scope.as_ref())),
        Cell::text(&user.channel),
        Cell::text(user.email.as_deref().unwrap_or_default()),
        Cell::text(user.phone.as_deref().unwrap_or_default()),
        Cell::html(state),
    ])
    .with_actions(vec![change, remove])
}

/// Returns the form that creates or updates a user.
fn form_to_save(config: &Config) -> Action {
    let roles = ROLES.map(|role| (role_word(role), role_word(role)));
    let mut channels = vec![(LOG, LOG)];
    channels.extend(config.channels.keys().map(|name| (name.as_str(), name.as_str())));
    let id = tr("users.user_id_such_as");
    let fields = vec![
        Field::required("id", id),
        Field::required("name", tr("common.name")),
        Field::choice("role", tr("common.role"), role_word(AccountRole::Dispatcher), &roles),
        Field::choice("channel", tr("common.channel"), LOG, &channels),
        Field::text("email", tr("users.e_mail_address_may"), ""),
        Field::text("phone", tr("common.phone_example"), ""),
    ];
    let fields = fields.into_iter().chain(scope_fields(None)).chain([Field::reason()]).collect();
    Action::new(tr("users.add_replace_user"), "/users/save".to_owned(), fields)
}

pub(crate) async fn show_page(
    State(app): State<App>,
    person: SignedIn,
    query: Result<Query<Deed>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&ADMINS)?;
    let app = app.showing();
    let Deed { did } = read_query(query)?;
    let now = db::database_now(&app.core.db).await?;
    let rows = users::list_users(&app.core.db).await?.into_iter().map(row_of).collect();
    let shell = Shell::for_person(&app.config, &person, "/users", tr("common.users"), did.as_deref());
    let page = TablePage {
        note: tr("users.users_receive_messages_over").into(),
        actions: vec![form_to_save(&app.config)],
        if_empty: (tr("users.no_users"), tr("users.add_users_above_import")),
        ..TablePage::new(shell.made_at(now).live(REFRESH_S), "/users", &HEADINGS, rows)
    };
    render(&page)
}

fn refuse_user(error: UserError) -> PageError {
    match error {
        UserError::NotFound => PageError::NotFound(tr("users.no_user_id")),
        UserError::Invalid(text) => PageError::Invalid(sentence(&text)),
        UserError::NoScopes => PageError::Conflict(tr("scope.role_missing").into()),
        UserError::Database(error) => error.into(),
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct UserForm {
    id: String,
    name: String,
    role: String,
    channel: String,
    email: String,
    phone: String,
    #[serde(flatten)]
    scope: ScopeForm,
    reason: String,
}

/// Creates a user, or replaces the user with this id.
pub(crate) async fn save_user(
    State(app): State<App>,
    person: SignedIn,
    form: Result<Form<UserForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&ADMINS)?;
    let form = read_form(form)?;
    let role = ROLES.into_iter().find(|role| role_word(*role) == form.role);
    let unknown = tr("common.role_not_exist");
    let user = UserAccount {
        id: form.id.trim().to_owned(),
        name: given_text(tr("common.name"), &form.name)?,
        role: role.ok_or_else(|| PageError::Invalid(unknown.into()))?,
        channel: form.channel,
        email: optional_text(tr("users.e_mail_address"), Some(&form.email))?,
        phone: optional_text(tr("users.phone"), Some(&form.phone))?,
        scope: form.scope.check(&app).await?,
    };
    let reason = given_text(tr("common.reason"), &form.reason)?;
    if let Some(problem) = users::find_missing_phone(&user, &app.config) {
        return Err(PageError::Invalid(sentence(&problem)));
    }
    let channels: Vec<&str> = app.config.channels.keys().map(String::as_str).collect();
    let by = ActionAuthor { actor: &person.actor(), reason: Some(&reason) };
    recorded::save_user(&app.core.db, &user, &channels, by).await.map_err(refuse_user)?;
    Ok(go_back(&app.config, "/users", "user-saved").into_response())
}

/// Disables, enables or removes a user, as the path specifies. The user's keys stay valid until they are revoked.
pub(crate) async fn change_user(
    State(app): State<App>,
    person: SignedIn,
    Path((id, word)): Path<(String, String)>,
    form: Result<Form<ReasonForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&ADMINS)?;
    let reason = given_text(tr("common.reason"), &read_form(form)?.reason)?;
    let by = ActionAuthor { actor: &person.actor(), reason: Some(&reason) };
    let (done, deed) = match word.as_str() {
        "disable" => (recorded::set_user_disabled(&app.core.db, &id, true, by).await, "user-disabled"),
        "enable" => (recorded::set_user_disabled(&app.core.db, &id, false, by).await, "user-enabled"),
        "remove" => (recorded::remove_user(&app.core.db, &id, by).await, "user-removed"),
        _ => return Err(PageError::NotFound(tr("problem.action_not_exist"))),
    };
    done.map_err(refuse_user)?;
    Ok(go_back(&app.config, "/users", deed).into_response())
}
