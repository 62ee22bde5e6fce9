//! `[ids]`: ids that dispatchq generates.

use garde::Validate;
use model::id_prefix::IdPrefix;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, Validate)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct IdsConfig {
    /// Checked when it is read.
    pub prefix: IdPrefix,
}
