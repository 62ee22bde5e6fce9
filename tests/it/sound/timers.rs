//! No timer waits longer than promised, in whatever state Redis and the clocks are.
