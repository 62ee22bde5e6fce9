//! What this test's process logs.

use std::{io, sync::Arc};

use parking_lot::Mutex;
use tracing_subscriber::fmt::MakeWriter;

/// What was logged. Each test runs in a process of its own, so it is the only one that writes here.
#[derive(Debug, Clone, Default)]
pub struct LogLines(Arc<Mutex<Vec<u8>>>);

impl LogLines {
    /// Lines with this text in them.
    pub fn with(&self, text: &str) -> Vec<String> {
        let all = String::from_utf8(self.0.lock().clone()).unwrap();
        all.lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
    }
}

impl io::Write for LogLines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogLines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
