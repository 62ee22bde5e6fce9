//! Refused requests: the page that sent the form is shown again, with the reason at the form and the values that were
//! filled in.
//!
//! The [guard](crate::guard) requests this page from the routes of the console and keeps the status of the refusal. The
//! templates read the refusal from a task-local variable. A form takes the refusal with [`claim_refusal`]. If the page
//! no longer has the form, the reason and the values are at the top of the page.

use std::sync::Arc;

use axum::http::Uri;
use parking_lot::Mutex;

use crate::catalogue::Words;

tokio::task_local! {
    /// The refusal that the current page shows.
    static REFUSAL: Arc<Refusal>;
}

/// Place on a page that shows a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RefusalPlace {
    /// Not shown yet.
    Open,
    AtForm,
    OnTop,
}

/// A refused request. Has no `Debug`, because values may be secrets.
pub(crate) struct Refusal {
    /// The path that the form was sent to.
    pub(crate) action: String,
    /// Names and values of the form.
    pub(crate) values: Vec<(String, String)>,
    pub(crate) title: Words,
    pub(crate) text: String,
    /// Field with the invalid value, if one is known.
    pub(crate) field: Option<&'static str>,
    /// The address of the page that is shown again.
    pub(crate) page: String,
    place: Mutex<RefusalPlace>,
}

impl Refusal {
    pub(crate) fn new(action: &str, values: Vec<(String, String)>, (title, text): (Words, String), page: &str) -> Self {
        let place = Mutex::new(RefusalPlace::Open);
        Self { action: action.to_owned(), values, title, text, field: None, page: page.to_owned(), place }
    }

    /// Sets the field that has the invalid value.
    pub(crate) fn about(self, field: Option<&'static str>) -> Self {
        Self { field, ..self }
    }

    /// Returns whether the page has shown the refusal.
    pub(crate) fn is_shown(&self) -> bool {
        self.read_place() != RefusalPlace::Open
    }

    /// Returns the value that was filled in for a field.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.values.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// Returns the values that a person filled in, without those that the page added.
    pub(crate) fn filled_in(&self) -> impl Iterator<Item = &(String, String)> {
        self.values.iter().filter(|(name, value)| {
            !value.is_empty() && !matches!(name.as_str(), "back" | "version" | "form_key" | "sure")
        })
    }

    fn read_place(&self) -> RefusalPlace {
        *self.place.lock()
    }

    fn set_place(&self, place: RefusalPlace) {
        *self.place.lock() = place;
    }
}

/// Renders a page that shows this refusal.
pub(crate) async fn show_refusal<F: Future>(refusal: Arc<Refusal>, page: F) -> F::Output {
    REFUSAL.scope(refusal, page).await
}

fn current() -> Option<Arc<Refusal>> {
    REFUSAL.try_with(Arc::clone).ok()
}

/// Returns the refusal to the first form that it belongs to.
pub(crate) fn claim_refusal(is_form: impl FnOnce(&Refusal) -> bool) -> Option<Arc<Refusal>> {
    let refusal = current()?;
    if refusal.read_place() != RefusalPlace::Open || !is_form(&refusal) {
        return None;
    }
    refusal.set_place(RefusalPlace::AtForm);
    Some(refusal)
}

/// Returns the refusal if it belongs to the top of the page.
pub(crate) fn refusal_on_top() -> Option<Arc<Refusal>> {
    current().filter(|refusal| refusal.read_place() == RefusalPlace::OnTop)
}

/// Returns the address of the page that is shown again. `None`: nothing was refused.
pub(crate) fn page_shown_again() -> Option<String> {
    current().map(|refusal| refusal.page.clone())
}

/// Moves a refusal that no form has taken to the top of the page. Returns whether the page must be rendered again.
pub(crate) fn move_to_top() -> bool {
    match current() {
        Some(refusal) if !refusal.is_shown() => {
            refusal.set_place(RefusalPlace::OnTop);
            true
        }
        _ => false,
    }
}

/// Returns the value that was filled in for a filter of the page at this path, if the filter was refused.
pub(crate) fn refused_filter(path: &str, name: &str) -> Option<String> {
    let refusal = current().filter(|refusal| refusal.action == path)?;
    refusal.value(name).map(str::to_owned)
}

/// Returns the addresses of pages that may show a refusal, best first. The first is the page that sent the form, as the
/// browser reports it. The pages above the form's own address follow. `base` is the console's path.
pub(crate) fn list_pages(base: &str, referer: Option<&Uri>, action: &str) -> Vec<String> {
    let sender = referer.and_then(Uri::path_and_query).map(|sender| without_deed(sender.as_str()));
    let is_inner =
        |page: &String| page.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']));
    let mut pages: Vec<String> = sender.filter(is_inner).into_iter().collect();
    let mut above = action;
    while let Some((parent, _)) = above.rsplit_once('/').filter(|(parent, _)| parent.len() >= base.len()) {
        pages.push(parent.to_owned());
        above = parent;
    }
    pages
}

/// Removes the part of the address that reports the previous action.
fn without_deed(address: &str) -> String {
    let Some((path, query)) = address.split_once('?') else { return address.to_owned() };
    let kept: Vec<&str> = query.split('&').filter(|pair| !pair.starts_with("did=")).collect();
    if kept.is_empty() { path.to_owned() } else { format!("{path}?{}", kept.join("&")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::tr;

    // Rule U1: A refused action leads back to the page that sent the form, or else to a parent path of the action.
    #[test]
    fn refusal_leads_to_the_page_of_its_form() {
        let pages = |referer: &str, action: &str| {
            let referer = referer.parse::<Uri>().ok();
            list_pages("/console", referer.as_ref(), action).join(" ")
        };
        let action = "/console/orders/ORD-1/assign";
        let above = "/console/orders/ORD-1 /console/orders /console";
        assert_eq!(
            pages("http://h/console/desk?order=ORD-1&did=take", action),
            format!("/console/desk?order=ORD-1 {above}")
        );
        assert_eq!(pages("http://h/console?did=hold", action), format!("/console {above}"));
        for elsewhere in ["http://h/consolex", "http://h/", "nonsense nonsense"] {
            assert_eq!(pages(elsewhere, action), above, "{elsewhere}");
        }
    }

    // Rule U1: The first form that fits shows a refusal; without such a form the top of the page shows it.
    #[tokio::test]
    async fn one_form_or_the_top_shows_a_refusal() {
        let values = vec![("reason".to_owned(), "a test".to_owned()), ("back".to_owned(), "/desk".to_owned())];
        let refusal = || {
            let said = (tr("problem.action_refused"), "Why.".to_owned());
            Arc::new(Refusal::new("/console/orders/ORD-1/hold", values.clone(), said, "/console/desk"))
        };
        let of_form = |refused: &Refusal| refused.action.ends_with("/hold");
        let at_form = show_refusal(refusal(), async {
            let first = claim_refusal(of_form).and_then(|refused| refused.value("reason").map(str::to_owned));
            (first, claim_refusal(of_form).is_some(), move_to_top(), refusal_on_top().is_some())
        });
        assert_eq!(at_form.await, (Some("a test".to_owned()), false, false, false));
        let on_top = show_refusal(refusal(), async {
            let missing = claim_refusal(|refused| refused.action.ends_with("/cancel")).is_none();
            let again = move_to_top();
            let values = refusal_on_top().map(|refused| refused.filled_in().count());
            (missing, again, values, claim_refusal(of_form).is_some())
        });
        assert_eq!(on_top.await, (true, true, Some(1), false));
        assert!(claim_refusal(of_form).is_none(), "nothing was refused");
    }
}
