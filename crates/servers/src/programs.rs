//! Finds the server binaries: first in PATH, then in the directories of Debian and Homebrew that are not in PATH.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::unistd::Uid;

use crate::ServerError;

/// Programs with the packages that contain them, on Debian and in Homebrew.
const PACKAGES: [(&str, &str, &str); 6] = [
    ("redis-server", "redis-server", "redis"),
    ("postgres", "postgresql", "postgresql@16"),
    ("initdb", "postgresql", "postgresql@16"),
    ("psql", "postgresql", "postgresql@16"),
    ("pgbouncer", "pgbouncer", "pgbouncer"),
    ("prometheus", "prometheus", "prometheus"),
];

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

/// Checks that Redis and Postgres are installed. The error names all missing programs, and one command that installs
/// them.
pub fn check_installed() -> Result<(), ServerError> {
    merge_missing([redis_server().map(drop), find_postgres().map(drop)])
}

/// Returns one error for all missing programs, or the first other error.
fn merge_missing(found: impl IntoIterator<Item = Result<(), ServerError>>) -> Result<(), ServerError> {
    let mut missing = Vec::new();
    for result in found {
        match result {
            Err(ServerError::Missing { programs, .. }) => missing.extend(programs),
            other => other?,
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(missing_error(missing)) }
}

fn missing_error(programs: Vec<&'static str>) -> ServerError {
    let has_apt = Path::new("/usr/bin/apt-get").exists();
    let cure = install_command(&programs, cfg!(target_os = "macos"), has_apt, Uid::effective().is_root());
    ServerError::Missing { programs, cure }
}

/// Returns what to do about missing programs: one command on Debian, Ubuntu and macOS.
fn install_command(programs: &[&str], is_macos: bool, has_apt: bool, is_root: bool) -> String {
    let of_debian = |program: &str| PACKAGES.iter().find(|package| package.0 == program).map(|package| package.1);
    let of_homebrew = |program: &str| PACKAGES.iter().find(|package| package.0 == program).map(|package| package.2);
    let list = |package_of: &dyn Fn(&str) -> Option<&'static str>| {
        let mut packages: Vec<&str> = programs.iter().filter_map(|program| package_of(program)).collect();
        packages.dedup();
        packages.join(" ")
    };
    let sudo = if is_root { "" } else { "sudo " };
    if is_macos {
        format!("run `brew install {}`", list(&of_homebrew))
    } else if has_apt {
        format!("run `{sudo}apt-get update && {sudo}apt-get install -y {}`", list(&of_debian))
    } else {
        format!(
            "install {} (Redis 7.0 or later, Postgres 15 or later) with your package manager",
            programs.join(" and ")
        )
    }
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
    dirs.iter().map(|dir| dir.join(program)).find(executable).ok_or_else(|| missing_error(vec![program]))
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
        assert!(error.starts_with("redis-server is missing: "), "{error}");
        let error = postgres_in(&[empty.path().to_owned()]).unwrap_err();
        assert!(matches!(&error, ServerError::Missing { programs, .. } if programs == &["postgres"]), "{error}");
    }

    #[test]
    fn one_command_installs_all_missing_programs() {
        let error = merge_missing([Err(missing_error(vec!["redis-server"])), Ok(()), Err(missing_error(vec!["psql"]))]);
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with("redis-server and psql are missing: "), "{error}");
        let both = ["redis-server", "postgres"];
        assert_eq!(
            install_command(&both, false, true, false),
            "run `sudo apt-get update && sudo apt-get install -y redis-server postgresql`"
        );
        let as_root = install_command(&["initdb", "psql"], false, true, true);
        assert_eq!(as_root, "run `apt-get update && apt-get install -y postgresql`");
        assert_eq!(install_command(&both, true, false, false), "run `brew install redis postgresql@16`");
        assert!(install_command(&both, false, false, false).starts_with("install redis-server and postgres ("));
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
