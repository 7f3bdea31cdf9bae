# SPDX-License-Identifier: Apache-2.0
# prepare.sh - what tools/try and tools/check share: see what this machine lacks, and install it.  Sourced by them.
#
# What is there is found by trying it, not by asking the package manager, so that software from elsewhere counts.
# Packages are those of Debian and Ubuntu; on another system the names are printed.  Nothing that is installed here
# starts a service.

name=$(basename "$0")
repo=$(cd "$(dirname "$0")/.." && pwd) || exit 1
PATH=$PATH:/usr/sbin:/sbin # ip, sshd and tc are there for people who are not root
missing=

say() { printf '== %s\n' "$*"; }
die()
{
    printf 'tools/%s: %s\n' "$name" "$*" >&2
    exit 1
}

# want PACKAGE COMMAND...: the package is missing unless the command succeeds.
want()
{
    package=$1
    shift
    "$@" >/dev/null 2>&1 || missing="$missing $package"
}

compiles() { printf 'int main(void) { return 0; }\n' | "$@" -x c -o /dev/null -; }
fuzzes()
{
    printf '#include <stddef.h>\nint LLVMFuzzerTestOneInput(const char *p, size_t n) { return p && n > 9999; }\n' |
        clang -fsanitize=fuzzer,address -x c -o /dev/null -
}

want_build_tools()
{
    want gcc compiles cc
    want libc6-dev compiles cc
    want python3 python3 -c ''
    want meson meson --version
    want ninja-build ninja --version
    want pkg-config pkg-config --version
    want libsodium-dev pkg-config --exists 'libsodium >= 1.0.18'
    want libpmix-dev pkg-config --exists pmix
    want libibverbs-dev pkg-config --exists libibverbs
}

# Only root may install; everything else runs as whoever called.
become_root()
{
    root=
    [ "$(id -u)" -eq 0 ] && return
    command -v sudo >/dev/null || die "these packages are missing:$missing. Run it as root, install sudo, or install them."
    root=sudo
}

apt() { $root env DEBIAN_FRONTEND=noninteractive apt-get -q -y "$@"; }

# Debian's way of keeping packages from starting their services.
hold_services()
{
    [ -e /usr/sbin/policy-rc.d ] && return 1
    printf '#!/bin/sh\nexit 101\n' | $root tee /usr/sbin/policy-rc.d >/dev/null && $root chmod 755 /usr/sbin/policy-rc.d
}

install_packages()
{
    log=$(mktemp) || die "no temporary file can be made"
    apt install --no-install-recommends "$@" >"$log" 2>&1 ||
        { apt update >"$log" 2>&1 && apt install --no-install-recommends "$@" >"$log" 2>&1; }
    status=$?
    [ $status -eq 0 ] || tail -n 5 "$log"
    rm -f "$log"
    return $status
}

# install_missing [OPTIONAL]: with an argument, go on without what cannot be had.
install_missing()
{
    [ -n "$missing" ] || return 0
    command -v apt-get >/dev/null ||
        die "these are missing, under Debian's package names:$missing. Install them with this system's package manager."
    become_root
    say "installing:$missing"
    held=
    hold_services && held=1
    # The list is split into words on purpose.
    # shellcheck disable=SC2086
    install_packages $missing
    status=$?
    [ -z "$held" ] || $root rm -f /usr/sbin/policy-rc.d
    [ $status -eq 0 ] || [ -n "${1-}" ] || die "could not install:$missing. The lines above say why."
    [ $status -eq 0 ] || say "going on without:$missing (their tests are skipped)"
    missing=
}
