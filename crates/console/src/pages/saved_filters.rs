//! Saved filters of the list of orders: links, and forms that save and delete them. They belong to the person.

use std::collections::BTreeMap;

use accounts::{
    api_keys::AccountRole,
    saved_filters::{self, LONGEST_NAME, MOST, SaveFilterError, SavedFilter},
};
use app::App;
use axum::{
    extract::{Form, State, rejection::FormRejection},
    response::{IntoResponse, Response},
};
use foundation::db::Pool;
use serde::Deserialize;

use super::{
    order_filter::{FIELDS, OrderListQuery},
    roles::STAFF,
};
use crate::{
    catalogue::{fill, tr},
    form::{given_text, read_form, write_query},
    page::go_back,
    page_error::PageError,
    session::SignedIn,
    table::{Action, Field},
};

/// The saved filters of a person on the page of orders.
pub(super) struct SavedFilters {
    pub(super) links: Vec<SavedLink>,
    /// Form that saves the filter of the page; `None` without a filter, or if the person may not save one.
    pub(super) save: Option<Action>,
    pub(super) delete: Option<Action>,
}

pub(super) struct SavedLink {
    pub(super) name: String,
    /// Query of the list.
    pub(super) query: String,
    /// Whether the page shows this filter.
    pub(super) is_here: bool,
}

/// Returns the filters of a person. `shown` is the filter of the page.
pub(super) async fn list_saved(
    db: &Pool,
    person: &SignedIn,
    shown: &BTreeMap<String, String>,
) -> Result<SavedFilters, PageError> {
    let saved = saved_filters::list_filters(db, &person.0.key.name).await?;
    // A viewer only reads.
    let may_save = person.role() != AccountRole::Viewer;
    Ok(SavedFilters {
        save: (may_save && !shown.is_empty()).then(|| form_to_save(shown)),
        delete: (may_save && !saved.is_empty()).then(|| form_to_delete(&saved)),
        links: saved.into_iter().map(|saved| link_to(saved, shown)).collect(),
    })
}

fn link_to(saved: SavedFilter, shown: &BTreeMap<String, String>) -> SavedLink {
    SavedLink { query: query_of(&saved.filter), is_here: *saved.filter == *shown, name: saved.name }
}

fn query_of(filter: &BTreeMap<String, String>) -> String {
    let pairs = FIELDS.map(|field| (field, filter.get(field).map(String::as_str).unwrap_or_default()));
    write_query(&pairs)
}

fn form_to_save(shown: &BTreeMap<String, String>) -> Action {
    let hidden = FIELDS.into_iter().filter_map(|field| Some(Field::hidden(field, shown.get(field)?)));
    let mut fields: Vec<Field> = hidden.collect();
    fields.push(Field::required("name", tr("orders.filter_name")));
    Action::new(tr("orders.save_filter"), "/orders/filters/save".to_owned(), fields)
}

fn form_to_delete(saved: &[SavedFilter]) -> Action {
    let names: Vec<(&str, &str)> = saved.iter().map(|saved| (saved.name.as_str(), saved.name.as_str())).collect();
    let field = Field::choice("filter", tr("orders.filter"), "", &names);
    Action::new(tr("orders.delete_filter"), "/orders/filters/delete".to_owned(), vec![field])
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SaveForm {
    name: String,
    #[serde(flatten)]
    filter: OrderListQuery,
}

/// Saves the filter of the page under a name. A filter with the same name is replaced.
pub(crate) async fn save_filter(
    State(app): State<App>,
    person: SignedIn,
    form: Result<Form<SaveForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&STAFF)?;
    let SaveForm { name, filter } = read_form(form)?;
    let name = given_text(tr("orders.filter_name"), &name)?;
    if name.chars().count() > LONGEST_NAME {
        return Err(PageError::Invalid(fill!("orders.filter_name_too_long", most = LONGEST_NAME)));
    }
    filter.to_search()?;
    let values = filter.to_values();
    if values.is_empty() {
        return Err(PageError::Invalid(tr("orders.filter_empty").into()));
    }
    saved_filters::save_filter(&app.core.db, &person.0.key.name, &name, &values).await.map_err(refuse_save)?;
    Ok(go_back(&app.config, &format!("/orders{}", query_of(&values)), "filter-saved").into_response())
}

fn refuse_save(error: SaveFilterError) -> PageError {
    match error {
        SaveFilterError::Full => PageError::Conflict(fill!("orders.too_many_filters", most = MOST)),
        SaveFilterError::Database(error) => error.into(),
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DeleteForm {
    filter: String,
}

/// Deletes a filter of the person.
pub(crate) async fn delete_filter(
    State(app): State<App>,
    person: SignedIn,
    form: Result<Form<DeleteForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&STAFF)?;
    let DeleteForm { filter } = read_form(form)?;
    saved_filters::delete_filter(&app.core.db, &person.0.key.name, &filter).await?;
    Ok(go_back(&app.config, "/orders", "filter-deleted").into_response())
}
