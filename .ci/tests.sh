#!/bin/sh
# The two test processes, side by side, a core each. The BLAS is chosen once per process: bit-equality needs the wheel's
# own, real weights a fast one. What depends on none is shared out: `library` to the first, what starts programs to the
# second.
# Usage: tests.sh [slow]
set -u
cd "$(dirname "$0")/.."
which="not slow" examples=repeatable
[ "${1:-}" = slow ] && which="slow" examples=searching
log=$(mktemp)
trap 'kill "$exact" 2>/dev/null; rm -f "$log"' EXIT INT TERM

# MLX hands each small operation to a thread of its own: on one core that takes three quarters of the time it takes on two.
on_core() {
    core=$1
    shift
    if taskset -c "$core" true 2>/dev/null; then exec taskset -c "$core" "$@"; else exec "$@"; fi
}

MLXCHAT_BLAS=off on_core 0 .venv/bin/python -m pytest -q -m "(exact or library) and $which" \
    --hypothesis-profile="$examples" >"$log" 2>&1 </dev/null &
exact=$!
echo "real weights, fast BLAS, and the program in a terminal:"
export OPENBLAS_NUM_THREADS="${OPENBLAS_NUM_THREADS:-1}"
(on_core 1 .venv/bin/python -m pytest -q -p no:cacheprovider -m "(real or plain and not library) and $which" \
    --hypothesis-profile="$examples" </dev/null)
real_code=$?
wait "$exact"
exact_code=$?
echo "tiny models, the wheel's BLAS, and what needs neither:"
cat "$log"
[ "$real_code" -eq 0 ] && exit "$exact_code"
exit "$real_code"
