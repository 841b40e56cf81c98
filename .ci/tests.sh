#!/bin/sh
# The two test processes, side by side, a core each; what depends on no BLAS runs in the one that has real weights.
# The BLAS is chosen once per process: bit-equality needs the wheel's own, real weights a fast one.
# Usage: tests.sh [slow]
set -u
cd "$(dirname "$0")/.."
which="not slow" examples=repeatable
[ "${1:-}" = slow ] && which="slow" examples=searching
log=$(mktemp)
trap 'kill "$exact" 2>/dev/null; rm -f "$log"' EXIT INT TERM

MLXCHAT_BLAS=off .venv/bin/python -m pytest -q -m "exact and $which" --hypothesis-profile="$examples" >"$log" 2>&1 </dev/null &
exact=$!
echo "real weights, fast BLAS, and what needs none:"
export OPENBLAS_NUM_THREADS="${OPENBLAS_NUM_THREADS:-1}"
.venv/bin/python -m pytest -q -p no:cacheprovider -m "(real or plain) and $which" --hypothesis-profile="$examples" </dev/null
real_code=$?
wait "$exact"
exact_code=$?
echo "tiny models, the wheel's BLAS:"
cat "$log"
[ "$real_code" -eq 0 ] && exit "$exact_code"
exit "$real_code"
