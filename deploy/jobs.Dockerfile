# syntax=docker/dockerfile:1
# The Spark jobs: Spark 4, Java 17, the Cassandra connector. Build it from the repository's root:
#   docker build -f deploy/jobs.Dockerfile -t imagestrata-jobs .
#   docker run --rm imagestrata-jobs jobs/ingest.py --help

FROM python:3.13-slim-bookworm
# bookworm is the last Debian with Java 17. Its Java gets security updates, so its version is not pinned.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/imagestrata
COPY . .
# The set-up of `make setup`: pip and uv verify the hashes of requirements.lock, and the jars those of jars.lock.
RUN --mount=type=cache,target=/var/cache/uv \
    UV_CACHE_DIR=/var/cache/uv XDG_CACHE_HOME=/opt/imagestrata/cache \
    python -m imagestrata.devstack.environment --extra spark --extra s3 --extra shards --extra looks --extra lineage
# Hadoop looks its user up by number, so the user needs a name.
RUN useradd --uid 10001 --user-group --create-home imagestrata \
    && install -d -o imagestrata -g imagestrata /splits
ENV PATH=/opt/imagestrata/.venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
ENTRYPOINT ["spark-submit"]
CMD ["--version"]
