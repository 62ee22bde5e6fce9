//! Log lines of the test's process.

use std::{io, sync::Arc};

use parking_lot::Mutex;
use tracing_subscriber::fmt::MakeWriter;

/// Captured log output. Each test runs in its own process, so no other test writes to it.
#[derive(Debug, Clone, Default)]
pub struct LogLines(Arc<Mutex<Vec<u8>>>);

impl LogLines {
    /// Returns the lines that contain this text.
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
