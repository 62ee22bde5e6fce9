#!/bin/sh
# Installs dispatchq from a release: install.sh
#
# Downloads SHA256SUMS and the archive for this system, compares the checksum, and installs the program, its completions and its manual
# pages. Nothing is installed before the checksum matches. Variables:
#
#   DISPATCHQ_BASE_URL  folder of the release, https:// or file://; by default the one that this script was released with
#   DISPATCHQ_PREFIX    where to install: /usr/local for root, ~/.local for other users
#
# Requires tar, gzip, sha256sum or shasum, and curl or wget for https://. Exits with 1 if nothing was installed.
set -eu
default_url=''

base=${DISPATCHQ_BASE_URL:-$default_url}
if [ "$(id -u)" -eq 0 ]; then prefix=/usr/local; else prefix=${HOME:?}/.local; fi
prefix=${DISPATCHQ_PREFIX:-$prefix}

fail() { printf 'install.sh: %s\n' "$*" >&2; exit 1; }
has() { command -v "$1" >/dev/null 2>&1; }

# Downloads a file of the release: download NAME FILE
download() {
    case $base in
        file://*) cp -- "${base#file://}/$1" "$2" ;;
        https://*)
            if has curl; then
                curl --proto '=https' --tlsv1.2 --fail --silent --show-error --location --output "$2" "$base/$1"
            elif has wget; then
                wget --quiet --https-only --output-document="$2" "$base/$1"
            else
                fail "curl and wget are missing: install one of them, then run this again"
            fi ;;
        *) fail "DISPATCHQ_BASE_URL must start with https:// or file://, not '$base'" ;;
    esac || fail "cannot download $base/$1"
}

checksum() {
    if has sha256sum; then sha256sum "$1"; elif has shasum; then shasum -a 256 "$1"; else fail "sha256sum and shasum are missing"; fi |
        cut -d ' ' -f 1
}

find_target() {
    case $(uname -m) in
        x86_64 | amd64) machine=x86_64 ;;
        aarch64 | arm64) machine=aarch64 ;;
        *) machine=$(uname -m) ;;
    esac
    case $(uname -s) in
        # The loader of glibc. Systems without it, such as Alpine, use musl.
        Linux) if [ -e /lib64/ld-linux-x86-64.so.2 ] || [ -e /lib/ld-linux-aarch64.so.1 ]; then libc=gnu; else libc=musl; fi
            echo "$machine-unknown-linux-$libc" ;;
        *) echo "$machine-$(uname -s)" ;;
    esac
}

[ -n "$base" ] || fail "set DISPATCHQ_BASE_URL to the folder of a release, such as file:///tmp/release-kit"
for program in tar gzip; do has "$program" || fail "$program is missing: install it, then run this again"; done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT HUP TERM

download SHA256SUMS "$work/SHA256SUMS"
target=$(find_target)
line=$(grep "  dispatchq-[^/ ]*-$target\.tar\.gz\$" "$work/SHA256SUMS") ||
    fail "the release has no archive for $target; it has: $(sed -n 's/.*  \(dispatchq-[^/ ]*\.tar\.gz\)$/\1/p' "$work/SHA256SUMS" | tr '\n' ' ')"
expected=${line%% *}
archive=${line##* }
download "$archive" "$work/$archive"
found=$(checksum "$work/$archive")
[ "$found" = "$expected" ] || fail "$archive has checksum $found, but SHA256SUMS has $expected: download it again, or ask the publisher"

tar -xzf "$work/$archive" -C "$work"
tree=$work/${archive%.tar.gz}
"$tree/dispatchq" --version >/dev/null || fail "$archive does not run on this system"
install_file() { mkdir -p "$(dirname "$3")" && cp "$2" "$3.new" && chmod "$1" "$3.new" && mv -f "$3.new" "$3"; }
install_file 755 "$tree/dispatchq" "$prefix/bin/dispatchq"
install_file 644 "$tree/completions/dispatchq.bash" "$prefix/share/bash-completion/completions/dispatchq"
install_file 644 "$tree/completions/_dispatchq" "$prefix/share/zsh/site-functions/_dispatchq"
install_file 644 "$tree/completions/dispatchq.fish" "$prefix/share/fish/vendor_completions.d/dispatchq.fish"
install_file 644 "$tree/config.toml" "$prefix/share/doc/dispatchq/config.toml"
for file in LICENSE-APACHE LICENSE-MIT; do install_file 644 "$tree/$file" "$prefix/share/doc/dispatchq/$file"; done
for page in "$tree"/man/man1/*.1; do install_file 644 "$page" "$prefix/share/man/man1/${page##*/}"; done

printf 'Installed %s as %s\n' "$("$prefix/bin/dispatchq" --version)" "$prefix/bin/dispatchq"
case ":$PATH:" in
    *":$prefix/bin:"*) echo "Try it: dispatchq dev" ;;
    *) echo "Add $prefix/bin to PATH, then try it: dispatchq dev" ;;
esac
