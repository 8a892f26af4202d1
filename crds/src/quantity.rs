//! Memory sizes and durations as people write them.
