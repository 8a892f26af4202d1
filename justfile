# Tasks of the project. Each one only calls a script; `just --list` shows them.

# Show the tasks
default:
    @just --list

# Build the release programs
build:
    cargo build --release --locked -p torc

# Run the fast tests; arguments are filters and options of tests/run
test *ARGS:
    tests/run {{ARGS}}

# Run the tests on a real Slurm, Kubernetes and sshd (needs root)
labs *ARGS:
    tests/run --labs {{ARGS}}

# Measure the speed; arguments choose measurements
bench *ARGS:
    tests/bench {{ARGS}}

# Print figures of names, comments and types; arguments are -v and names of crates
figures *ARGS:
    tests/figures {{ARGS}}

# Change the code at random and count how many changes the tests notice (takes hours)
mutants *ARGS:
    tests/nightly mutants {{ARGS}}

# Write the generated files again
generate:
    tests/generate

# Write the offline data of checked SQL again
prepare-sqlx:
    tests/prepare-sqlx

# Check workflows, scripts, spelling, links, the book and dependencies
lint *ARGS:
    tests/lint-repo {{ARGS}}

# Check the links of all Markdown files
links:
    tests/check-links

# Build the book into target/book
book:
    tests/lint-repo book

# Compile with the oldest supported Rust (needs rustup)
rust-version:
    tests/check-rust-version

# Run the checks that a change must pass (needs root)
ci:
    .ci/run

# Compare the versions of Cargo.toml, the charts and a tag
release-check *TAG:
    packaging/release check {{TAG}}

# Write the archives of a release into a folder
release-archives FOLDER:
    packaging/release archives {{FOLDER}}
