#!/bin/sh
# Style, then types. mypy has to see the folder under the package's name, whatever the clone is called.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
.venv/bin/ruff check --quiet .
.venv/bin/ruff format --check --quiet .
mkdir -p .cache/import
ln -sfn "$root" .cache/import/mlxchat
cd .cache/import
MYPYPATH=$PWD exec "$root/.venv/bin/mypy" --strict --config-file "$root/pyproject.toml" --cache-dir "$root/.mypy_cache" \
    --no-error-summary -p mlxchat
