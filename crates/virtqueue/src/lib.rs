//! Virtqueues by burst.
