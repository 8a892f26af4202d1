# The image of the server and of runners: `docker build -t torc .`
FROM rust:1.95-slim-trixie AS build
RUN apt-get update && apt-get install -y --no-install-recommends openssh-client ca-certificates && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
# Static, so that a runner can be copied into any image that jobs need.
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/target \
    host=$(rustc -vV | sed -n 's/^host: //p') && \
    RUSTFLAGS='-C target-feature=+crt-static' CARGO_TARGET_DIR=/target \
    cargo build --release --locked --package torc --bins --target "$host" && \
    packaging/image-files /image "/target/$host/release/torc" "/target/$host/release/torc-slurm-job-runner"

FROM scratch
COPY --from=build /image /
USER 65532:65532
ENTRYPOINT ["/usr/bin/torc"]
