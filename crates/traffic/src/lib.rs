//! NTttcp-style sender and receiver, and what they measure.
