//! Tests of the console over real HTTP: access, the cost of pages, and the effects of buttons.
//!
//! * `stage`: a browser, an example order, and the lists of pages and actions. `pages`: checks of each of them.
//! * `alerts`: causes and acknowledgements. `areas`: thresholds. `audit`: staff actions. `bindings`: bindings and their OTPs. `desk`: desk claims. `fleet`:
//!   drivers, areas and queues. `jobs`: contents of queues. `keys`: API keys. `new_order`, `change_order`: orders created and
//!   changed by hand. `orders`, `plans`, `refunds`, `users`,
//!   `maps`, `now`, `saved_filters`, `search`: the pages of these names.
//! * `scope`: pages of a person who may read only some orders. `sign_in`: wrong keys. `oidc`: sign-in at a provider.
//!   `language`, `frame`: the texts and the frame of all pages.
//! * `driver_page`: the page for drivers. `push`: push messages to their browsers. `tracking`: the page for customers.
//!   `docs_page`: the reference of the API. `webhooks`: webhook endpoints of producers. `workers`: drains of workers.
//! * `refused_actions`: a refused action keeps its page. `stream`: change notifications for pages.
//! * `cost`: the cost of pages. `page_plans`: rows that pages read from large tables.

// Request futures are nested deeper than the default allows.
#![recursion_limit = "256"]

mod alerts;
mod areas;
mod audit;
mod bindings;
mod change_order;
mod cost;
mod desk;
mod docs_page;
mod driver_page;
mod fleet;
mod frame;
mod jobs;
mod keys;
mod language;
mod maps;
mod new_order;
mod now;
mod oidc;
mod orders;
mod page_plans;
mod pages;
mod plans;
mod push;
mod refunds;
mod refused_actions;
mod saved_filters;
mod scope;
mod search;
mod sign_in;
mod stage;
mod stream;
mod tracking;
mod users;
mod webhooks;
mod workers;

use stage::{ABOUT_ORDERS, ACTIONS, Browser, FOR_STAFF, PAGES, lay_out, place, statements_of};
