//! Fields for the scope of a key or a user.

use serde::Deserialize;

use crate::{
    catalogue::tr,
    page_error::PageError,
    shown::{role_word, sentence},
    table::Field,
};
use accounts::api_keys::AccountRole;
use api::admin::scopes::find_scope_problem;
use app::App;
use model::scope::Scope;

/// Lists of a scope, each with commas between its entries. An empty list means all.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ScopeForm {
    scope_areas: String,
    scope_service_types: String,
    scope_partners: String,
    scope_producers: String,
}

impl ScopeForm {
    /// Returns the scope; `None` if each list is empty. Refuses names that do not exist.
    pub(super) async fn check(&self, app: &App) -> Result<Option<Scope>, PageError> {
        let scope = Scope {
            areas: split(&self.scope_areas),
            service_types: split(&self.scope_service_types),
            partners: split(&self.scope_partners),
            producers: split(&self.scope_producers),
        };
        match find_scope_problem(app, &scope).await? {
            Some((_, problem)) => Err(PageError::Invalid(sentence(&problem))),
            None => Ok(Some(scope).filter(|scope| !scope.is_unlimited())),
        }
    }
}

fn split<T: for<'a> From<&'a str>>(text: &str) -> Option<Vec<T>> {
    let entries: Vec<T> = text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).map(T::from).collect();
    Some(entries).filter(|entries| !entries.is_empty())
}

/// Returns the fields, filled with a scope.
pub(super) fn scope_fields(scope: Option<&Scope>) -> Vec<Field> {
    let all = Scope::default();
    let Scope { areas, service_types, partners, producers } = scope.unwrap_or(&all);
    vec![
        Field::text("scope_areas", tr("scope.areas"), &join(areas.as_deref())),
        Field::text("scope_service_types", tr("scope.service_types"), &join(service_types.as_deref())),
        Field::text("scope_partners", tr("scope.partners"), &join(partners.as_deref())),
        Field::text("scope_producers", tr("scope.producers"), &join(producers.as_deref())),
    ]
}

fn join<T: AsRef<str>>(list: Option<&[T]>) -> String {
    list.unwrap_or_default().iter().map(AsRef::as_ref).collect::<Vec<&str>>().join(", ")
}

/// Returns a role, with its scope in parentheses.
pub(super) fn describe_role(role: AccountRole, scope: Option<&Scope>) -> String {
    let Some(Scope { areas, service_types, partners, producers }) = scope else { return role_word(role).to_owned() };
    let lists =
        [join(areas.as_deref()), join(service_types.as_deref()), join(partners.as_deref()), join(producers.as_deref())];
    let lists: Vec<String> = lists.into_iter().filter(|list| !list.is_empty()).collect();
    format!("{} ({})", role_word(role), lists.join("; "))
}
