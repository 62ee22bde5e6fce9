//! Points at which a test has this process die, as if its machine had lost power.
//!
//! `CRASH_AT=book.send` ends the process where it is about to book for the first time, `CRASH_AT=book.send:3` the third
//! time. In debug builds only, which is what tests run: a cargo feature would have everything built twice. In release
//! builds a point is nothing at all.

/// Stage `stage` of doing `what` is reached.
#[cfg(debug_assertions)]
pub fn reach_point(what: &str, stage: &str) {
    use std::sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering},
    };

    /// The point, and which time.
    static AT: LazyLock<Option<(String, u32)>> = LazyLock::new(|| {
        let at = std::env::var("CRASH_AT").ok()?;
        Some(match at.split_once(':') {
            Some((point, time)) => (point.to_owned(), time.parse().expect("CRASH_AT=point:number")),
            None => (at, 1),
        })
    });
    static SEEN: AtomicU32 = AtomicU32::new(0);

    let Some((point, time)) = AT.as_ref() else { return };
    if point.split_once('.') == Some((what, stage)) && SEEN.fetch_add(1, Ordering::SeqCst) + 1 == *time {
        eprintln!("CRASH_AT={point}:{time}: the process ends here.");
        std::process::abort();
    }
}

#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn reach_point(_what: &str, _stage: &str) {}
