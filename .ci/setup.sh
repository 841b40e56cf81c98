#!/bin/sh
# Make .venv and install mlxchat into it, or do nothing if that was done for these very files. All output goes to stderr.
# Usage: setup.sh run|dev
set -eu
exec 1>&2
cd "$(dirname "$0")/.."
what=${1:-run}
venv=.venv
stamp=$venv/.mlxchat-$what

say() { printf '%s\n' "$*"; }
fail() { say "error: $1"; say "to mend it: $2"; exit 69; }

# What an install depends on: the packaging files and which modules there are.
key() {
    { cat pyproject.toml constraints.txt; find cli engine cache transcripts -name '*.py' | sort; } | cksum
}

machine() {
    system=$(uname -s)
    arch=$(uname -m)
    case $system in
    Darwin)
        # A shell under Rosetta says x86_64 on Apple silicon; the processor itself doesn't lie.
        if [ "$(sysctl -n hw.optional.arm64 2>/dev/null || echo 0)" != 1 ]; then
            fail "MLX needs Apple silicon; this Mac has an Intel processor" "run mlxchat on Apple silicon or on Linux"
        fi
        major=$(sw_vers -productVersion 2>/dev/null | cut -d. -f1)
        if [ "${major:-14}" -lt 14 ]; then
            fail "MLX needs macOS 14 or newer; this is $(sw_vers -productVersion)" "softwareupdate --install --all"
        fi
        python_command="brew install python@3.13"
        ;;
    Linux)
        case $arch in
        x86_64 | aarch64) ;;
        *) fail "MLX has no build for Linux on $arch" "run mlxchat on x86_64 or aarch64" ;;
        esac
        python_command="curl -LsSf https://astral.sh/uv/install.sh | sh"
        if command -v apt-get >/dev/null 2>&1; then
            python_command="sudo apt-get install python3.11 python3.11-venv"
        elif command -v dnf >/dev/null 2>&1; then
            python_command="sudo dnf install python3.13"
        fi
        ;;
    *) fail "MLX runs on macOS and Linux, not on $system" "use one of those" ;;
    esac
}

# Set `python` to the first interpreter that is new enough, and `seen` to what was found on the way.
find_python() {
    python=
    seen=
    for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11 python3.14; do
        found=$("$candidate" -c 'import platform, sys; print(*sys.version_info[:2], sep=".", end=" "); print(platform.machine(), sys.version_info >= (3, 11))' 2>/dev/null) || continue
        set -- $found
        seen="$seen $candidate is $1;"
        [ "$3" = True ] || continue
        if [ "$system" = Darwin ] && [ "$2" = x86_64 ]; then
            rosetta=$candidate
            continue
        fi
        python=$candidate
        return 0
    done
    return 1
}

need_python() {
    if find_python; then return 0; fi
    if [ -n "${rosetta:-}" ]; then
        fail "$rosetta is an Intel Python run through Rosetta; MLX needs a native one" "arch -arm64 brew install python@3.13"
    fi
    if command -v uv >/dev/null 2>&1; then
        python=3.13 # uv fetches it
        return 0
    fi
    fail "mlxchat needs Python 3.11 or newer;${seen:- no python3 was found}" "$python_command"
}

make_venv() {
    need_python
    rm -rf "$venv"
    new_venv
    printf '%s\n' "$PWD" >"$venv/.mlxchat-place"
}

new_venv() {
    if command -v uv >/dev/null 2>&1; then
        say "making $venv with uv"
        if uv venv --quiet --python "$python" "$venv"; then return 0; fi
        say "uv failed; trying python3 -m venv"
    fi
    say "making $venv with $python"
    "$python" -m venv "$venv" || fail "$python can't make a virtual environment" \
        "sudo apt-get install python$("$python" -c 'import sys; print(*sys.version_info[:2], sep=".")')-venv"
}

install() {
    package=.
    [ "$what" = run ] || package=".[$what]"
    say "installing mlxchat and its dependencies into $venv (a few minutes the first time)"
    if command -v uv >/dev/null 2>&1; then
        if uv pip install --quiet --python "$venv/bin/python" -c constraints.txt -e "$package"; then return 0; fi
        say "uv failed; trying pip"
        "$venv/bin/python" -m pip --version >/dev/null 2>&1 || "$venv/bin/python" -m ensurepip
    fi
    "$venv/bin/python" -m pip install --quiet --quiet --disable-pip-version-check -c constraints.txt -e "$package" ||
        fail "pip could not install mlxchat's dependencies (its own message is above)" "make clean, then try again"
}

# An environment works only where it was made, and with a Python that is still there and new enough.
usable() {
    [ "$(cat "$venv/.mlxchat-place" 2>/dev/null || true)" = "$PWD" ] &&
        "$venv/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

now="$(key) in $PWD"
[ "$(cat "$stamp" 2>/dev/null || true)" != "$now" ] || exit 0
machine
usable || make_venv
install
printf '%s\n' "$now" >"$stamp"
