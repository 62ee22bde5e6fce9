//! Page with a new one-time link, with which a driver signs in to the driver page.

use api::{
    drivers::{SignInLink, issue_link},
    error::ApiError,
};
use app::App;
use askama::Template;
use axum::{
    extract::{Form, Path, State, rejection::FormRejection},
    response::Response,
};
use foundation::staff_actions::ActionAuthor;
use model::ids::DriverId;

use super::{driver::driver_page, roles::DISPATCHERS, rows::ReasonForm};
use crate::{
    catalogue::{fill, tr},
    form::{given_text, read_form},
    page::{Shell, render},
    page_error::PageError,
    session::SignedIn,
    shown::Moment,
};

/// Has no `Debug`, so that the code appears in no log.
#[derive(Template)]
#[template(path = "driver_link.html")]
struct DriverLinkPage {
    shell: Shell,
    url: String,
    code: String,
    expires: Moment,
    /// Address of the driver's page.
    back: String,
}

/// Creates a link and shows it. The page is the answer to the form, so that no address contains the code.
pub(crate) async fn create_link(
    State(app): State<App>,
    person: SignedIn,
    Path(id): Path<String>,
    form: Result<Form<ReasonForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&DISPATCHERS)?;
    let reason = given_text(tr("common.reason"), &read_form(form)?.reason)?;
    let by = ActionAuthor { actor: &person.actor(), reason: Some(&reason) };
    let id = DriverId::from(id);
    let SignInLink { url, code, expires_at } = issue_link(&app, &id, by).await.map_err(refuse_link)?;
    render(&DriverLinkPage {
        shell: Shell::for_person(&app.config, &person, "/drivers", fill!("driver_link.title", id), None),
        url,
        code,
        expires: Moment(expires_at),
        back: driver_page(&app.config.console.path, id.as_str()),
    })
}

fn refuse_link(error: ApiError) -> PageError {
    match error {
        ApiError::NoSuchDriver => PageError::NotFound(tr("driver_link.no_driver")),
        ApiError::Database(error) => error.into(),
        error => PageError::Conflict(error.to_string()),
    }
}
