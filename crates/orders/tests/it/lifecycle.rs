//! What happens to an order, from its creation to its end.

mod dispatch;
mod ending;
mod exhausted;
