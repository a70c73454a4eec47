# The drivers that can be had without a GPU: Level Zero's loader with its header, to compare with,
# and OpenCL on the CPU.
#
# Tests that need them say so and are skipped where they are missing; so this never fails.

have() {
    ldconfig -p 2>/dev/null | grep -q "$1"
}

wanted=
have libze_loader.so.1 || wanted="$wanted libze1"
[ -e /usr/include/level_zero/ze_api.h ] || wanted="$wanted libze-dev"
have libOpenCL.so.1 && [ -n "$(ls /etc/OpenCL/vendors/*.icd 2>/dev/null)" ] ||
    wanted="$wanted pocl-opencl-icd"
[ -n "$wanted" ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "not installed:$wanted; tests that need them are skipped (apt-get install$wanted)" >&2
    exit 0
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
# Package lists may be absent or old; they are fetched only where an install needs that.
# shellcheck disable=SC2086  # one word a package
if apt-get install -y -qq --no-install-recommends $wanted >"$log" 2>&1 ||
    { apt-get update -qq >>"$log" 2>&1 &&
        apt-get install -y -qq --no-install-recommends $wanted >>"$log" 2>&1; }; then
    echo "installed:$wanted" >&2
else
    echo "could not install$wanted; tests that need them are skipped:" >&2
    tail -n 2 "$log" >&2
fi
