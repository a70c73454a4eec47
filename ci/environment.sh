# What ci/demo and ci/test share: find a Python, make .venv, install umfpy into it.
#
# Sourced by POSIX shells, from the repository's root.  Afterwards "$python" is the environment's.

# The environment is this repository's alone, whatever the caller has active.
unset PYTHONPATH PYTHONHOME VIRTUAL_ENV PYTHONSAFEPATH PYTHONSTARTUP
export PYTHONNOUSERSITE=1
python=.venv/bin/python

say() {
    printf '%s\n' "$*" >&2
}

fail() {
    say "error: $*"
    exit 1
}

# suitable COMMAND: whether it is a Python that umfpy runs on, and can make environments.
suitable() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null
}

# Prints the command of a suitable Python: $PYTHON if it is set, else the first that there is.
find_python() {
    if [ -n "${PYTHON:-}" ]; then
        suitable "$PYTHON" || fail "PYTHON=$PYTHON is no Python >= 3.10 with the modules venv" \
            "and ensurepip (on Debian: apt-get install python3-venv)"
        printf '%s\n' "$PYTHON"
        return
    fi
    for candidate in python3 python3.14 python3.13 python3.12 python3.11 python3.10 python; do
        if suitable "$candidate"; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    fail "no Python >= 3.10 with the modules venv and ensurepip was found (on Debian: apt-get" \
        "install python3-venv python3-dev); name one with PYTHON=/path/to/python"
}

# A C compiler and Python's headers: umfpy's core and its emulated drivers are compiled here.
check_compiler() {
    for compiler in ${CC:-cc gcc clang}; do
        command -v "$compiler" >/dev/null 2>&1 && break
        compiler=
    done
    [ -n "$compiler" ] || fail "no C compiler was found; install gcc or clang (on Debian:" \
        "apt-get install gcc libc6-dev), or name one with CC=..."
    headers=$("$1" -c 'import sysconfig; print(sysconfig.get_path("include"))')
    [ -f "$headers/Python.h" ] || fail "Python.h is missing in $headers; install Python's" \
        "headers (on Debian: apt-get install python3-dev)"
}

# digest FILE...: one word that changes when one of the files does.
digest() {
    cat "$@" | cksum | tr ' ' '-'
}

# What is compiled: when it changes, umfpy is built again.
sources() {
    find umfpy providers -type f \( -name '*.pyx' -o -name '*.pxd' -o -name '*.h' \
        -o -name '*.def' -o -name '*.map' -o -path 'providers/*.c' \) | LC_ALL=C sort
}

# make_venv COMMAND: .venv on that Python; one that is there already and fits is kept.
make_venv() {
    identity='import sys; print(sys.version, sys.base_prefix)'
    if [ "$("$1" -c "$identity")" = "$("$python" -c "$identity" 2>/dev/null)" ]; then
        return
    fi
    say "making .venv with $("$1" -V)"
    "$1" -m venv --clear .venv
}

# state EXTRA: one word for what an installation with that extra is made of.
state() {
    # shellcheck disable=SC2046  # no path of the repository has spaces
    printf '%s %s\n' "$1" "$(digest pyproject.toml $(sources))"
}

# installed EXTRA: whether that is what .venv has.
installed() {
    [ "$(cat ".venv/installed-$1" 2>/dev/null)" = "$(state "$1")" ] && suitable "$python" &&
        "$python" -c 'import umfpy' 2>/dev/null
}

# prepare EXTRA: from nothing to umfpy, editable, installed in .venv with that extra.
prepare() {
    if [ -n "${PYTHON:-}" ] || ! suitable "$python"; then
        base=$(find_python) || exit 1
        make_venv "$base"
    fi
    if installed "$1"; then
        return
    fi
    check_compiler "$python"
    say "installing umfpy[$1]"
    # Other stamps speak of an older build.
    rm -f .venv/installed-*
    "$python" -m pip install --quiet --editable ".[$1]" >&2 ||
        fail "pip could not install umfpy[$1]; see above"
    state "$1" >".venv/installed-$1"
}
