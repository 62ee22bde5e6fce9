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
};
use crate::{
    form::{REASON, encode_component, given_text, optional_text, read_form, read_query},
    language::{Words, both},
    page::{Shell, go_back, render},
    page_error::{NO_ACTION, PageError},
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
const NAME: Words = both("name", "nama");

const HEADINGS: [Words; 7] = [
    both("User", "Pengguna"),
    both("Name", "Nama"),
    both("Role", "Peran"),
    both("Channel", "Kanal"),
    both("Address of mail", "Alamat surel"),
    both("Phone", "Telepon"),
    both("State", "Status"),
];

fn row_of(ListedUser { user, disabled_at }: ListedUser) -> TableRow {
    let path = |action: &str| format!("/users/{}/{action}", encode_component(&user.id));
    let change = if disabled_at.is_some() {
        Action::new(both("Enable", "Aktifkan"), path("enable"), vec![Field::reason()])
    } else {
        Action::new(both("Disable", "Nonaktifkan"), path("disable"), vec![Field::reason()])
    };
    let remove = Action::new(both("Remove", "Hapus"), path("remove"), vec![Field::reason()]).danger();
    let state = match disabled_at {
        Some(_) => Chip::new("bad", both("disabled", "dinonaktifkan")),
        None => Chip::new("good", both("is told", "diberi tahu")),
    };
    TableRow::plain(vec![
        Cell::id(&user.id),
        Cell::text(&user.name),
        Cell::text(role_word(user.role)),
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
    let id = both("User's id, such as anna", "Id pengguna, misalnya anna");
    let fields = vec![
        Field::required("id", id),
        Field::required("name", both("Name", "Nama")),
        Field::choice("role", both("Role", "Peran"), role_word(AccountRole::Dispatcher), &roles),
        Field::choice("channel", both("Told by", "Diberi tahu lewat"), LOG, &channels),
        Field::text("email", both("Address of mail; may be empty", "Alamat surel; boleh kosong"), ""),
        Field::text(
            "phone",
            both("Phone, such as +628123456789; may be empty", "Telepon, misalnya +628123456789; boleh kosong"),
            "",
        ),
        Field::reason(),
    ];
    Action::new(
        both("Add a user, or replace one of the same id", "Tambahkan pengguna, atau ganti yang ber-id sama"),
        "/users/save".to_owned(),
        fields,
    )
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
    let shell = Shell::for_person(&app.config, &person, "/users", both("Users", "Pengguna"), did.as_deref());
    let page = TablePage {
        note: both(
            "Whom messages reach, and how. A user is no key: who may sign in is on the page Keys, and who has, on Sessions.",
            "Siapa yang menerima pesan, dan lewat apa. Pengguna bukan kunci: siapa yang boleh masuk ada di halaman Kunci, dan siapa yang sedang masuk di Sesi.",
        )
        .into(),
        actions: vec![form_to_save(&app.config)],
        if_empty: (
            both("No users yet", "Belum ada pengguna"),
            both(
                "Add them above, or import them: dispatchq user import FILE",
                "Tambahkan di atas, atau impor dengan: dispatchq user import FILE",
            ),
        ),
        ..TablePage::new(shell.made_at(now).live(REFRESH_S), "/users", &HEADINGS, rows)
    };
    render(&page)
}

fn refuse_user(error: UserError) -> PageError {
    match error {
        UserError::NotFound => {
            PageError::NotFound(both("There is no user of this id.", "Tidak ada pengguna dengan id ini."))
        }
        UserError::Invalid(text) => PageError::Invalid(sentence(&text)),
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
    let unknown = both("There is no such role.", "Tidak ada peran seperti itu.");
    let user = UserAccount {
        id: form.id.trim().to_owned(),
        name: given_text(NAME, &form.name)?,
        role: role.ok_or_else(|| PageError::Invalid(unknown.into()))?,
        channel: form.channel,
        email: optional_text(both("address", "alamat"), Some(&form.email))?,
        phone: optional_text(both("phone", "telepon"), Some(&form.phone))?,
    };
    let reason = given_text(REASON, &form.reason)?;
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
    let reason = given_text(REASON, &read_form(form)?.reason)?;
    let by = ActionAuthor { actor: &person.actor(), reason: Some(&reason) };
    let (done, deed) = match word.as_str() {
        "disable" => (recorded::set_user_disabled(&app.core.db, &id, true, by).await, "user-disabled"),
        "enable" => (recorded::set_user_disabled(&app.core.db, &id, false, by).await, "user-enabled"),
        "remove" => (recorded::remove_user(&app.core.db, &id, by).await, "user-removed"),
        _ => return Err(PageError::NotFound(NO_ACTION)),
    };
    done.map_err(refuse_user)?;
    Ok(go_back(&app.config, "/users", deed).into_response())
}
