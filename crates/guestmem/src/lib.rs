//! A guest's memory, mapped once.
