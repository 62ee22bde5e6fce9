//! The console in a real browser: user actions, and checks for every page.
//!
//! * `chromium`: the browser, controlled over two pipes. `person`: user actions and waits.
//! * `checks`: faults that no page may have: console errors, axe findings, lines wider than 390 px.
//! * `board`: apalis-board, as `dispatchq dev` serves it.
//! * `stage`: a console with data on each page, and a signed-in person.
//! * `sign_in`, `orders`, `order_form`, `fleet`, `keys`: sign-in, and actions of dispatchers, support, operators and
//!   admins.
//! * `plans`: a plan that outlives the processes which execute it.
//! * `proof`: a violation of the history, opened from the header.
//! * `pages`: every page, empty and with data. `views`: layout and colours at 1280, 1440 and 390 px, light and dark, also
//!   after refused actions.
//! * `refusals`: requests refused to a viewer and to another site. `outage`: a page recovers when `serve` restarts.
//! * `driver_page`: the page for drivers, on phones. `tracking`: the page for customers, on phones.
//! * `docs_page`: the reference of the API. `webhooks`: the secret of a new webhook endpoint. `workers`: the drain of a worker.
//! * `row_keys`: keys that select, open and act on rows.
//! * `screenshots`: pictures for docs/CONSOLE.md, taken on request.

mod board;
mod checks;
mod chromium;
mod docs_page;
mod driver_page;
mod fleet;
mod keys;
mod order_form;
mod orders;
mod outage;
mod pages;
mod person;
mod plans;
mod proof;
mod refusals;
mod row_keys;
mod screenshots;
mod sign_in;
mod stage;
mod tracking;
mod views;
mod webhooks;
mod workers;
