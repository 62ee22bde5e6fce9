//! `dispatchq bench console`: what pages of the console take beside very many orders and fifty people who look, and whether those who
//! look make dispatch late.
//!
//! `serve` and `work` are processes of this very binary with the configuration as shipped, on servers of their own. Pages are asked for
//! as browsers ask: with a session, on connections that stay open, beside streams of changes.
//!
//! * [`options`]: the command line. `fill`, `history`: the rows that pages show. `load`, `trips`: orders that are dispatched meanwhile, and their drivers.
//! * `browser`: one person's. `markup`: what it reads off a page. `viewers`: those who look. `pages`: what is visited. `visits`: how
//!   long each takes, and what it asks Postgres.
//! * `run`: the measurement, from first to last. `report`: goals, table, JSON.

mod browser;
mod fill;
mod history;
mod load;
mod markup;
pub mod options;
mod pages;
mod report;
mod run;
mod trips;
mod viewers;
mod visits;

pub use options::ConsoleOptions;
pub use run::run;
