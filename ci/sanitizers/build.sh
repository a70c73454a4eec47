# For ci/sanitize: builds umfpy with a sanitizer in a folder of its own, and runs programs on it.

compiler=${CC:-cc}

# supported SANITIZER: whether a program of the compiler's runs with it.
supported() {
    printf 'int main(void) { return 0; }\n' >"$work/probe.c"
    "$compiler" "-fsanitize=$1" "$work/probe.c" -o "$work/probe" 2>/dev/null && "$work/probe"
}

# runtime SANITIZER: the library that has to be in the process before Python is.
runtime() {
    case $1 in
    thread) name=tsan ;;
    *) name=asan ;;
    esac
    # A linker script of gcc's, a library of clang's: the dynamic linker wants the library itself.
    library=$("$compiler" -print-file-name="lib$name.so")
    [ -e "$library" ] || library=$("$compiler" -print-file-name="libclang_rt.$name-$(uname -m).so")
    readlink -f "$library"
}

# copy_sources FOLDER: what is needed to build and test, and nothing that is built already.
copy_sources() {
    mkdir "$1"
    tar cf - --exclude='*.so' --exclude='__pycache__' --exclude='umfpy/core/*.c' \
        --exclude='umfpy/bench/_*.c' --exclude='umfpy/integrations/_*.c' \
        umfpy providers tests pyproject.toml README.md LICENSE | tar xf - -C "$1"
    # As it is installed: providers/ is umfpy.providers.
    ln -s ../providers "$1/umfpy/providers"
    # Less optimised, lines can be told apart.
    sed -i 's/"-O[23]"/"-O1"/' "$1/pyproject.toml"
}

# build SANITIZER FOLDER: the extensions and the C threads, from a copy of the sources.
build() {
    cp -R "$work/sources" "$2"
    compile "$1" "$2"
    # The C that Cython made serves the next sanitizer too.
    find "$2" -name '*.c' -newer "$work/sources/pyproject.toml" -printf '%P\n' |
        while IFS= read -r file; do cp -p "$2/$file" "$work/sources/$file"; done
    "$compiler" -std=gnu11 -O1 -g -Wall -Wextra -Werror "-fsanitize=$1" -shared -fPIC -pthread \
        "$root/ci/sanitizers/stress.c" -o "$2/stress.so"
}

# compile SANITIZER FOLDER
compile() {
    (
        cd "$2"
        CFLAGS="-fsanitize=$1 -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g" \
            "$root/$python" -W ignore -c 'from setuptools import setup; setup()' \
            build_ext --inplace --parallel 2 >build.log 2>&1 ||
            { tail -n 40 build.log >&2; exit 1; }
    )
}

# sanitized SANITIZER FOLDER PROGRAM...: runs Python in the folder, with the runtime library.
#
# CPython itself is not instrumented: what it does with its own memory is not looked at, and it
# keeps memory until its end, so that leaks are not looked for.  It needs no suppressions.
sanitized() {
    sanitizer=$1
    folder=$2
    shift 2
    (
        cd "$folder"
        PYTHONPATH=$folder \
            PYTHONMALLOC=malloc \
            ASAN_OPTIONS="detect_leaks=0:exitcode=66${asan_options:-}" \
            UBSAN_OPTIONS=print_stacktrace=1 \
            TSAN_OPTIONS=halt_on_error=1:exitcode=66 \
            LD_PRELOAD=$(runtime "$sanitizer") \
            "$root/$python" "$@"
    )
}

# stress SANITIZER FOLDER [SCENARIO...]
stress() {
    sanitizer=$1
    folder=$2
    shift 2
    sanitized "$sanitizer" "$folder" "$root/ci/sanitizers/stress.py" ./stress.so "$@"
}

# emulated_tests FOLDER: all but the one that measures memory, of which the sanitizer takes some.
#
# Their children preload the driver before the runtime, and die of touching device memory.
emulated_tests() {
    asan_options=:verify_asan_link_order=0:handle_segv=0
    sanitized address,undefined "$1" -m pytest -q -p no:cacheprovider --tb=short tests/emulated \
        --deselect tests/emulated/test_processes.py::test_large_devices_cost_nothing_untouched
}
