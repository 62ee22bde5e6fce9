//! An order from its creation to its end.

mod dispatch;
mod ending;
mod exhausted;
