//! The console in a real browser: what people do, and what must hold on every page.
//!
//! * `chromium`: the browser, spoken to over two pipes. `person`: what a person does in it, and waits to see.
//! * `checks`: what no page may have: console errors, findings of axe, a line too wide for 390 px.
//! * `stage`: a console with something on each of its pages, and who signs in.
//! * `sign_in`, `orders`, `fleet`, `keys`: who gets in, and what dispatchers, support, operators and admins do.
//! * `plans`: a mass action that outlives the processes which carry it out.
//! * `pages`: every page, with nothing in it and with something, light, dark and on a phone.
//! * `refusals`: what a viewer and another site may not. `outage`: a page lives on when `serve` comes back.
//! * `screenshots`: pictures for docs/CONSOLE.md, when asked for.

mod checks;
mod chromium;
mod fleet;
mod keys;
mod orders;
mod outage;
mod pages;
mod person;
mod plans;
mod refusals;
mod screenshots;
mod sign_in;
mod stage;
