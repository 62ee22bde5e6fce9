//! Who takes part: drivers, the company's users, and the keys programs authenticate with.

pub mod api_keys;
pub mod drivers;
pub mod key_admin;
pub mod key_use;
pub mod known_keys;
pub mod offer_board;
pub mod users;

pub use model::actor;
