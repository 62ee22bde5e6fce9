//! Page with the form that changes the contents of an order until the pickup, as `PATCH /api/v1/orders/{id}` does. The
//! form has the version of the contents that it was loaded with.

use askama::Template;
use axum::{
    extract::{Form, Path, State, rejection::FormRejection},
    response::{IntoResponse, Redirect, Response},
};
use jobs::OrderId;

use super::{
    new_order::{refuse_place, reply_language},
    order_form::{FilledForm, FormSection, MetadataPart, ShownForm, refuse_value},
    roles::BOOKERS,
    rows::parse_order,
};
use crate::{
    catalogue::{fill, tr},
    form::{encode_component, read_form},
    page::{Shell, go_back, render},
    page_error::PageError,
    reasons::describe_refusal,
    refusal::claim_refusal,
    session::SignedIn,
    shown::{describe_time, sentence},
};
use app::App;
use model::{
    decide::contents::check_changeable,
    order::EventReason,
    order_patch::{OrderContents, OrderPatch},
};
use orders::{
    contents::{self, ContentsEdit, EditError},
    details::{StoredContents, load_contents},
    order_store::load,
    query,
};

/// Field with the version of the contents that the form was loaded with.
const VERSION: &str = "version";
/// Rows that the button for more rows adds.
const MORE_ROWS: usize = 5;

/// Has no `Debug`, because a value may be a contact.
#[derive(Template)]
#[template(path = "change_order.html")]
struct ChangeOrderPage {
    shell: Shell,
    id: String,
    version: i64,
    /// Title and text of the refusal.
    refused: Option<(String, String)>,
    sections: Vec<FormSection>,
    metadata: MetadataPart,
}

/// Returns the page of the form, below the console's path.
pub(super) fn contents_path(id: &OrderId) -> String {
    format!("/orders/{id}/contents")
}

/// An order that can still be changed.
struct ChangeableOrder {
    stored: StoredContents,
    /// Form with the stored values.
    shown: FilledForm,
}

async fn load_changeable(app: &App, id: &OrderId) -> Result<ChangeableOrder, PageError> {
    let snapshot = load::load_order(&app.core.db, id).await?.ok_or(PageError::NotFound(tr("problem.no_order_id")))?;
    check_changeable(&snapshot.order).map_err(|refusal| PageError::Conflict(describe_refusal(&refusal)))?;
    let stored = load_contents(&app.core.db, &snapshot.order).await?;
    let shown = FilledForm::of_contents(&stored.contents).with_pickup_time(&snapshot.order);
    Ok(ChangeableOrder { stored, shown })
}

/// Returns the page. `stored` are the values of another person, if the form was loaded before they were stored.
fn build_page(
    (app, person): (&App, &SignedIn),
    id: &OrderId,
    version: i64,
    form: ShownForm<'_>,
    more: usize,
) -> ChangeOrderPage {
    let mut sections = Vec::from_iter(form.move_section());
    sections.extend(form.contents_sections(Some(tr("order_form.contact_is_hidden"))));
    ChangeOrderPage {
        shell: Shell::for_person(&app.config, person, "/orders", fill!("order_form.change_title", id), None),
        id: id.to_string(),
        version,
        refused: form.notice(&sections),
        metadata: form.metadata(more),
        sections,
    }
}

pub(crate) async fn show_page(
    State(app): State<App>,
    person: SignedIn,
    path: Path<String>,
) -> Result<Response, PageError> {
    person.require_role(&BOOKERS)?;
    let app = person.showing(app);
    let id = parse_order(path)?;
    let ChangeableOrder { stored: StoredContents { version, .. }, shown } = load_changeable(&app, &id).await?;
    let action = format!("{}{}/change", app.config.console.path, contents_path(&id));
    let refused = claim_refusal(|refused| refused.action == action);
    let filled = refused.as_ref().map_or_else(|| shown.clone(), |refused| FilledForm::new(refused.values.clone()));
    // The form is sent again with the version that the person sees now.
    let is_outdated = refused.is_some() && filled.value(VERSION) != version.to_string();
    let form = ShownForm { filled: &filled, refused: refused.as_deref(), stored: Some(&shown).filter(|_| is_outdated) };
    render(&build_page((&app, &person), &id, version, form, 0))
}

/// Redirects to the form, because the addresses that it is sent to have no pages.
pub(crate) async fn to_form(State(app): State<App>, Path(id): Path<String>) -> Redirect {
    Redirect::to(&format!("{}/orders/{}/contents", app.config.console.path, encode_component(&id)))
}

fn read_version(filled: &FilledForm) -> Result<i64, PageError> {
    let unreadable = || PageError::Invalid(fill!("form.form_cannot_read", plain = VERSION));
    filled.value(VERSION).parse().map_err(|_| unreadable())
}

/// Shows the form with more rows for metadata. It changes nothing.
pub(crate) async fn add_rows(
    State(app): State<App>,
    person: SignedIn,
    path: Path<String>,
    form: Result<Form<Vec<(String, String)>>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&BOOKERS)?;
    let id = parse_order(path)?;
    let filled = FilledForm::new(read_form(form)?);
    let version = read_version(&filled)?;
    load_changeable(&app, &id).await?;
    let form = ShownForm { filled: &filled, refused: None, stored: None };
    render(&build_page((&app, &person), &id, version, form, MORE_ROWS))
}

/// Changes the contents, unless another person changed them after the form was loaded.
pub(crate) async fn change_order(
    State(app): State<App>,
    person: SignedIn,
    path: Path<String>,
    form: Result<Form<Vec<(String, String)>>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&BOOKERS)?;
    let id = parse_order(path)?;
    let filled = FilledForm::new(read_form(form)?);
    let version = read_version(&filled)?;
    let ChangeableOrder { stored, shown } = load_changeable(&app, &id).await?;
    let patch = read_patch(&filled, &stored.contents, &shown)?;
    let edit = ContentsEdit { patch: &patch, expected: Some(version), actor: &person.actor() };
    let edited = match contents::edit_contents(&app.orders, &id, edit, |_| true).await {
        Ok(edited) => edited,
        Err(EditError::Invalid(broken)) => return Err(refuse_value(broken.field, &broken.message)),
        Err(EditError::VersionChanged(_)) => return Err(PageError::Conflict(describe_conflict(&app, &id).await?)),
        Err(EditError::NoRoom(answer)) => return Err(refuse_place(&answer, reply_language())),
        Err(EditError::Change(error)) => return Err(error.into()),
    };
    let deed = if edited.stored.version == version { "order-unchanged" } else { "order-changed" };
    Ok(go_back(&app.config, &format!("/orders/{id}"), deed).into_response())
}

fn read_patch(filled: &FilledForm, before: &OrderContents, shown: &FilledForm) -> Result<OrderPatch, PageError> {
    let patch = filled.to_patch(before, shown)?;
    serde_json::from_value(patch).map_err(|error| PageError::Invalid(sentence(&error.to_string())))
}

/// Tells who changed what after the form was loaded.
async fn describe_conflict(app: &App, id: &OrderId) -> Result<String, PageError> {
    let events = query::load_timeline(&app.core.db, id).await?;
    let changed = events.into_iter().rev().find(|event| event.reason == EventReason::ContentsChanged.as_str());
    Ok(match changed {
        Some(event) => fill!(
            "order_form.changed_meantime",
            person = event.actor,
            fields = event.detail.unwrap_or_default(),
            at = describe_time(event.at)
        ),
        None => tr("areas.another_person_changed_meantime").into(),
    })
}
