//! Commands for many bindings.

use serde::{Deserialize, Serialize};

use super::{BindingCommand, StopReason};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, strum::IntoStaticStr, strum::Display)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum BindingVerb {
    Start,
    Pause,
    Resume,
    Stop,
}

impl BindingVerb {
    pub const ALL: [Self; 4] = [Self::Start, Self::Pause, Self::Resume, Self::Stop];

    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the past participle, for output about changed bindings.
    pub fn past_form(self) -> &'static str {
        match self {
            Self::Start => "started",
            Self::Pause => "paused",
            Self::Resume => "resumed",
            Self::Stop => "stopped",
        }
    }

    pub fn to_command(self) -> BindingCommand {
        match self {
            Self::Start => BindingCommand::Start,
            Self::Pause => BindingCommand::Pause,
            Self::Resume => BindingCommand::Resume,
            Self::Stop => BindingCommand::Stop { reason: StopReason::ManualStop },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_says_the_same_words() {
        for verb in BindingVerb::ALL {
            assert_eq!(serde_json::to_value(verb).unwrap(), verb.as_str());
            assert_eq!(serde_json::from_value::<BindingVerb>(verb.as_str().into()).unwrap(), verb);
        }
    }
}
