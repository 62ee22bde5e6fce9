//! Steps of orders for producers: the response of `GET /api/v1/events`. Design: docs/design/events-feed.md.
//!
//! Rows are written in the transaction of their step: by [`store`](crate::store) for changes, by a trigger for
//! creations.
//!
//! * `read`: pages of steps, and the cursor between them. `board`: requests that wait for the next step.

mod board;
mod read;

pub use board::{FeedBoard, wait_for_steps};
pub use read::{FeedCursor, FeedPage, FeedScope, InvalidFeedCursor, StepData, StepEvent};
pub use read::{erase_driver_in_page, load_creation};
