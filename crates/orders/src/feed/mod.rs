//! The steps of orders, as producers read them: what `GET /api/v1/events` answers with.
//! Design: docs/design/events-feed.md.
//!
//! Rows are written in the transaction of their step: those of changes by [`store`](crate::store), those of creations by
//! a trigger.
//!
//! * `read`: pages of steps, and the cursor between them. `board`: requests that wait for the next step.

mod board;
mod read;

pub use board::FeedBoard;
pub use read::{FeedCursor, FeedPage, FeedScope, InvalidFeedCursor, StepData, StepEvent};
pub use read::{erase_driver_in_page, load_creation};
