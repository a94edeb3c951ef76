# syntax=docker/dockerfile:1
# The dataset service and its client. Build it from the repository's root:
#   docker build -f deploy/service.Dockerfile -t imagestrata-service .

FROM python:3.13-slim-bookworm AS build
WORKDIR /opt/imagestrata
COPY . .
# The set-up of `make setup`: pip and uv verify the hashes of requirements.lock.
RUN --mount=type=cache,target=/var/cache/uv \
    UV_CACHE_DIR=/var/cache/uv python -m imagestrata.devstack.environment --extra service --extra s3

FROM python:3.13-slim-bookworm
COPY --from=build /opt/imagestrata /opt/imagestrata
# A new volume at /data belongs to this user.
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /tmp imagestrata \
    && install -d -o imagestrata -g imagestrata -m 0700 /data
ENV PATH=/opt/imagestrata/.venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /data
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/health', timeout=4)"]
ENTRYPOINT ["imagestrata"]
CMD ["serve", "--root", "/data", "--host", "0.0.0.0", "--port", "8080"]
