//! The `traceparent` header, which names the span that a request belongs to. Source: W3C Trace Context, level 1.

use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

pub const TRACEPARENT: &str = "traceparent";
/// `00-{32 hex}-{16 hex}-{2 hex}`.
const VERSION_0_BYTES: usize = 55;

/// Parses the header. Returns `None` if it is not valid and should be ignored. Later versions may append fields after
/// another `-`.
pub(super) fn parse_traceparent(text: &str) -> Option<SpanContext> {
    let mut parts = text.splitn(5, '-');
    let version = lower_hex(parts.next()?, 2).filter(|version| *version != "ff")?;
    let trace_id = TraceId::from_hex(lower_hex(parts.next()?, 32)?).ok()?;
    let span_id = SpanId::from_hex(lower_hex(parts.next()?, 16)?).ok()?;
    let flags = u8::from_str_radix(lower_hex(parts.next()?, 2)?, 16).ok()?;
    if version == "00" && text.len() != VERSION_0_BYTES {
        return None;
    }
    // Only the sampling flag is known.
    let flags = TraceFlags::new(flags & TraceFlags::SAMPLED.to_u8());
    Some(SpanContext::new(trace_id, span_id, flags, true, TraceState::NONE)).filter(SpanContext::is_valid)
}

/// Returns the text if it has exactly `digits` lowercase hexadecimal digits, as the standard requires.
fn lower_hex(text: &str, digits: usize) -> Option<&str> {
    let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    (text.len() == digits && text.bytes().all(is_hex)).then_some(text)
}

/// Formats the header. Its receiver continues this span.
pub(super) fn format_traceparent(span: &SpanContext) -> String {
    format!("00-{}-{}-{:02x}", span.trace_id(), span.span_id(), span.trace_flags().to_u8())
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn formatted_traceparent_parses_back() {
        let context = parse_traceparent(VALID).unwrap();
        assert_eq!(format_traceparent(&context), VALID);
        assert!(context.is_remote() && context.is_sampled());
        let unsampled = parse_traceparent(&VALID.replace("-01", "-00")).unwrap();
        assert!(!unsampled.is_sampled());
    }

    #[test]
    fn later_traceparent_version_is_read_partly() {
        let later = VALID.replacen("00", "cc", 1);
        assert_eq!(parse_traceparent(&later), parse_traceparent(VALID));
        assert_eq!(parse_traceparent(&format!("{later}-what-else")), parse_traceparent(VALID));
        let flags = parse_traceparent(&VALID.replace("-01", "-fe")).unwrap();
        assert_eq!(flags.trace_flags(), TraceFlags::NOT_SAMPLED, "of the flags only that of sampling is known");
    }

    #[test]
    fn invalid_traceparent_is_ignored() {
        for bad in [
            "",
            "00",
            &VALID.to_uppercase(),
            &VALID[..54],
            &format!("{VALID}-more"),
            &VALID.replacen("00", "ff", 1),
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01x",
            "00-0af7651916cd43dd8448eb211c80319ä-b7ad6b7169203331-01",
        ] {
            assert_eq!(parse_traceparent(bad), None, "{bad}");
        }
    }
}
