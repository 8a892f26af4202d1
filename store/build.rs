//! Makes cargo rebuild when a migration is added: `migrate!` alone does not notice.

fn main() {
    println!("cargo:rerun-if-changed=../migrations/sqlite");
}
