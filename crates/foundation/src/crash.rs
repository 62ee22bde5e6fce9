//! Points at which a test makes this process crash, as if its machine had lost power.
//!
//! `CRASH_AT=book.send` aborts the process before it books for the first time, `CRASH_AT=book.send:3` before the third
//! time. This works only in debug builds, which the tests run. A cargo feature would compile everything twice. Release
//! builds contain no crash points.

/// Aborts the process if `CRASH_AT` names this point: stage `stage` of `what`.
#[cfg(debug_assertions)]
pub fn reach_point(what: &str, stage: &str) {
    use std::sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering},
    };

    /// The point and its occurrence, counted from 1.
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
