//! Steps of orders for producers: the response of `GET /api/v1/events`. Design: docs/design/events-feed.md.
//!
//! The statement that changes or creates an order writes the rows of its steps.
//!
//! * `read`: pages of steps, and the cursor between them. `board`: requests that wait for the next step.
//! * [`replay`]: steps that are sent to a webhook endpoint again.

mod board;
mod read;
pub mod replay;

pub use board::{FeedBoard, wait_for_steps};
pub use read::{FeedCursor, FeedPage, FeedScope, InvalidFeedCursor, StepData, StepEvent};
pub use read::{erase_driver_in_page, load_creation};
