//! Push messages: the service worker, and the registration of browsers.

use app::App;
use axum::{
    extract::{Form, State, rejection::FormRejection},
    http::{HeaderName, StatusCode, header::CONTENT_TYPE},
};
use notify::channels::push::subscriptions::{PushSubscription, save_subscription};
use serde::Deserialize;

use super::session::SignedInDriver;
use crate::{assets, catalogue::tr, form::read_form, page_error::PageError};

/// Serves the service worker. Its address has no hash, because browsers look for a new version at the same address.
pub(super) async fn serve_worker() -> ([(HeaderName, &'static str); 1], &'static str) {
    ([(CONTENT_TYPE, "text/javascript; charset=utf-8")], assets::SERVICE_WORKER)
}

/// Has no `Debug`, because the holder of the address can send messages.
#[derive(Deserialize)]
pub(super) struct SubscriptionForm {
    endpoint: String,
    p256dh: String,
    auth: String,
}

/// Registers the browser of the session.
pub(super) async fn register_browser(
    State(app): State<App>,
    driver: SignedInDriver,
    form: Result<Form<SubscriptionForm>, FormRejection>,
) -> Result<StatusCode, PageError> {
    let SubscriptionForm { endpoint, p256dh, auth } = read_form(form)?;
    if app.notify.channels.push_channel().is_none() {
        return Err(PageError::NotFound(tr("driver_page.push_is_off")));
    }
    let allow_private = app.config.push.allow_private;
    let Some(browser) = PushSubscription::parse(&endpoint, &p256dh, &auth, allow_private) else {
        return Err(PageError::Invalid(tr("driver_page.push_refused").into()));
    };
    save_subscription(&app.core.db, driver.1, &browser).await?;
    Ok(StatusCode::NO_CONTENT)
}
