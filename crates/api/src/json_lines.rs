//! Bodies of JSON lines: imports that take all lines or none. The lines are parsed as they arrive; the text is not
//! kept.

use std::{
    collections::{HashMap, hash_map::Entry},
    error::Error,
};

use axum::{
    body::Bytes,
    extract::Request,
    http::{HeaderValue, header::CONTENT_ENCODING},
};
use foundation::strict_json;
use futures_util::StreamExt;
use model::{input, json_words::plain_error};
use serde::de::DeserializeOwned;

use super::{
    body::{BodyKind, has_kind, is_local},
    error::{ApiError, FieldProblem},
    json,
};

/// Maximum size of an import over HTTP. The command line that runs in this process has no limit.
pub(crate) const MAX_IMPORT_BYTES: usize = 16 * 1024 * 1024;
/// Maximum number of problems in an answer. The answer counts the others.
const MOST_PROBLEMS: usize = 10;

/// Reads a body of JSON lines. Reports each line that is invalid or repeats the `id` of an earlier line.
pub(crate) async fn read_json_lines<T: DeserializeOwned>(
    request: Request,
    id: impl Fn(&T) -> String,
    find_problem: impl Fn(&T) -> Option<String>,
) -> Result<Vec<T>, ApiError> {
    let is_encoded = |value: &HeaderValue| !value.as_bytes().eq_ignore_ascii_case(b"identity");
    if request.headers().get_all(CONTENT_ENCODING).iter().any(is_encoded) {
        return Err(ApiError::Encoded);
    }
    let is_lines = has_kind(&request, BodyKind::JsonLines);
    let most = if is_local(&request) { usize::MAX } else { MAX_IMPORT_BYTES };
    let mut lines = ImportedLines::new(id, find_problem);
    let (mut chunks, mut rest, mut total) = (request.into_body().into_data_stream(), Vec::new(), 0_usize);
    while let Some(chunk) = chunks.next().await {
        let chunk: Bytes =
            chunk.map_err(|error| ApiError::Malformed(format!("the body cannot be read: {}", find_cause(&error))))?;
        total += chunk.len();
        if total > most {
            return Err(ApiError::TooLarge(most));
        }
        let mut ended = chunk.split(|byte| *byte == b'\n');
        // The text after the last line end belongs to the next chunk.
        let after = ended.next_back().unwrap_or_default();
        for line in ended {
            rest.extend_from_slice(line);
            lines.read_line(&rest)?;
            rest.clear();
        }
        rest.extend_from_slice(after);
    }
    lines.read_line(&rest)?;
    if is_lines { lines.finish() } else { Err(ApiError::NotJson) }
}

/// Returns the innermost error, such as the cause of an unreadable file.
fn find_cause<'a>(mut error: &'a (dyn Error + 'static)) -> &'a dyn Error {
    while let Some(source) = error.source() {
        error = source;
    }
    error
}

struct ImportedLines<T, I, P> {
    id: I,
    find_problem: P,
    line: usize,
    lines_by_id: HashMap<String, usize>,
    /// Valid items. Empty once a line is invalid, because then nothing is imported.
    good: Vec<T>,
    /// The first invalid lines, at most [`MOST_PROBLEMS`].
    bad: Vec<(usize, String)>,
    bad_count: usize,
}

impl<T, I, P> ImportedLines<T, I, P>
where
    T: DeserializeOwned,
    I: Fn(&T) -> String,
    P: Fn(&T) -> Option<String>,
{
    fn new(id: I, find_problem: P) -> Self {
        Self { id, find_problem, line: 0, lines_by_id: HashMap::new(), good: Vec::new(), bad: Vec::new(), bad_count: 0 }
    }

    fn read_line(&mut self, line: &[u8]) -> Result<(), ApiError> {
        self.line += 1;
        let line = if self.line == 1 { input::skip_byte_order_mark(line) } else { line };
        let text = std::str::from_utf8(line)
            .map_err(|_| ApiError::Malformed(format!("line {} of the body is not UTF-8 text", self.line)))?;
        if text.trim().is_empty() {
            return Ok(());
        }
        match self.read_item(text) {
            Ok(item) if self.bad_count == 0 => self.good.push(item),
            Ok(_) => {}
            Err(problem) => {
                self.good = Vec::new();
                self.bad_count += 1;
                if self.bad.len() < MOST_PROBLEMS {
                    self.bad.push((self.line, problem));
                }
            }
        }
        Ok(())
    }

    fn read_item(&mut self, text: &str) -> Result<T, String> {
        json::without_nul(text.as_bytes()).map_err(|error| error.to_string())?;
        let item = strict_json::read_unique::<T>(text.as_bytes()).map_err(|error| plain_error(&error.to_string()))?;
        (self.find_problem)(&item).map_or(Ok(()), Err)?;
        match self.lines_by_id.entry((self.id)(&item)) {
            Entry::Occupied(first) => Err(format!("id '{}' is on line {}, too", first.key(), first.get())),
            Entry::Vacant(place) => {
                place.insert(self.line);
                Ok(item)
            }
        }
    }

    fn finish(self) -> Result<Vec<T>, ApiError> {
        if self.bad_count == 0 {
            return Ok(self.good);
        }
        let more = self.bad_count - self.bad.len();
        let mut problems: Vec<_> = self
            .bad
            .into_iter()
            .map(|(line, problem)| FieldProblem::in_body(&line.to_string(), &format!("line {line}: {problem}")))
            .collect();
        if more > 0 {
            problems.push(FieldProblem::in_body("", &format!("and {more} more")));
        }
        Err(ApiError::BadLines(problems))
    }
}

#[cfg(test)]
mod tests {
    use axum::{
        body::Body,
        http::{Request, header::CONTENT_TYPE},
    };
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Item {
        id: String,
    }

    async fn read(chunks: &[&'static [u8]]) -> Result<Vec<String>, String> {
        let stream =
            futures_util::stream::iter(chunks.iter().copied().map(Ok::<_, std::io::Error>).collect::<Vec<_>>());
        let request = Request::builder().header(CONTENT_TYPE, "application/jsonl");
        let request = request.body(Body::from_stream(stream)).unwrap();
        let problem = |item: &Item| item.id.is_empty().then(|| "id is empty".to_owned());
        let read = read_json_lines(request, |item: &Item| item.id.clone(), problem).await;
        read.map(|items| items.into_iter().map(|item| item.id).collect()).map_err(|error| error.to_string())
    }

    // Rule F2: An import reads an object only by its member names, and refuses a repeated member.
    #[tokio::test]
    async fn import_refuses_lists_and_doubled_members() {
        let error = read(&[b"[\"A\"]\n{\"id\": \"A\", \"id\": \"B\"}\n"]).await.unwrap_err();
        assert!(error.contains("line 1: expected ") && error.contains("line 2: id is given twice"), "{error}");
    }

    // Rule F4: An import reports an id that two lines share, and imports neither line.
    #[tokio::test]
    async fn import_reports_lines_with_one_id() {
        let lines = b"{\"id\": \"A\"}\n\n{\"id\": \"B\"}\n{\"id\": \"A\"}\n{\"id\": \"\"}\n";
        let error = read(&[lines]).await.unwrap_err();
        assert!(error.contains("line 4: id 'A' is on line 1, too; line 5: id is empty"), "{error}");
        assert!(read(&[b"\xff\xfe{"]).await.unwrap_err().contains("line 1 of the body is not UTF-8 text"));
    }

    #[tokio::test]
    async fn import_counts_wrong_lines_beyond_the_listed() {
        let error = read(&[b"{\"id\": \"A\"}\n", &[b'x', b'\n'].repeat(1_000).leak()[..]]).await.unwrap_err();
        assert!(error.contains("line 2: ") && error.contains("line 11: ") && !error.contains("line 12: "), "{error}");
        assert!(error.contains("and 990 more"), "{error}");
    }

    #[tokio::test]
    async fn unreadable_body_is_reported_with_cause() {
        let broken = futures_util::stream::iter([Err::<Bytes, _>(std::io::Error::other("Is a directory"))]);
        let request = Request::builder().header(CONTENT_TYPE, "application/jsonl");
        let request = request.body(Body::from_stream(broken)).unwrap();
        let read = read_json_lines(request, |item: &Item| item.id.clone(), |_| None).await;
        assert_eq!(read.unwrap_err().to_string(), "the body cannot be read: Is a directory");
    }

    #[tokio::test]
    async fn import_joins_lines_across_chunks() {
        let chunks: [&[u8]; 4] = [b"\xef\xbb\xbf{\"id\"", b": \"A\"}\r\n{\"id\": \"", b"B\"}\n", b"{\"id\": \"C\"}"];
        assert_eq!(read(&chunks).await.unwrap(), ["A", "B", "C"]);
        assert_eq!(read(&[]).await.unwrap(), Vec::<String>::new());
    }
}
