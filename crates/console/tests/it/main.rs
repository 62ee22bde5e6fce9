//! The tests of the console over real HTTP: who gets in, what a page costs, and what its buttons may do.
//!
//! * `stage`: a browser, an order to look at, and the lists of pages and actions. `pages`: what holds for each of them.
//! * `areas`: thresholds. `audit`: what staff did. `bindings`: bindings and their OTPs. `desk`: who is on an order. `fleet`: drivers, areas
//!   and queues. `jobs`: what lies in queues. `keys`: who may call. `orders`, `plans`, `refunds`, `users`, `maps`, `now`: pages of their own.
//! * `sign_in`: wrong keys. `oidc`: signing in at a provider. `language`, `frame`: the words and the frame of all pages.
//! * `refused_actions`: they keep their page. `stream`: pages are told of changes.
//! * `cost`: what pages cost. `page_plans`: what pages read of large tables.

// Futures of requests are nested deeper than the default allows.
#![recursion_limit = "256"]

mod areas;
mod audit;
mod bindings;
mod cost;
mod desk;
mod fleet;
mod frame;
mod jobs;
mod keys;
mod language;
mod maps;
mod now;
mod oidc;
mod orders;
mod page_plans;
mod pages;
mod plans;
mod refunds;
mod refused_actions;
mod sign_in;
mod stage;
mod stream;
mod users;

use stage::{ABOUT_ORDERS, ACTIONS, Browser, FOR_STAFF, PAGES, lay_out, place, statements_of};
