//! Page with a driver's phone number, shown on demand to staff who call drivers. Each view is recorded in the audit
//! trail.

use askama::Template;
use axum::{
    extract::{Form, Path, State, rejection::FormRejection},
    response::{IntoResponse, Redirect, Response},
};

use super::{driver::driver_page, drivers::refuse_driver, roles::CALLERS, rows::BackForm};
use crate::{
    catalogue::fill,
    form::{encode_component, read_form},
    page::{Shell, render, safe_path},
    page_error::PageError,
    session::SignedIn,
};
use app::App;
use foundation::staff_actions::ActionAuthor;
use model::ids::DriverId;
use orders::fleet::driver_admin;

/// Has no `Debug`, so that the number appears in no log.
#[derive(Template)]
#[template(path = "phone.html")]
struct PhonePage {
    shell: Shell,
    /// `None` if no number is stored.
    phone: Option<String>,
    /// Page with the button, below the console's path.
    back: String,
}

/// Redirects to the driver, because the address of the form has no page. Browsers request it on a reload.
pub(crate) async fn to_driver(State(app): State<App>, Path(id): Path<String>) -> Redirect {
    Redirect::to(&driver_page(&app.config.console.path, &id))
}

/// Shows a driver's phone number, and records the viewer. The page is the answer to the form, so that no address
/// contains the number.
pub(crate) async fn show_phone(
    State(app): State<App>,
    person: SignedIn,
    Path(id): Path<String>,
    form: Result<Form<BackForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&CALLERS)?;
    let BackForm { back } = read_form(form)?;
    let usual = format!("/drivers/{}", encode_component(&id));
    let back = safe_path(back.as_deref(), &usual).to_owned();
    let id = DriverId::from(id);
    let by = ActionAuthor { actor: &person.actor(), reason: None };
    let phone = driver_admin::reveal_phone(&app.core.db, &id, by).await.map_err(refuse_driver)?;
    let title = fill!("phone.title", id);
    let shell = Shell::for_person(&app.config, &person, "/drivers", title, None);
    render(&PhonePage { shell, phone, back }).map(IntoResponse::into_response)
}
