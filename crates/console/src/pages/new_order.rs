//! Page with the form that creates an order by hand, for a booking by phone. It creates the order as the API does
//! ([`create_once`]).

use api::{
    auth::ApiCaller,
    error::ApiError,
    orders::create::{CreationRequest, create_once},
};
use askama::Template;
use axum::{
    extract::{Form, State, rejection::FormRejection},
    response::{IntoResponse, Redirect, Response},
};
use uuid::Uuid;

use super::{
    order_form::{FilledForm, FormSection, MetadataPart, ShownForm, refuse_value},
    roles::BOOKERS,
};
use crate::{
    catalogue::{fill, tr},
    form::read_form,
    language::Language,
    page::{Shell, go_back, render},
    page_error::PageError,
    refusal::{Refusal, claim_refusal},
    session::SignedIn,
    shown::sentence,
};
use app::App;
use model::{
    admission::{
        answer::{AdmissionAnswer, AreaDetails, ReplyLanguage},
        decide::AdmissionRefusal,
    },
    ids::ServiceType,
};
use orders::create::NewOrder;
use serde_json::Value;

/// Path of the page below the console's path. Not below `/orders`, where the names are ids of orders.
const PAGE: &str = "/new-order";
/// Field with the idempotency key of the form.
const FORM_KEY: &str = "form_key";
/// Rows that the button for more rows adds.
const MORE_ROWS: usize = 5;

/// Has no `Debug`, because a value may be a contact.
#[derive(Template)]
#[template(path = "new_order.html")]
struct NewOrderPage {
    shell: Shell,
    /// Title and text of the refusal.
    refused: Option<(String, String)>,
    form_key: String,
    sections: Vec<FormSection>,
    metadata: MetadataPart,
}

fn build_page(
    app: &App,
    person: &SignedIn,
    filled: &FilledForm,
    more: usize,
    refused: Option<&Refusal>,
) -> NewOrderPage {
    let service_types = app.config.service_types.keys().map(ServiceType::to_string).collect();
    let form = ShownForm { filled, refused, stored: None };
    let mut sections = vec![form.order_section(service_types)];
    sections.extend(form.contents_sections(None));
    // A key that was used with other values gives way to a new one.
    let kept = Some(filled.value(FORM_KEY)).filter(|_| refused.is_none_or(|refused| refused.field != Some(FORM_KEY)));
    let form_key = kept.and_then(|key| key.parse::<Uuid>().ok()).unwrap_or_else(Uuid::new_v4);
    NewOrderPage {
        shell: Shell::for_person(&app.config, person, "/orders", tr("order_form.new_order"), None),
        refused: form.notice(&sections),
        form_key: form_key.to_string(),
        metadata: form.metadata(more),
        sections,
    }
}

pub(crate) async fn show_page(State(app): State<App>, person: SignedIn) -> Result<Response, PageError> {
    person.require_role(&BOOKERS)?;
    let action = format!("{}{PAGE}/create", app.config.console.path);
    let refused = claim_refusal(|refused| refused.action == action);
    let filled = refused.as_ref().map(|refused| FilledForm::new(refused.values.clone())).unwrap_or_default();
    render(&build_page(&app, &person, &filled, 0, refused.as_deref()))
}

/// Redirects to the form, because the addresses that it is sent to have no pages. Browsers request them on a reload or
/// a change of language.
pub(crate) async fn to_form(State(app): State<App>) -> Redirect {
    Redirect::to(&format!("{}{PAGE}", app.config.console.path))
}

/// Shows the form with more rows for metadata. It changes nothing.
pub(crate) async fn add_rows(
    State(app): State<App>,
    person: SignedIn,
    form: Result<Form<Vec<(String, String)>>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&BOOKERS)?;
    let filled = FilledForm::new(read_form(form)?);
    render(&build_page(&app, &person, &filled, MORE_ROWS, None))
}

/// Creates the order. A form that is sent again leads to the same order.
pub(crate) async fn create_order(
    State(app): State<App>,
    person: SignedIn,
    form: Result<Form<Vec<(String, String)>>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&BOOKERS)?;
    let filled = FilledForm::new(read_form(form)?);
    let unreadable = |plain: String| PageError::Invalid(fill!("form.form_cannot_read", plain));
    let key: Uuid = filled.value(FORM_KEY).parse().map_err(|_| unreadable(FORM_KEY.to_owned()))?;
    let body = Value::Object(filled.to_body()?);
    let bytes = body.to_string();
    let new: NewOrder = serde_json::from_value(body).map_err(|error| unreadable(error.to_string()))?;
    let creation =
        CreationRequest { key: Some(&key.to_string()), new: &new, bytes: bytes.as_bytes(), language: reply_language() };
    let caller = ApiCaller::of_session(person.0.key.clone());
    let made = create_once(&app, &caller, creation).await.map_err(refuse_creation)?;
    let (_, order) = made.answer;
    let id = order["order_id"].as_str().ok_or_else(|| PageError::Broken("an order without an id".to_owned()))?;
    Ok(go_back(&app.config, &format!("/orders/{id}"), "order-created").into_response())
}

/// Returns the language of refusals by admission.
pub(crate) fn reply_language() -> ReplyLanguage {
    match Language::current() {
        Language::English => ReplyLanguage::English,
        Language::Indonesian => ReplyLanguage::Indonesian,
    }
}

/// Returns the page for a refused creation.
fn refuse_creation(error: ApiError) -> PageError {
    match error {
        ApiError::NoRoom(answer, language) => refuse_place(&answer, language),
        ApiError::LateWork => PageError::Conflict(tr("order_form.jobs_late").into()),
        ApiError::IdempotencyRunning => PageError::Conflict(tr("order_form.still_running").into()),
        ApiError::IdempotencyMismatch => PageError::InvalidField(FORM_KEY, tr("order_form.sent_before").into()),
        ApiError::Database(error) => error.into(),
        error => match error.broken_member() {
            Some(member) => refuse_value(&member, &error.to_string()),
            None => PageError::Unavailable(error.to_string()),
        },
    }
}

/// Returns the page for a refusal by admission.
pub(super) fn refuse_place(answer: &AdmissionAnswer, language: ReplyLanguage) -> PageError {
    let message = sentence(&answer.message_in(language));
    match answer {
        AdmissionAnswer::Refused(refusal, area) => PageError::Conflict(describe_area(message, *refusal, area)),
        AdmissionAnswer::NoArea => PageError::InvalidField("pickup", message),
        _ => PageError::Unavailable(message),
    }
}

/// Returns the message with the load of the area, or the reason of its closure, and with nearby areas that have room.
fn describe_area(message: String, refusal: AdmissionRefusal, told: &AreaDetails) -> String {
    let AreaDetails { area_id: area, waiting, threshold, .. } = told;
    let cause = match (refusal, &told.reason) {
        (AdmissionRefusal::Full, _) => Some(fill!("order_form.area_load", area, waiting, threshold)),
        (_, Some(reason)) => Some(fill!("order_form.area_closed", area, reason)),
        (_, None) => None,
    };
    let nearby: Vec<String> = told.nearby.iter().map(|area| format!("{} ({})", area.name, area.area_id)).collect();
    let nearby = (!nearby.is_empty()).then(|| fill!("order_form.areas_with_room", areas = nearby.join(", ")));
    [Some(message), cause, nearby].into_iter().flatten().collect::<Vec<_>>().join(" ")
}
