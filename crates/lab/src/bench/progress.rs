//! One line on stderr that says what is being measured. Nothing where stderr is no terminal.

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

#[derive(Debug)]
pub(super) struct StepProgress {
    bar: ProgressBar,
}

impl StepProgress {
    pub(super) fn new(steps: usize, quiet: bool) -> Self {
        let visible = !quiet && io::stderr().is_terminal();
        let target = if visible { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(steps as u64), target);
        let style = ProgressStyle::with_template("{elapsed_precise} {bar:20} {pos}/{len} {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(Duration::from_millis(250));
        Self { bar }
    }

    /// Shows what is being measured, for as long as `measuring` takes.
    pub(super) async fn run_step<T>(&self, what: impl Into<String>, measuring: impl Future<Output = T>) -> T {
        self.bar.set_message(what.into());
        let measured = measuring.await;
        self.bar.inc(1);
        measured
    }
}

impl Drop for StepProgress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
