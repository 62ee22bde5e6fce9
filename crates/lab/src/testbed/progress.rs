//! Progress line on stderr with the number of settled orders. Nothing is printed if stderr is not a terminal.

use std::io::{self, IsTerminal};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::rest::OpenWork;

/// The progress line. Dropping it removes the line.
#[derive(Debug)]
pub(crate) struct OrderProgress {
    bar: ProgressBar,
}

impl OrderProgress {
    pub(crate) fn new(orders: usize, quiet: bool) -> Self {
        let visible = !quiet && io::stderr().is_terminal();
        let target = if visible { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(orders as u64), target);
        let style = ProgressStyle::with_template("{elapsed_precise} {wide_bar} {pos}/{len} settled{msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self { bar }
    }

    pub(crate) fn show_counts(&self, created: u64, unrest: OpenWork) {
        self.bar.set_position(created.saturating_sub(unrest.open.unsigned_abs()));
        self.bar.set_message(format!(", {} open, {} held", unrest.open, unrest.held));
    }
}

impl Drop for OrderProgress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
