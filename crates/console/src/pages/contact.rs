//! Page with the contact of an order, shown on demand to staff who call customers. Each view is recorded in the audit
//! trail.

use askama::Template;
use axum::{
    extract::{Form, Path, State, rejection::FormRejection},
    response::{IntoResponse, Redirect, Response},
};

use super::{
    roles::CALLERS,
    rows::{BackForm, parse_order},
};
use crate::{
    catalogue::{fill, tr},
    form::{encode_component, read_form},
    page::{Shell, render, safe_path},
    page_error::PageError,
    session::SignedIn,
};
use app::App;
use foundation::staff_actions::ActionAuthor;
use model::details::Contact;
use orders::details;

/// Has no `Debug`, so that the contact appears in no log.
#[derive(Template)]
#[template(path = "contact.html")]
struct ContactPage {
    shell: Shell,
    contact: Contact,
    /// Page with the button, below the console's path.
    back: String,
}

/// Redirects to the order, because the address of the form has no page. Browsers request it on a reload.
pub(crate) async fn to_order(State(app): State<App>, Path(id): Path<String>) -> Redirect {
    Redirect::to(&format!("{}/orders/{}", app.config.console.path, encode_component(&id)))
}

/// Shows the contact of an order, and records the viewer. The page is the answer to the form, so that no address
/// contains the contact.
pub(crate) async fn show_contact(
    State(app): State<App>,
    person: SignedIn,
    path: Path<String>,
    form: Result<Form<BackForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&CALLERS)?;
    let BackForm { back } = read_form(form)?;
    let id = parse_order(path)?;
    let back = safe_path(back.as_deref(), &format!("/orders/{id}")).to_owned();
    let by = ActionAuthor { actor: &person.actor(), reason: None };
    let contact = details::reveal_contact(&app.core.db, &id, by).await?;
    let contact = contact.ok_or(PageError::NotFound(tr("problem.no_order_id")))?;
    let shell = Shell::for_person(&app.config, &person, "/orders", fill!("contact.title", id), None);
    render(&ContactPage { shell, contact, back }).map(IntoResponse::into_response)
}
