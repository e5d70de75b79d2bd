#!/bin/sh
# install.sh - Beryl as those meet it who install it: into an empty folder, through pkg-config and CMake, with the
# program and every example run from there, nothing left after uninstall, and without what is optional. Called by `make test`.
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
    include/beryl_onnx.h include/beryl_train.h \
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
libs="$(pkg-config --libs beryl) -lm"
static=$(pkg-config --static --libs-only-l beryl | sed 's/-lberyl//')
for source in examples/*.c; do
    name=$(basename "$source" .c)
    # shellcheck disable=SC2086  # lists of flags
    $cc -std=c11 -Wall -Wextra -Werror $flags "$source" $libs -o "$work/$name" || fail "$source does not build"
    # shellcheck disable=SC2086
    $cc -std=c11 $flags "$source" "$root/lib/libberyl.a" $static -o "$work/$name-static" || fail "$source does not build statically"
    # Of the two that learn for longest, a draw runs one.
    case ${BERYL_TEST_DRAW:+$((BERYL_TEST_DRAW % 2))}$name in 0gpt | 1resnet) continue ;; esac
    # The built-in model is looked for beside the program and where PREFIX says, and an example is in neither place.
    (cd "$work/elsewhere" && LD_LIBRARY_PATH="$root/lib" BERYL_MODEL="$root/share/beryl/models/default.gguf" timeout 300 env -u XDG_RUNTIME_DIR "$work/$name") >"$work/$name.out" 2>"$work/$name.err" ||
        { cat "$work/$name.out" "$work/$name.err"; fail "$name"; }
    [ -s "$work/$name.out" ] || fail "$name says nothing"
    [ ! -s "$work/$name.err" ] || { cat "$work/$name.err"; fail "$name prints to stderr without XDG_RUNTIME_DIR"; }
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

step "README's program, by README's line, from a private PREFIX"
private=$scratch/private
cp -R "$root" "$private"
"$make" --no-print-directory BUILD="$work/gen" PREFIX="$private" "$work/gen/gen/beryl.pc" >"$work/log" 2>&1 || { cat "$work/log"; fail beryl.pc; }
cp "$work/gen/gen/beryl.pc" "$private/lib/pkgconfig/"
sed -n '/^```c$/,/^```$/p' README.md | sed '1d;$d' >"$work/program.c"
line=$(sed -n 's/^    \(cc program.c .*\)/\1/p' README.md)
[ -s "$work/program.c" ] && [ -n "$line" ] || fail 'README has no program, or no line'
run_program() { # in a plain environment; nothing may come on stderr
    env -u LD_LIBRARY_PATH -u XDG_RUNTIME_DIR BERYL_MODEL="$private/share/beryl/models/default.gguf" timeout 300 "$work/program" >"$work/program.out" 2>"$work/program.err" || return 1
    [ -s "$work/program.out" ] && [ ! -s "$work/program.err" ]
}
(cd "$work" && unset PKG_CONFIG_SYSROOT_DIR PKG_CONFIG_ALLOW_SYSTEM_CFLAGS PKG_CONFIG_ALLOW_SYSTEM_LIBS && PKG_CONFIG_PATH=$private/lib/pkgconfig && eval "$line") || fail "$line"
run_program || { cat "$work/program.err"; fail "README's program"; }
"$make" --no-print-directory BUILD="$work/gen" PREFIX=/usr "$work/gen/gen/beryl.pc" >/dev/null && ! grep -q rpath "$work/gen/gen/beryl.pc" || fail 'a path of the system is written into programs'

step 'without wgpu-native: told by make and by beryl devices; other devices work'
"$make" --no-print-directory install WGPU=none.so BUILD="$build" DESTDIR="$scratch/none" PREFIX="$prefix" >"$work/log" 2>&1 || { cat "$work/log"; fail 'make install'; }
grep -q 'without WebGPU' "$work/log" || { cat "$work/log"; fail 'make does not tell'; }
VK_ICD_FILENAMES=/none VK_DRIVER_FILES=/none "$private/bin/beryl" devices >"$work/log" 2>&1 && grep -q '^webgpu  *not usable: no Vulkan driver' "$work/log" || { cat "$work/log"; fail 'beryl devices does not tell of drivers'; }
rm "$private/lib/beryl/libwgpu_native.so"
"$private/bin/beryl" devices >"$work/log" 2>&1 && grep -q '^webgpu  *not usable: libwgpu_native.so is not there' "$work/log" || { cat "$work/log"; fail 'beryl devices does not tell'; }
run_program || { cat "$work/program.err"; fail "README's program"; }

step 'without libedit: seen and told by make; the chat reads plain lines'
[ -z "$("$make" --no-print-directory -pn CC="$cc -nostdinc" help | sed -n 's/^LIBEDIT := *//p')" ] || fail 'libedit is seen where its header is not'
"$make" --no-print-directory BUILD="$build" CC="$cc" LIBEDIT= PROGRAM="$work/plain" "$work/plain" >"$work/log" 2>&1 || { cat "$work/log"; fail 'it does not build'; }
grep -q 'without libedit' "$work/log" || { cat "$work/log"; fail 'make does not tell'; }
if command -v script >/dev/null; then
    printf 'hello\n"""two\nlines"""\n/save %s\n/bye\n' "$work/chat.json" |
        timeout 300 script -qec "$work/plain run $private/share/beryl/models/default.gguf --max-tokens 4" /dev/null >"$work/log" 2>&1 || { cat "$work/log"; fail 'chat'; }
    grep -qF 'two\nlines' "$work/chat.json" || { cat "$work/log"; fail 'messages differ from what was typed'; }
else
    echo 'skip install/plain-lines (no script)'
fi

step 'setup names a failure of TLS'
mkdir -p "$work/fresh/tools" "$work/bin"
cp tools/setup "$work/fresh/tools/"
cat >"$work/bin/python3" <<'END'
#!/bin/sh
case "$*" in *--version*) exit 0 ;; esac
echo "WARNING: Retrying (Retry(total=0)) after connection broken by 'SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate in certificate chain (_ssl.c:992)'))': /simple/wgpu/" >&2
echo 'ERROR: No matching distribution found for wgpu' >&2
exit 1
END
chmod +x "$work/bin/python3"
! PATH=$work/bin:$PATH "$work/fresh/tools/setup" wgpu 2>"$work/log" || fail 'it succeeded'
grep -q 'TLS.*self-signed certificate' "$work/log" && grep -q 'PIP_CERT=' "$work/log" && ! grep -q Retrying "$work/log" || { cat "$work/log"; fail 'the reason or the remedy is not there'; }

step 'uninstall leaves what it did not bring, and nothing else'
"$make" --no-print-directory uninstall BUILD="$build" DESTDIR="$dest" PREFIX="$prefix" >/dev/null
left=$(in_tree)
[ "$left" = "$prefix/share/man/man1/other.1" ] || fail "left behind: $left"
step good
