#!/bin/bash
# signals.sh - the program is ended at any time, finds no room, and starts many times at once: afterwards it answers as before.
#   tests/signals.sh PROGRAM      prints 'ok NAME' or 'FAIL NAME: why' for each case and the counts at the end.
# Kernels are compiled by the processor's device, through a compiler that counts its runs and remembers what it made.
# SIGNALS_SEED=N draws other times (it is printed where a case fails), SIGNALS_ROUNDS=N more of them.
set -u
program=$(realpath "${1:?the program\'s path}")
data=$(realpath "$(dirname "$0")/data")
model=$data/e2b-f32.gguf
seed=${SIGNALS_SEED:-1} rounds=${SIGNALS_ROUNDS:-3}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export XDG_RUNTIME_DIR=$scratch XDG_STATE_HOME=$scratch/state XDG_CACHE_HOME=$scratch/cache TMPDIR=$scratch/tmp HOME=$scratch TERM=xterm LC_ALL=C.UTF-8
unset NO_COLOR BERYL_DEVICE BERYL_CAPS OLLAMA_MODELS
mkdir "$scratch/tmp" "$scratch/bin" "$scratch/made"
passed=0 failed=0 skipped=0 name=
RANDOM=$seed

ok() { echo "ok $name"; passed=$((passed + 1)); }
fail() { echo "FAIL $name: $* (SIGNALS_SEED=$seed)"; failed=$((failed + 1)); return 1; }
skip() { echo "skip $name ($*)"; skipped=$((skipped + 1)); }
end() { echo "$passed passed, $failed failed, $skipped skipped"; [ $failed = 0 ]; exit; }

# ---- a compiler that counts, and is quick the second time ---------------------------------------------
cc=$(command -v cc || command -v gcc || command -v clang)
name=signals/compiler
if [ -z "$cc" ]; then skip 'no C compiler'; end; fi
cat >"$scratch/bin/cc" <<END
#!/bin/sh
for word; do
    [ "\$word" = -o ] && source=\$last
    [ "\$last" = -o ] && output=\$word
    last=\$word
done
key=\$(md5sum <"\$source")
made=$scratch/made/\${key%% *}
echo "\$made" >>$scratch/compiled
if [ ! -e "\$made" ]; then
    $cc "\$@" -O0 && cp "\$output" "\$made.\$\$" && mv "\$made.\$\$" "\$made"
    exit
fi
sleep 0.02
exec cp "\$made" "\$output"
END
chmod 700 "$scratch/bin/cc"
export PATH=$scratch/bin:$PATH

ask=(run "$model" --device host --ids 2,10,11 --greedy --ignore-eos --max-tokens 6 --print-ids)
# Its exit code, output and messages are in $rc, $out and $err afterwards.
answer() {
    "$program" "${ask[@]}" >"$scratch/out" 2>"$scratch/err" </dev/null
    rc=$?
    out=$(cat "$scratch/out") err=$(cat "$scratch/err")
}
cold() { rm -rf "$XDG_CACHE_HOME" && mkdir "$XDG_CACHE_HOME"; }
# What nobody finished; what was compiled and what is known are no such things.
leftovers() { find "$XDG_CACHE_HOME" "$TMPDIR" -mindepth 1 \( -path "$TMPDIR/*" -o -name '*.part' -o -name '*.c' -o -name '*.o' \) 2>/dev/null; }

name=signals/first-answer
cold
answer
want=$out
if [ $rc != 0 ] && [[ $err =~ 'not usable'|'no device' ]]; then skip "$err"; end; fi
if [ $rc = 0 ] && [ "$err" = '' ] && [ -n "$want" ]; then ok; else fail "exit code $rc: $err"; end; fi
cold
before=$(date +%s%N)
answer
span=$((($(date +%s%N) - before) / 1000000)) # of a cold start, in ms

# ---- the end at any time --------------------------------------------------------------------------------
# SIGNAL CODES ARGUMENTS..: at a time drawn from a cold start's; then the next start is as every other, and nothing is left.
ended() {
    local signal=$1 codes=$2 at pid left
    shift 2
    cold
    at=$((RANDOM % (span + span / 4)))
    "$program" "$@" >"$scratch/out" 2>"$scratch/err" </dev/null &
    pid=$!
    sleep "$(printf '%d.%03d' $((at / 1000)) $((at % 1000)))"
    kill -"$signal" $pid 2>/dev/null
    wait $pid 2>/dev/null
    rc=$?
    [[ " $codes " == *" $rc "* ]] || fail "exit code $rc after SIG$signal at $at ms: $(cat "$scratch/err")" || return 1
    if [ "$signal" != KILL ]; then
        left=$(leftovers)
        [ -z "$left" ] || fail "SIG$signal at $at ms leaves $left" || return 1
    fi
    answer
    [ $rc = 0 ] && [ "$out" = "$want" ] || fail "after SIG$signal at $at ms the answer is $rc '$out', not '$want': $err" || return 1
    [ "$err" = '' ] || fail "after SIG$signal at $at ms it says $err" || return 1
    left=$(leftovers | wc -l)
    [ "$left" -le $([ "$signal" = KILL ] && echo 2 || echo 0) ] || fail "after SIG$signal at $at ms and another start there are $left: $(leftovers)"
}
# As documented (1: stopped), or by the signal; 0: it was done before. What was killed could put nothing away: a later start does,
# all but what it cannot know to be dead.
for pair in 'INT 0 1 130' 'TERM 0 143' 'KILL 0 137'; do
    signal=${pair%% *}
    name=signals/$signal-while-it-runs
    for ((i = 0; i < rounds; i++)); do ended "$signal" "${pair#* }" "${ask[@]}" || break; done && [ $i = "$rounds" ] && ok
    name=signals/$signal-while-it-tunes
    ended "$signal" "${pair#* }" tune "$model" --device host --tries 1 && ok
done

# Between two tasks: a video's decoder runs, which never ends, and kernels were compiled before.
printf '#!/bin/sh\necho $$ >%s\nexec sleep 600\n' "$scratch/decodes" >"$scratch/bin/ffprobe"
cp "$scratch/bin/ffprobe" "$scratch/bin/ffmpeg"
chmod 700 "$scratch/bin/ffprobe" "$scratch/bin/ffmpeg"
for pair in INT:130 TERM:143; do
    name=signals/${pair%:*}-between-two-tasks
    cold
    rm -f "$scratch/decodes"
    # asked by another process: a shell has what it starts in the background ignore SIGINT
    python3 - "${pair%:*}" "$program" run "$data/../../models/default.gguf" --device host --video "$model" hello >"$scratch/out" 2>"$scratch/err" <<END
import os, signal, subprocess, sys, time
program = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL)
while not os.path.exists('$scratch/decodes') and program.poll() is None: time.sleep(0.02)
program.send_signal(getattr(signal, 'SIG' + sys.argv[1]))
try:
    code = program.wait(60)
except subprocess.TimeoutExpired:
    program.kill()
    code = -signal.SIGKILL
sys.exit(code if code >= 0 else 128 - code)
END
    rc=$?
    left=$(leftovers)
    if [ $rc != "${pair#*:}" ]; then fail "exit code $rc: $(cat "$scratch/err")"
    elif [ -n "$left" ]; then fail "it leaves $left"
    elif kill -0 "$(cat "$scratch/decodes")" 2>/dev/null; then fail 'its decoder goes on'
    else ok; fi
done

# ---- the terminal afterwards --------------------------------------------------------------------------------
# In a chat, at its prompt and in the middle of an answer.
for signal in TERM HUP; do
    name=signals/$signal-gives-the-terminal-back
    said=$(timeout 300 python3 - "$signal" "$program" run "$model" --device reference --greedy --ignore-eos 2>&1 <<'END'
import os, pty, select, signal, sys, termios, time
number = getattr(signal, 'SIG' + sys.argv[1])
def until(fd, text):
    got = b''
    while text not in got:
        if not select.select([fd], [], [], 120)[0]: sys.exit('it says nothing: %r' % got)
        got += os.read(fd, 4096)
for answering in False, True:
    master, slave = pty.openpty()
    before = termios.tcgetattr(slave)
    pid = os.fork()
    if pid == 0:
        os.login_tty(slave) if hasattr(os, 'login_tty') else (os.setsid(), [os.dup2(slave, n) for n in (0, 1, 2)])
        os.execvp(sys.argv[2], sys.argv[2:])
    until(master, b'/help')
    for _ in range(1200):
        if termios.tcgetattr(slave) != before: break
        time.sleep(0.05)
    if answering:
        os.write(master, b'hello\r')
        until(master, b'hello')
        time.sleep(0.3)
    if termios.tcgetattr(slave) == before: sys.exit('nothing is to be given back')
    os.kill(pid, number)
    end = time.monotonic() + 20
    while (found := os.waitpid(pid, os.WNOHANG)) == (0, 0) and time.monotonic() < end:
        if select.select([master], [], [], 0.05)[0]: os.read(master, 4096)
    if found == (0, 0): os.kill(pid, signal.SIGKILL), os.waitpid(pid, 0), sys.exit('it goes on')
    if not os.WIFSIGNALED(found[1]) or os.WTERMSIG(found[1]) != number: sys.exit('it ended with %d' % found[1])
    if termios.tcgetattr(slave) != before: sys.exit('other modes, %s' % ('while it answered' if answering else 'at the prompt'))
    os.close(master), os.close(slave)
END
    )
    if [ -z "$said" ]; then ok; else fail "$said"; fi
done

# ---- no room ------------------------------------------------------------------------------------------------
# FOLDER SIZE PATTERN: a file system so small mounted there; the program goes on and says why, once.
no_room() {
    cold
    if ! unshare -m true 2>/dev/null; then skip 'nothing may be mounted here'; return; fi
    unshare -m sh -c 'mount -t tmpfs -o size="$1" none "$2" 2>/dev/null || exit 99; shift 2; exec "$@"' - "$2" "$1" \
        "$program" "${ask[@]}" >"$scratch/out" 2>"$scratch/err" </dev/null
    rc=$? out=$(cat "$scratch/out") err=$(cat "$scratch/err")
    if [ $rc = 99 ]; then skip 'nothing may be mounted here'; return; fi
    [ $rc = 0 ] && [ "$out" = "$want" ] || fail "exit code $rc, '$out', not '$want': $err" || return
    # A line for each thing that is not kept: kernels, and what is known of them.
    [ -n "$err" ] && [ "$(grep -cv "$3" "$scratch/err")" = 0 ] && [ "$(wc -l <"$scratch/err")" -le 2 ] && [ "$(sort "$scratch/err" | uniq -d)" = '' ] ||
        fail "it says: $err" || return
    ok
}
name=signals/no-room-for-the-cache
no_room "$XDG_CACHE_HOME" 64k '^beryl: warning: .*No space left'
name=signals/no-room-for-temporary-files
no_room "$TMPDIR" 16k '^beryl: warning: .*No space left'

# ---- many at once ---------------------------------------------------------------------------------------------
name=signals/eight-cold-starts-compile-once
cold
: >"$scratch/compiled"
pids=()
for i in 1 2 3 4 5 6 7 8; do
    "$program" "${ask[@]}" >"$scratch/out.$i" 2>"$scratch/err.$i" </dev/null &
    pids+=($!)
done
bad=
for i in 1 2 3 4 5 6 7 8; do
    wait "${pids[i - 1]}" && [ "$(cat "$scratch/out.$i")" = "$want" ] && [ ! -s "$scratch/err.$i" ] || bad="$bad $(cat "$scratch/out.$i" "$scratch/err.$i")"
done
twice=$(sort "$scratch/compiled" | uniq -d | wc -l)
if [ -n "$bad" ]; then fail "they answer $bad"
elif [ "$twice" != 0 ]; then fail "$twice of $(sort -u "$scratch/compiled" | wc -l) kernels were compiled more than once"
elif [ -n "$(leftovers)" ]; then fail "they leave $(leftovers)"
else ok; fi
end
