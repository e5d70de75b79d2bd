#!/bin/sh
# web.sh - the browser package built and tested, as one part of `make test`: under Node, Deno and in a headless Chromium.
# What cannot be had on this machine (tools/setup tries) is skipped, and says so.
set -eu
cd "$(dirname "$0")/.."
PATH=$PWD/third_party/node/bin:$PATH

if ! npm --version >/dev/null 2>&1 || ! node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2>/dev/null; then
    echo 'skip web (no Node 20.19 or later with npm)'
    echo '0 passed, 0 failed, 1 skipped'
    exit
fi
"${MAKE:-make}" --no-print-directory BUILD="${BUILD:-build}" web
cd app/web
npm run --silent check
npm test --silent
