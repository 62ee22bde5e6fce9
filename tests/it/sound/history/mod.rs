//! The history grows, is read and is thinned out without standing in the way of orders.
//!
//! * `days`: days come and go beside open readers, and no single order keeps them.
//! * `every_table`: each table loses what has served its time, or does not grow.
//! * `plans`: what every sweep and every look costs does not grow with the tables.
//! * `retention`: what is owed or still open stays; a sweep that fails keeps no other from its work.
//! * `roles`: serve and work with the rights of their role alone.

mod days;
mod every_table;
pub(crate) mod plans;
mod retention;
mod roles;
mod schemas;
