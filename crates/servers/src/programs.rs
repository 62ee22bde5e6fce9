//! Finds the server binaries: first in PATH, then in the directories of Debian and Homebrew that are not in PATH.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::ServerError;

const CURE: &str =
    "run `make setup` (apt install redis-server / postgresql / pgbouncer / prometheus; brew install the same)";

/// Directory of Debian's daemons, which is not in every user's PATH.
const DAEMONS: &str = "/usr/sbin";

/// Directories with one subdirectory per Postgres version, and the prefix of the subdirectory's name.
const VERSIONED: [(&str, &str); 3] =
    [("/usr/lib/postgresql", ""), ("/opt/homebrew/opt", "postgresql@"), ("/usr/local/opt", "postgresql@")];

/// The three Postgres programs of one version.
#[derive(Clone, Debug)]
pub(crate) struct PostgresPrograms {
    pub(crate) postgres: PathBuf,
    pub(crate) initdb: PathBuf,
    pub(crate) psql: PathBuf,
}

pub(crate) fn redis_server() -> Result<PathBuf, ServerError> {
    find_program("redis-server", &search_path())
}

pub(crate) fn find_pgbouncer() -> Result<PathBuf, ServerError> {
    let mut dirs = search_path();
    dirs.push(PathBuf::from(DAEMONS));
    find_program("pgbouncer", &dirs)
}

pub(crate) fn find_prometheus() -> Result<PathBuf, ServerError> {
    find_program("prometheus", &search_path())
}

pub(crate) fn find_postgres() -> Result<PostgresPrograms, ServerError> {
    let mut dirs = search_path();
    dirs.extend(versioned_dirs());
    postgres_in(&dirs)
}

/// Finds the Postgres programs. Follows a symbolic link to `postgres`, so that initdb and psql come from the same
/// directory. Only the initdb of the same version can create a data directory. The psql that Debian puts in PATH is a
/// wrapper that costs more than the query.
fn postgres_in(dirs: &[PathBuf]) -> Result<PostgresPrograms, ServerError> {
    let found = find_program("postgres", dirs)?;
    let postgres = fs::canonicalize(&found).unwrap_or(found);
    let mut dirs = dirs.to_vec();
    if let Some(dir) = postgres.parent() {
        dirs.insert(0, dir.to_owned());
    }
    Ok(PostgresPrograms { initdb: find_program("initdb", &dirs)?, psql: find_program("psql", &dirs)?, postgres })
}

fn find_program(program: &'static str, dirs: &[PathBuf]) -> Result<PathBuf, ServerError> {
    let executable =
        |file: &PathBuf| fs::metadata(file).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    dirs.iter().map(|dir| dir.join(program)).find(executable).ok_or(ServerError::Missing { program, cure: CURE })
}

fn search_path() -> Vec<PathBuf> {
    env::var_os("PATH").map(|path| env::split_paths(&path).collect()).unwrap_or_default()
}

fn versioned_dirs() -> Vec<PathBuf> {
    VERSIONED.iter().flat_map(|(parent, prefix)| by_version(Path::new(parent), prefix)).collect()
}

/// Returns the `bin` directories below `parent`, highest version first.
fn by_version(parent: &Path, prefix: &str) -> Vec<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = fs::read_dir(parent)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    found.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    found.into_iter().map(|(_, bin)| bin).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn install(dir: &Path, program: &str) {
        fs::create_dir_all(dir).unwrap();
        fs::write(dir.join(program), "").unwrap();
        fs::set_permissions(dir.join(program), fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn missing_program_error_names_cure() {
        let empty = tempfile::tempdir().unwrap();
        let error = find_program("redis-server", &[empty.path().to_owned()]).unwrap_err().to_string();
        assert!(error.starts_with("redis-server is not installed: run `make setup`"), "{error}");
        let error = postgres_in(&[empty.path().to_owned()]).unwrap_err();
        assert!(matches!(error, ServerError::Missing { program: "postgres", .. }), "{error}");
    }

    #[test]
    fn non_executable_file_is_not_a_program() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("redis-server"), "").unwrap();
        assert!(find_program("redis-server", &[dir.path().to_owned()]).is_err());
    }

    #[test]
    fn highest_postgres_version_comes_first() {
        let dir = tempfile::tempdir().unwrap();
        for version in ["9", "16", "15", "common"] {
            fs::create_dir_all(dir.path().join(version).join("bin")).unwrap();
        }
        let versions = by_version(dir.path(), "");
        assert_eq!(versions, ["16", "15", "9"].map(|version| dir.path().join(version).join("bin")));
    }

    #[test]
    fn initdb_and_psql_match_the_linked_postgres() {
        let dir = tempfile::tempdir().unwrap();
        let (linked, real) = (dir.path().join("linked"), dir.path().canonicalize().unwrap().join("16"));
        for program in ["postgres", "initdb", "psql"] {
            install(&real, program);
        }
        install(&linked, "psql");
        std::os::unix::fs::symlink(real.join("postgres"), linked.join("postgres")).unwrap();
        let programs = postgres_in(&[linked]).unwrap();
        assert_eq!(programs.psql, real.join("psql"));
        assert_eq!(programs.initdb, real.join("initdb"));
    }
}
