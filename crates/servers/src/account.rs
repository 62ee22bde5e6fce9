//! User account that Postgres runs as. Postgres refuses to run as root, so under root it runs as another user.

use std::io;
use std::path::Path;

use nix::unistd::{Uid, User};

use crate::{ServerError, error::IoErrorContext};

/// An unprivileged user, by number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnprivilegedAccount {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl UnprivilegedAccount {
    /// Returns the account for Postgres. `None` if this process is not root. Under root it is the `postgres` user, or
    /// `nobody` if that does not exist.
    pub(crate) fn for_postgres() -> Result<Option<UnprivilegedAccount>, ServerError> {
        if !Uid::effective().is_root() {
            return Ok(None);
        }
        for name in ["postgres", "nobody"] {
            if let Some(user) = User::from_name(name).while_doing(|| format!("look up the user {name}"))? {
                return Ok(Some(UnprivilegedAccount { uid: user.uid.as_raw(), gid: user.gid.as_raw() }));
            }
        }
        let source = io::Error::from(io::ErrorKind::NotFound);
        Err(ServerError::Io { what: "find a user for Postgres, which refuses to run as root".into(), source })
    }

    pub(crate) fn own_path(self, path: &Path) -> Result<(), ServerError> {
        std::os::unix::fs::chown(path, Some(self.uid), Some(self.gid))
            .while_doing(|| format!("chown {}", path.display()))
    }
}
