//! The contact of an order, for staff who call customers.

use axum::{Json, extract::State};

use super::super::{auth::ApiCaller, body::OrderPath, error::ApiError, openapi::CallErrors};
use accounts::api_keys::AccountRole;
use app::App;
use foundation::staff_actions::ActionAuthor;
use model::details::Contact;
use orders::details;

/// Roles that may read contacts.
const READERS: [AccountRole; 2] = [AccountRole::Dispatcher, AccountRole::Support];

/// Returns the contact of an order.
///
/// The answer is an empty object if the order has no contact, or if it was erased. Each call adds the record
/// `CONTACT_VIEWED` to the audit trail.
#[utoipa::path(get, path = "/{id}/contact", tag = "orders", params(OrderPath), extensions(("x-roles" = json!(READERS))),
    responses(
        (status = 200, description = "success", body = Contact,
         example = json!({ "name": "Ana", "phone": "+628123456789", "email": "ana@example.com" })),
        CallErrors,
    ))]
pub(super) async fn show_contact(
    State(app): State<App>,
    caller: ApiCaller,
    OrderPath(id): OrderPath,
) -> Result<Json<Contact>, ApiError> {
    caller.require_role(&READERS)?;
    let actor = caller.actor();
    let by = ActionAuthor::from(&actor);
    let contact = details::reveal_contact(&app.core.db, &id, by).await?;
    contact.map(Json).ok_or(ApiError::NoSuchOrder)
}
