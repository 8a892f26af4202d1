//! Parameters and templates become concrete jobs.
