#!/bin/bash
# all.sh - runs commands one after the other, also where one fails, and closes with one line of all their counts.
#   tests/all.sh COMMAND...      a command that closes with no line of counts is one test
set -u -o pipefail
log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0 failed=0 skipped=0
line='([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped'

for command in "$@"; do
    started=$SECONDS ok=1 p=0 f=0 s=0
    bash -c "$command" | tee "$log" | sed -uE "s/^$line\$/  &/"
    [ "${PIPESTATUS[0]}" = 0 ] || ok=0
    counts=$(sed -nE "s/^$line\$/\1 \2 \3/p" "$log" | tail -n 1)
    read -r p f s <<<"${counts:-$ok $((1 - ok)) 0}"
    # A failure that no case was blamed for is one more.
    if [ $ok = 0 ] && [ "$f" = 0 ]; then f=1; fi
    if [ "$f" != 0 ]; then echo "FAIL $command: see above"; fi
    printf '== %s: %d s\n' "$command" $((SECONDS - started))
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
