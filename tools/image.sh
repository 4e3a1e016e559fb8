#!/usr/bin/env bash
# Builds the image of deploy/Dockerfile and runs it as it is meant to run: by nobody, without a
# network, capabilities, or a file system to write to. ENGINE=podman for another engine; IMAGE=NAME
# to keep the image under that name.
set -euo pipefail
cd "$(dirname "$0")/.."
engine=${ENGINE:-docker}
"$engine" info >/dev/null 2>&1 || {
    echo "no container engine answers to '$engine info': start Docker, or name another with" \
        "ENGINE=podman" >&2
    exit 1
}
image=${IMAGE:-shoal:check-$$}
here=$(mktemp -d)
cleanup() {
    rm -rf "$here"
    [ -n "${IMAGE:-}" ] || "$engine" rmi --force "$image" >/dev/null 2>&1 || true
}
trap cleanup EXIT

# Podman's own format has no HEALTHCHECK.
format=()
[ "${engine##*/}" != podman ] || format=(--format docker)
"$engine" build "${format[@]}" --file deploy/Dockerfile --tag "$image" .

run() {
    "$engine" run --rm --network none --read-only --cap-drop ALL \
        --security-opt no-new-privileges --tmpfs /tmp --tmpfs /var/lib/shoal:mode=1777 "$@"
}
wanted=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
version=$(run "$image" --version)
[ "$version" = "shoal $wanted" ] || {
    echo "the image is '$version', not shoal $wanted" >&2
    exit 1
}
who=$(run --entrypoint id "$image" -u)
[ "$who" -gt 0 ] || { echo "the image runs as root" >&2; exit 1; }
# What the services import only where they are told to: a database, an object store, machines.
run --entrypoint /opt/shoal/bin/python "$image" -c "import asyncpg, distributed, obstore"
# All services as processes of one container: reports, a release, its page.
run "$image" demo --devices 500 --out /var/lib/shoal/demo | tee "$here/demo"
grep -q "1,500 reports acknowledged, 1,500 counted" "$here/demo" || {
    echo "the demo in the image did not count every report" >&2
    exit 1
}
echo "the image builds and runs: shoal $wanted, as user $who"
