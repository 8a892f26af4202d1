//! Suites on real components. The helpers are in `torc_tests::labs`.
