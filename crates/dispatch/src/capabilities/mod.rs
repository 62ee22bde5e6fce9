pub mod accounts;
pub mod areas;
pub mod bindings;
pub mod core;
pub mod desk;
pub mod notify;
pub mod orders;
pub mod partners;
