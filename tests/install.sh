#!/bin/sh
# install.sh - Beryl as those meet it who install it: into an empty folder, through pkg-config and CMake, with the
# program and every example run from there, and nothing left after uninstall. Called by `make test`.
set -eu
cd "$(dirname "$0")/.."
make=${MAKE:-make}
build=${BUILD:-build}
cc=${CC:-cc}
prefix=${PREFIX:-/usr/local}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
dest=$scratch/dest
root=$dest$prefix
work=$scratch/work
mkdir -p "$work"

fail() { printf 'FAIL install: %s\n' "$*"; exit 1; }
step() { printf 'install: %s\n' "$*"; }
in_tree() { find "$dest" ! -type d | sed "s|^$dest||" | LC_ALL=C sort; }

mkdir -p "$root/share/man/man1" && : >"$root/share/man/man1/other.1" # somebody else's
"$make" --no-print-directory install BUILD="$build" DESTDIR="$dest" PREFIX="$prefix" >"$work/log" 2>&1 || { cat "$work/log"; fail 'make install'; }

step 'what a user needs is there, and nothing is broken'
for file in bin/beryl lib/libberyl.a lib/libberyl.so lib/libberyl.so.0 lib/beryl/libwgpu_native.so \
    lib/beryl/THIRD_PARTY_NOTICES.md lib/beryl/LICENSE.wgpu-py include/beryl.h include/beryl_graph.h \
    lib/pkgconfig/beryl.pc lib/cmake/beryl/beryl-config.cmake share/man/man1/beryl.1 share/man/man3/libberyl.3 \
    share/bash-completion/completions/beryl share/zsh/site-functions/_beryl \
    share/fish/vendor_completions.d/beryl.fish share/beryl/models/default.gguf; do
    [ -s "$root/$file" ] || fail "$file is missing or empty"
    case $(readlink "$root/$file" || true) in /*) fail "$file leads out of the installed tree" ;; esac
done
bash -n "$root/share/bash-completion/completions/beryl"
if command -v zsh >/dev/null; then zsh -n "$root/share/zsh/site-functions/_beryl"; fi
if command -v fish >/dev/null; then fish -n "$root/share/fish/vendor_completions.d/beryl.fish"; fi
for command in run show list devices bench tokenize render logits perplexity selftest ops; do
    for file in share/man/man1/beryl.1 share/bash-completion/completions/beryl share/zsh/site-functions/_beryl \
        share/fish/vendor_completions.d/beryl.fish; do
        grep -q "$command" "$root/$file" || fail "$file does not know '$command'"
    done
done

step 'only beryl_ names are seen from outside'
seen() { awk '$2 ~ /^[A-TV-Z]$/ && $3 !~ /^beryl_/ { print $3 }'; }
names=$(nm -D --defined-only "$root/lib/libberyl.so" | seen)
[ -z "$names" ] || fail "libberyl.so shows $names"
names=$(nm -g --defined-only "$root/lib/libberyl.a" 2>/dev/null | seen)
[ -z "$names" ] || fail "libberyl.a shows $names"
[ "$(readelf -d "$root/lib/libberyl.so" | sed -n 's/.*soname: \[\(.*\)\]/\1/p')" = libberyl.so.0 ] || fail 'SONAME'
# Each function that the headers promise is in both forms.
nm -D --defined-only "$root/lib/libberyl.so" | awk '{ print $3 }' >"$work/shared"
nm -g --defined-only "$root/lib/libberyl.a" | awk '{ print $3 }' >"$work/static"
sed -n '/^BERYL_API/,/;/p' "$root"/include/beryl*.h | grep -oE 'beryl_[a-z0-9_]+\(' | tr -d '(' | sort -u >"$work/promised"
[ -s "$work/promised" ] || fail 'no promised functions found'
while read -r name; do
    for form in shared static; do grep -qx "$name" "$work/$form" || fail "$name is in no $form library"; done
done <"$work/promised"

step 'the program finds its library and its model'
export HOME="$work" LD_LIBRARY_PATH=
version=$("$root/bin/beryl" --version) || fail 'beryl --version'
case $version in *"$(sed -n 's/^#define BERYL_VERSION "\(.*\)"/\1/p' include/beryl.h)"*) ;; *) fail "version is '$version'" ;; esac
mkdir -p "$work/elsewhere"
(cd "$work/elsewhere" && "$root/bin/beryl" devices && "$root/bin/beryl" list) >"$work/log" 2>&1 || { cat "$work/log"; fail 'beryl devices, beryl list'; }
grep -q webgpu "$work/log" || { cat "$work/log"; fail 'no WebGPU device from the installed tree'; }

step 'examples, through pkg-config, against the shared and the static library'
PKG_CONFIG_PATH=$root/lib/pkgconfig
PKG_CONFIG_SYSROOT_DIR=$dest
export PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 PKG_CONFIG_ALLOW_SYSTEM_LIBS=1
[ "$(pkg-config --modversion beryl)" = "$(sed -n 's/^#define BERYL_VERSION "\(.*\)"/\1/p' include/beryl.h)" ] || fail 'pkg-config version'
flags=$(pkg-config --cflags beryl)
libs=$(pkg-config --libs beryl)
for source in examples/*.c; do
    name=$(basename "$source" .c)
    # shellcheck disable=SC2086  # lists of flags
    $cc -std=c11 -Wall -Wextra -Werror $flags "$source" $libs -o "$work/$name" || fail "$source does not build"
    # shellcheck disable=SC2086
    $cc -std=c11 $flags "$source" "$root/lib/libberyl.a" -lm -ldl -lpthread -o "$work/$name-static" || fail "$source does not build statically"
    # The built-in model is looked for beside the program and where PREFIX says, and an example is in neither place.
    (cd "$work/elsewhere" && LD_LIBRARY_PATH="$root/lib" BERYL_MODEL="$root/share/beryl/models/default.gguf" timeout 300 "$work/$name") >"$work/$name.out" 2>&1 || { cat "$work/$name.out"; fail "$name"; }
    [ -s "$work/$name.out" ] || fail "$name says nothing"
    printf '  %s: %s\n' "$name" "$(head -n 1 "$work/$name.out" | cut -c1-100)"
done
grep -q Paris "$work/chat.out" || fail 'the built-in model knows the capital of France'

step 'CMake'
if command -v cmake >/dev/null; then
    mkdir "$work/cmake"
    cp examples/chat.c "$work/cmake/"
    cat >"$work/cmake/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.16)
project(probe C)
find_package(beryl 0.1 REQUIRED CONFIG)
add_executable(shared chat.c)
target_link_libraries(shared beryl::beryl)
add_executable(static chat.c)
target_link_libraries(static beryl::static)
END
    { cmake -S "$work/cmake" -B "$work/cmake/build" -DCMAKE_C_COMPILER="${cc##* }" -Dberyl_DIR="$root/lib/cmake/beryl" &&
        cmake --build "$work/cmake/build"; } >"$work/log" 2>&1 || { cat "$work/log"; fail CMake; }
else
    echo 'skip install/cmake (no cmake)'
fi

step 'uninstall leaves what it did not bring, and nothing else'
"$make" --no-print-directory uninstall BUILD="$build" DESTDIR="$dest" PREFIX="$prefix" >/dev/null
left=$(in_tree)
[ "$left" = "$prefix/share/man/man1/other.1" ] || fail "left behind: $left"
step good
