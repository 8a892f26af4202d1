# The image of the server and of runners: `docker build -t torc .`
FROM rust:1.95-slim-trixie AS build
RUN apt-get update && apt-get install -y --no-install-recommends openssh-client ca-certificates && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/target \
    programs=$(CARGO_TARGET_DIR=/target packaging/static-build dist) && \
    packaging/image-files /image "$programs/torc"

FROM scratch
COPY --from=build /image /
USER 65532:65532
ENTRYPOINT ["/usr/bin/torc"]
