//! Tells cargo to build again when a migration appears: `migrate!` alone does not notice.

fn main() {
    println!("cargo:rerun-if-changed=../migrations/sqlite");
}
