#!/bin/bash
# all.sh - runs commands one after the other, also where one fails, and closes with one line of all their counts.
#   tests/all.sh COMMAND... [-- COMMAND...]     what stands behind -- runs beside the others, its output comes after theirs
# A command that closes with no line of counts is one test.
set -u -o pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'kill 0' INT
line='([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped'

run() {
    local command=$1 ok=1 p=0 f=0 s=0 counts log
    local TIMEFORMAT="== ${command//%/%%}: %0R s (%0U s and %0S s of the processors)"
    log=$(mktemp -p "$folder")
    time bash -c "$command" | tee "$log" | sed -uE "s/^$line\$/  &/"
    [ "${PIPESTATUS[0]}" = 0 ] || ok=0
    counts=$(sed -nE "s/^$line\$/\1 \2 \3/p" "$log" | tail -n 1)
    read -r p f s <<<"${counts:-$ok $((1 - ok)) 0}"
    # A failure that no case was blamed for is one more.
    if [ $ok = 0 ] && [ "$f" = 0 ]; then f=1; fi
    if [ "$f" != 0 ]; then echo "FAIL $command: see above"; fi
    echo "$p $f $s" >>"$folder/counts"
}

first=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do first+=("$1") && shift; done
for command in "${@:2}"; do run "$command" >"$(mktemp "$folder/beside.XXXX")" 2>&1 & done
for command in "${first[@]}"; do run "$command"; done
wait
if [ $# -gt 1 ]; then cat "$folder"/beside.*; fi

passed=0 failed=0 skipped=0
while read -r p f s; do passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s)); done <"$folder/counts"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
