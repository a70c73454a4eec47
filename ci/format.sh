# clang-format over the C sources of the emulated drivers.
set -eu

find providers -type f \( -name '*.c' -o -name '*.h' \) -print0 |
    xargs -0 clang-format --dry-run -Werror
