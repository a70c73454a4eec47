# For ci/sanitize --self-test: each sanitizer has to find the fault that is planted for it.

# plant SANITIZER FILE SED-SCRIPT WORDS SCENARIO: changes a line of a copy, and wants WORDS said.
plant() {
    folder=$work/planted
    report=$work/report
    rm -rf "$folder"
    cp -Rp "$work/$1" "$folder"
    sed -i "$3" "$folder/$2"
    ! cmp -s "$folder/$2" "$work/$1/$2" || fail "nothing to plant in $2: $3"
    compile "$1" "$folder"
    if stress "$1" "$folder" "$5" >"$report" 2>&1 || ! grep -q "$4" "$report"; then
        tail -n 20 "$report" >&2
        fail "-fsanitize=$1 did not find $4 in $2"
    fi
    say "   found: $(grep "$4" "$report" | head -n 1)"
}

say "== self-test: planted faults"
for sanitizer in address,undefined thread; do
    build "$sanitizer" "$work/$sanitizer"
done
# The array of blocks is counted as twice what it is.
plant address,undefined umfpy/core/entries.pxd \
    's/<size_t>capacity \* 2 \* sizeof(Block)/<size_t>capacity * sizeof(Block)/' \
    'heap-buffer-overflow' growth
# A shift by the width of the number.
plant address,undefined umfpy/core/starts.pxd \
    's/>> m.hash_shift)$/>> (m.hash_shift + 6))/' \
    'shift exponent' growth
# A C thread frees without the lock.
plant thread umfpy/core/cinterface.pyx \
    '/^cdef inline bint take_back/,/^cdef bint/ { /lock_acquire/d; /lock_release/d; }' \
    'data race' streams
