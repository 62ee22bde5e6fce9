//! The history grows, is read and is thinned out without standing in the way of orders.
