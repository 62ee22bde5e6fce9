//! Errors of the configuration. Their texts never contain a secret.

use std::{error::Error, fmt, io, path::PathBuf};

/// Reason why a configuration cannot be used, with the place and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration file {}: {cause}", file.display())]
    Unreadable { file: PathBuf, cause: io::Error },
    #[error("{} is not valid TOML: {slip}", file.display())]
    NotToml { file: PathBuf, slip: String },
    #[error("{variable} is not valid UTF-8")]
    NotUtf8 { variable: String },
    /// A setting is unknown, has the wrong type or breaks a rule; or a table cannot be turned into what it configures.
    #[error("{}", join_problem(path, problem))]
    Setting { path: String, problem: String },
    #[error(transparent)]
    Redis(#[from] queue::StoreError),
    #[error("the client for HTTP requests cannot be built: {0}")]
    HttpClient(reqwest::Error),
    #[error("{} settings cannot be used:{}", .0.len(), list_problems(.0))]
    Several(Vec<ConfigError>),
}

impl From<reqwest::Error> for ConfigError {
    fn from(error: reqwest::Error) -> Self {
        Self::HttpClient(error)
    }
}

impl ConfigError {
    /// Creates a problem with its remedy. The caller adds the path of the setting or table with
    /// [`within`](Self::within).
    pub fn new(problem: impl fmt::Display) -> Self {
        Self::Setting { path: String::new(), problem: problem.to_string() }
    }

    /// Returns the error with the path of its table, if it has no path yet.
    #[must_use]
    pub fn within(self, table: &str) -> Self {
        match self {
            Self::Setting { path, problem } if path.is_empty() => Self::Setting { path: table.to_owned(), problem },
            other => other,
        }
    }

    /// Returns the error with the place of its setting. `place_of` finds the place by the setting's path.
    #[must_use]
    pub fn with_place(self, place_of: &impl Fn(&str) -> Option<String>) -> Self {
        match self {
            Self::Several(problems) => {
                Self::Several(problems.into_iter().map(|problem| problem.with_place(place_of)).collect())
            }
            Self::Setting { path, problem } => {
                let problem = place_of(&path).map_or(problem.clone(), |place| format!("{problem} ({place})"));
                Self::Setting { path, problem }
            }
            other => other,
        }
    }

    /// Returns all problems as one error, or `Ok` if there are none.
    pub fn refuse_problems(mut problems: Vec<Self>) -> Result<(), Self> {
        match problems.len() {
            0 => Ok(()),
            1 => Err(problems.remove(0)),
            _ => Err(Self::Several(problems)),
        }
    }

    /// Returns the heading and the lines if the error is a list.
    pub fn as_list(&self) -> Option<(String, Vec<String>)> {
        let Self::Several(problems) = self else { return None };
        let heading = format!("{} settings cannot be used:", problems.len());
        Some((heading, problems.iter().map(describe_chain).collect()))
    }

    pub fn into_problems(self) -> Vec<Self> {
        match self {
            Self::Several(problems) => problems,
            one => vec![one],
        }
    }
}

impl From<(garde::Path, garde::Error)> for ConfigError {
    fn from((path, error): (garde::Path, garde::Error)) -> Self {
        Self::Setting { path: path.to_string(), problem: error.to_string() }
    }
}

/// Returns `problem` as an error unless `fits`.
pub fn ensure_fits(fits: bool, problem: impl fmt::Display) -> Result<(), ConfigError> {
    if fits { Ok(()) } else { Err(ConfigError::new(problem)) }
}

/// Joins a path and a problem: "path must ..." if the problem is a predicate, otherwise "path: problem".
fn join_problem(path: &str, problem: &str) -> String {
    let is_predicate = ["is ", "must "].iter().any(|verb| problem.starts_with(verb));
    match path {
        "" => problem.to_owned(),
        path if is_predicate => format!("{path} {problem}"),
        path => format!("{path}: {problem}"),
    }
}

/// Returns one line per problem, with its causes.
fn list_problems(problems: &[ConfigError]) -> String {
    problems.iter().map(|problem| format!("\n  {}", describe_chain(problem))).collect()
}

fn describe_chain(error: &ConfigError) -> String {
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
