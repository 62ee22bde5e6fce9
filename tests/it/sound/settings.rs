//! Settings, secrets and the environment fail early and give nothing away.

mod supply_chain;
