#!/bin/bash
# cli.sh - the program as a person or another program meets it: fixed forms, exit codes, standard streams, terminals.
#   tests/cli.sh PROGRAM      prints 'ok NAME' or 'FAIL NAME: why' for each case and the counts at the end.
# Numbers are judged by other suites; the small fixtures on the reference device are enough here. CLI_DEVICE names
# another device, CLI_DATA another folder of fixtures.
set -u
program=$(realpath "${1:?the program\'s path}")
data=$(realpath "${CLI_DATA:-$(dirname "$0")/data}")
device=${CLI_DEVICE:-reference}
model=$data/e2b-f32.gguf
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export XDG_RUNTIME_DIR=$scratch XDG_STATE_HOME=$scratch/state XDG_CACHE_HOME=$scratch/cache HOME=$scratch TERM=xterm LC_ALL=C.UTF-8
unset NO_COLOR BERYL_DEVICE OLLAMA_MODELS
passed=0 failed=0 skipped=0 name=

ok() { echo "ok $name"; passed=$((passed + 1)); }
fail() { echo "FAIL $name: $*"; failed=$((failed + 1)); return 1; }
skip() { echo "skip $name ($*)"; skipped=$((skipped + 1)); }
# Runs the program; its exit code, output and messages are in $rc, $out and $err afterwards.
run() {
    "$program" "$@" >"$scratch/out" 2>"$scratch/err" </dev/null
    rc=$?
    out=$(tr -d '\0' <"$scratch/out") err=$(cat "$scratch/err")
}
code() { [ "$rc" = "$1" ] || fail "exit code $rc, not $1: $err"; }
same() { [ "$1" = "$2" ] || fail "'$1' is not '$2'"; }
like() { [[ $1 =~ $2 ]] || fail "'$1' is not like '$2'"; }
json() { python3 -m json.tool >/dev/null 2>&1 || fail 'not JSON'; }
have() { command -v "$1" >/dev/null; }
# On a terminal of its own: output and messages together in $out. What it types comes from standard input.
# 'exec': a shell that waited beside the program would get its Ctrl-C too, and not every shell lives through that.
on_terminal() {
    local line
    printf -v line '%q ' "$program" "$@"
    script -qec "exec $line" /dev/null >"$scratch/out" 2>&1
    rc=$?
    out=$(tr -d '\r' <"$scratch/out")
}

# Waits, types, waits, types ...
types() {
    while [ $# -gt 0 ]; do
        sleep "$1"
        printf '%b' "${2:-}"
        shift $(($# > 1 ? 2 : 1))
    done
}

# ---- wrong use: code 2, one line on stderr, nothing on stdout ------------------------------------------
refused() { # NAME ARGUMENTS..
    name=cli/refuses-$1
    shift
    run "$@"
    code 2 && same "$out" '' && like "$err" '^beryl: ' && same "$(wc -l <"$scratch/err")" 1 && ok
}
refused unknown-command frobnicate
refused flag-before-command --json list
refused unknown-flag run --frobnicate
refused flag-of-another-command list --greedy
refused device-of-the-list-of-devices devices --device nonsense
refused device-of-the-list-of-operations ops --device nonsense
refused context-of-single-operations bench-ops --context 8
refused missing-value run --max-tokens
refused bad-number run --max-tokens 3x hello
refused number-too-large run --max-tokens 4294967296 hello
refused negative-number run --max-tokens -1 hello
refused bad-size run --memory lots hello
refused bad-choice run --precision medium hello
refused bad-ids logits --ids 2,,3 --out /dev/null
refused ids-and-prompt run "$model" hello --ids 2
refused logits-without-file logits "$model" --ids 2
refused logits-without-prompt logits "$model" --out /dev/null
refused text-and-decode tokenize "$model" --text a --decode 1
refused too-many-arguments run a b c
refused perplexity-without-file perplexity
refused empty-prompt run "$model" ''
refused empty-standard-input run "$model"
refused zero-repetitions bench "$model" -r 0
refused zero-sessions bench "$model" -b 0
refused nothing-to-measure bench "$model" -p 0 -n 0
refused switch-with-value list --json=1
refused temperature-below-zero run "$model" hello --temperature -1
refused standard-input-twice run --image - --audio - hello
refused embed-media-without-file embed-media --image /dev/null
refused embed-media-of-nothing embed-media --out /dev/null
refused unknown-help help frobnicate

refused 'name-with-one-dash' run "$model" -temperature 0

meant() { # NAME PATTERN ARGUMENTS..
    name=cli/did-you-mean-$1
    local pattern=$2
    shift 2
    run "$@"
    code 2 && like "$err" "$pattern" && same "$(wc -l <"$scratch/err")" 1 && ok
}
meant command "no command 'shwo': did you mean 'show'\?" shwo
meant command-begun "did you mean 'perplexity'\?" perp
meant command-to-help-with "did you mean 'tokenize'\?" help tokenise
meant flag "run has no flag '--tempature=1': did you mean --temperature\?" run --tempature=1
meant flag-with-two-dashes "no flag '-greedy': did you mean --greedy\?" run -greedy
meant nothing-alike "^beryl: no command 'frobnicate'; see" frobnicate
meant no-flag-of-another-command "^beryl: list has no flag '--greedy'; see" list --greedy

name=cli/nothing-given-shows-commands
run
code 2 && like "$err" 'usage: beryl COMMAND' && same "$out" '' && ok

# ---- what needs no model ------------------------------------------------------------------------------
name=cli/version
run --version
code 0 && like "$out" '^beryl [0-9]+\.[0-9]+\.[0-9]+$' && ok

for command in run show list devices bench tokenize render logits embed-media perplexity selftest explain trace tune bench-ops merge adapter ops eval; do
    name=cli/help-of-$command
    run help $command
    first=$out
    code 0 && like "$out" 'flags:' && run $command --help && code 0 && same "$out" "$first" && ok
done

name=cli/help-fits-80-columns
wide=$(for command in run bench tokenize; do "$program" help $command; done | grep -v '^  beryl' | awk 'length > 80')
same "$wide" '' && ok

name=cli/manual
run help --man
code 0 && like "$out" '^\.TH' && for command in run bench perplexity; do
    like "$out" ".SS .*beryl $command" || break
done && ok

name=cli/completions
bad=
for shell in bash zsh fish; do
    "$program" help --completion $shell >"$scratch/completion.$shell" || bad="$bad $shell"
    grep -q precision "$scratch/completion.$shell" || bad="$bad $shell"
    if have $shell && [ $shell != zsh ]; then $shell -n "$scratch/completion.$shell" || bad="$bad $shell"; fi
done
same "$bad" '' && ok

name=cli/completion-of-bash-knows-flags
words=$(bash -c ". '$scratch/completion.bash'; COMP_WORDS=(beryl bench --n-g) COMP_CWORD=2; _beryl; echo \${COMPREPLY[*]}" 2>&1)
same "$words" '--n-gen' && ok

name=cli/ops
run ops
code 0 && like "$out" 'rms_norm .* reference, cuda, webgpu, hip, opencl, host ' && run ops --json && json <"$scratch/out" && run ops --markdown && like "$out" '^\| operation' && ok

name=cli/devices
run devices
code 0 && like "$out" 'reference' && like "$out" 'keeps memory, runs no programs' && [[ $out != *'largest buffer'* ]] && run devices --json && code 0 && json <"$scratch/out" && like "$out" '"fragments":' && like "$out" '"workgroup_bytes":' &&
    run devices -v && like "$out" 'largest buffer' && ok

name=cli/list
run list --json
code 0 && json <"$scratch/out" && like "$out" '"default"' && ok

# ---- failures: code 1, one line that says what to do ------------------------------------------------------
failing() { # NAME PATTERN ARGUMENTS..
    name=cli/$1
    local pattern=$2
    shift 2
    run "$@"
    code 1 && like "$err" '^beryl: ' && like "$err" "$pattern" && same "$(wc -l <"$scratch/err")" 1 && ok
}
head -c 5000 "$model" >"$scratch/cut.gguf"
echo 'no model' >"$scratch/text.gguf"
printf '[1,' >"$scratch/broken.json"
failing unknown-model 'frobnicate' show frobnicate
failing truncated-model '.' show "$scratch/cut.gguf"
failing not-a-model '.' show "$scratch/text.gguf"
failing one-word-is-a-model '"Hi" is taken as the model.s name: no model Hi' run Hi
failing unknown-device 'is called "frobnicate"' run "$model" --ids 2 --max-tokens 1 --device frobnicate
failing device-that-runs-no-programs 'disk:0 keeps memory but runs no programs' run "$model" --ids 2 --device disk
for command in bench selftest trace tune explain; do
    failing $command-runs-no-programs 'disk:0 keeps memory' $command "$model" --device disk
done
failing perplexity-runs-no-programs 'disk:0 keeps memory' perplexity "$model" "$0" --device disk
failing logits-runs-no-programs 'disk:0 keeps memory' logits "$model" --ids 2 --out "$scratch/none.npy" --device disk
failing bench-ops-wrong-shape-is-told-once 'M,N,K' bench-ops linear --shape 1,2 --device reference
failing words-for-kinds-are-no-names 'no device is called "cpu:0"' bench-ops add --device cpu:0

name=cli/device-cpu-and-gpu
# What the list has first of each kind.
run devices --json
first() { python3 -c 'import json, sys
fits = [d for d in json.load(open(sys.argv[1])) if d["usable"] and d["language"] and (d["kind"] in ("host", "software")) == (sys.argv[2] == "cpu")]
print(fits[0]["backend"] + ":" + str(fits[0]["index"]) if fits else "")' "$scratch/out" "$1"; }
cpu=$(first cpu) gpu=$(first gpu)
for kind in cpu gpu; do
    run run "$model" --ids 2 --max-tokens 1 --print-ids --device $kind -v
    if [ -n "${!kind}" ]; then code 0 && like "$err" "device ${!kind}: " || break
    elif [ $kind = gpu ]; then code 1 && like "$err" '^beryl: there is no GPU that can be used' || break
    else code 1 || break
    fi
done && ok

failing reference-is-one 'no device is called "reference:1"' bench-ops add --device reference:1
failing nothing-behind-the-colon 'no device is called "host:"' bench-ops add --device host:
failing bench-ops-runs-no-programs 'disk:0 keeps memory' bench-ops add --device disk
failing no-such-file 'nothere' tokenize "$model" --file "$scratch/nothere"
echo '{"messages":[],"temperature":1}' >"$scratch/more.json"
echo '{"messages":[{"role":"user","content":"x","contnet":"y"}]}' >"$scratch/typo.json"
failing unknown-key-of-a-conversation 'more.json: an unknown key "temperature"; known are messages, tools' run "$model" --chat "$scratch/more.json"
failing unknown-key-of-a-message 'messages\[0\].contnet: an unknown key; known are role, content' run "$model" --chat "$scratch/typo.json" --device "$device"
failing unknown-key-to-render 'the conversation, temperature: an unknown key' render "$model" --chat "$scratch/more.json"
failing broken-conversation '.' render "$model" --chat "$scratch/broken.json"
failing id-outside-vocabulary '.' run "$model" --ids 2,2000000000 --max-tokens 1 --device "$device"
failing unwritable-logits 'nothere' logits "$model" --ids 2 --out "$scratch/nothere/x.npy" --device "$device"

name=cli/full-disk-is-reported
if [ -w /dev/full ]; then
    "$program" tokenize "$model" --text hello >/dev/full 2>"$scratch/err"
    rc=$? err=$(cat "$scratch/err")
    code 1 && like "$err" '^beryl: ' && ok
else
    skip 'no /dev/full'
fi

# ---- pictures, sound, video: towers are found beside the model ---------------------------------------------
failing no-such-picture 'there is no file none.png' run --image none.png hello
seen=("$data/e2b-mmproj.gguf" --device "$device") picture=$data/e2b-mmproj.0.png
failing text-as-a-picture 'not a picture file of a known format' embed-media "${seen[@]}" --image "$0" --out "$scratch/soft.npy"
failing sound-as-a-picture 'a WAV file is not a picture file' embed-media "${seen[@]}" --image "$data/e2b-mmproj.0.wav" --out "$scratch/soft.npy"
failing no-tower 'this model has no tower for pictures' embed-media "$model" --device "$device" --image "$picture" --out "$scratch/soft.npy"

name=cli/show-tells-what-it-takes
run show "$data/e2b-mmproj.gguf"
code 0 && like "$out" 'takes +text, pictures, video, sound' && run show "$model" && like "$out" 'takes +text
' && ok

name=cli/embed-media
run embed-media "${seen[@]}" --image "$picture" --audio "$data/e2b-mmproj.0.wav" --image-budget 70 --out "$scratch/soft.npy"
"$program" embed-media "${seen[@]}" --image - --image-budget 70 --out - <"$picture" >"$scratch/piped.npy" 2>"$scratch/err"
code 0 && same "$(head -c 6 "$scratch/soft.npy" | tail -c 5)" NUMPY && same "$(head -c 8 "$scratch/piped.npy" | tail -c 7 | head -c 5)" NUMPY &&
    [ "$(wc -c <"$scratch/piped.npy")" -lt "$(wc -c <"$scratch/soft.npy")" ] && ok

name=cli/a-clip-needs-no-words
heard() { run run "${seen[@]}" --greedy --ignore-eos --max-tokens 1 --print-ids --audio "$@"; }
heard "$data/e2b-mmproj.0.wav" ''
asked=$out
"$program" run "${seen[@]}" --greedy --ignore-eos --max-tokens 1 --print-ids --audio - <"$data/e2b-mmproj.0.wav" >"$scratch/piped" 2>"$scratch/err"
code 0 && like "$asked" '^[0-9]+$' && same "$(cat "$scratch/piped")" "$asked" && heard "$data/e2b-mmproj.0.wav" && code 0 && same "$out" "$asked" && ok

# Stand-ins for ffprobe and ffmpeg: two frames of 48 x 48.
mkdir "$scratch/tools" "$scratch/nothing"
cat >"$scratch/tools/ffprobe" <<'END'
#!/bin/sh
case " $* " in *' file:'*) echo 2.000 ;; *) exit 1 ;; esac
END
cat >"$scratch/tools/ffmpeg" <<'END'
#!/bin/sh
case " $* " in *'broken'*) echo 'first line' >&2; echo 'moov atom not found' >&2; exit 1 ;; esac
for _ in 1 2; do printf 'P6\n48 48\n255\n'; head -c 6912 /dev/zero; done
END
chmod +x "$scratch"/tools/*
: >"$scratch/-film.mp4" && : >"$scratch/broken.mp4"
name=cli/video
film() {
    PATH=$1 "$program" run "${seen[@]}" --video "$2" --greedy --ignore-eos --max-tokens 1 --print-ids hello >"$scratch/out" 2>"$scratch/err" </dev/null
    rc=$? err=$(cat "$scratch/err")
}
film "$scratch/tools:$PATH" "$scratch/-film.mp4"
code 0 && film "$scratch/tools:$PATH" "$scratch/broken.mp4" && code 1 && like "$err" 'ffmpeg: moov atom not found' &&
    film "$scratch/nothing" "$scratch/-film.mp4" && code 1 && like "$err" 'videos need ffprobe \(Debian: ffmpeg\)' && ok

# ---- files, tokens, chat form ---------------------------------------------------------------------------
name=cli/paths-without-dots
run show
code 0 && like "$out" 'default.gguf' && [[ $out != *'/../'* ]] && run list && [[ $out != *'/../'* ]] && run devices -v && [[ $out != *'/../'* ]] && ok

name=cli/show
run show "$model"
code 0 && like "$out" 'architecture  gemma4' && run show "$model" --tensors --metadata && like "$out" 'blk.0.attn_q.weight' && ok

name=cli/show-tells-what-does-not-run
run show "$data/e2b-mmproj.mmproj.gguf" --tensors
code 0 && like "$out" 'architecture  clip' && like "$out" 'runs          no' && like "$out" 'why not       this file holds the vision' && like "$out" 'v\.' &&
    run show "$data/e2b-mm.gguf" && like "$out" 'takes         text, pictures, video, sound' && like "$out" 'runs          yes' &&
    run show "$data/e2b-f32.ref.gguf" --json && json <"$scratch/out" && like "$out" '"runs":false,"why_not":"architecture' && ok

name=cli/show-json
run show "$model" --tensors --json
code 0 && json <"$scratch/out" && ok
n_vocab=$(sed -n 's/.*"n_vocab":\([0-9]*\).*/\1/p' "$scratch/out")

name=cli/tokenize-round-trip
run tokenize --text 'Hello there, 3 cats!'
ids=$out
code 0 && like "$ids" '^[0-9]+(,[0-9]+)*$' && run tokenize --decode "$ids" && same "$out" 'Hello there, 3 cats!' && ok

name=cli/tokenize-standard-input
same "$(printf 'Hello there, 3 cats!' | "$program" tokenize)" "$ids" && ok

name=cli/tokenize-json
run tokenize --text hello --json
code 0 && json <"$scratch/out" && ok

name=cli/tokenize-special
run tokenize --text '<bos>' --special
special=$out
run tokenize --text '<bos>'
same "$special" 2 && [[ $out != 2 ]] && like "$out" ',' && ok

name=cli/tokenize-nothing
run tokenize --text ''
code 0 && same "$out" '' && ok

name=cli/render-is-exact
cat >"$scratch/chat.json" <<'END'
{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":" Hi <bos> "}],"generate":true}
END
printf '<bos><|turn>system\nBe brief.<turn|>\n<|turn>user\nHi <bos><turn|>\n<|turn>model\n' >"$scratch/want"
run render --chat "$scratch/chat.json"
code 0 && { cmp -s "$scratch/out" "$scratch/want" || fail "$out"; } && ok

name=cli/render-ids-decode-to-the-prompt
run render --chat "$scratch/chat.json" --ids
ids=$out
run tokenize --special --decode "$ids"
same "$out" "$(cat "$scratch/want")" && same "$(tr ',' '\n' <<<"$ids" | grep -cx 2)" 1 && ok

name=cli/render-json
run render --chat "$scratch/chat.json" --json
code 0 && json <"$scratch/out" && ok

# ---- logits and ids -----------------------------------------------------------------------------------------
name=cli/logits-file
run logits "$model" --ids 2,10,11 --out "$scratch/a.npy" --device "$device" --precision exact
code 0 && same "$out" '' && { python3 - "$scratch/a.npy" "$n_vocab" >"$scratch/argmax" || fail 'the file is not as it should be'; } <<'END' && ok
import ast, math, struct, sys
data = open(sys.argv[1], 'rb').read()
assert data[:8] == b'\x93NUMPY\x01\x00'
size = struct.unpack('<H', data[8:10])[0]
head = ast.literal_eval(data[10:10 + size].decode())
assert (10 + size) % 64 == 0 and data[9 + size:10 + size] == b'\n'
assert head['descr'] in ('<f4', '>f4') and head['fortran_order'] is False
n, v = head['shape']
assert (n, v) == (3, int(sys.argv[2])), head
values = struct.unpack(head['descr'][0] + 'f' * (n * v), data[10 + size:])
assert all(map(math.isfinite, values)) and len(set(values)) > v
last = values[-v:]
print(last.index(max(last)))
END

name=cli/logits-to-standard-output
run logits "$model" --ids 2,10,11 --out - --device "$device" --precision exact 2>/dev/null
code 0 && { cmp -s "$scratch/out" "$scratch/a.npy" || fail 'differs from the file'; } && ok

name=cli/logits-in-pieces
run logits "$model" --ids 2,10,11 --out "$scratch/b.npy" --piece 1 --device "$device" --precision exact
code 0 && same "$(stat -c %s "$scratch/a.npy")" "$(stat -c %s "$scratch/b.npy")" && ok

name=cli/ids-in-ids-out
run run "$model" --ids 2,10,11 --greedy --ignore-eos --max-tokens 6 --print-ids --device "$device" --precision exact
new=$out
code 0 && like "$new" '^[0-9]+(,[0-9]+){5}$' && same "$(wc -l <"$scratch/out")" 1 && same "${new%%,*}" "$(cat "$scratch/argmax")" && ok

name=cli/flags-of-every-command
run run "$model" --ids 2,10,11 --greedy --ignore-eos --max-tokens 6 --print-ids --device "$device" --precision exact --kv f32 --context 64
code 0 && same "$out" "$new" && ok

name=cli/same-seed-same-tokens
run run "$model" --ids 2,10 --seed 7 --ignore-eos --max-tokens 6 --print-ids --device "$device"
first=$out
run run "$model" --ids 2,10 --seed 7 --ignore-eos --max-tokens 6 --print-ids --device "$device"
code 0 && same "$out" "$first" && ok

name=cli/context-too-small
run run "$model" --ids 2,10,11,12,13,14,15,16,17 --context 4 --max-tokens 2 --device "$device"
code 1 && like "$err" '^beryl: ' && ok

# ---- one shot -------------------------------------------------------------------------------------------------
say=(--device "$device" --greedy --max-tokens 8)
name=cli/prompt-as-argument
run run "$model" hello "${say[@]}"
first=$out
code 0 && same "$err" '' && ok

name=cli/prompt-from-standard-input
same "$(echo hello | "$program" run "$model" "${say[@]}")" "$first" && ok

name=cli/prompt-from-a-file
echo hello >"$scratch/prompt.txt"
run run "$model" -f "$scratch/prompt.txt" "${say[@]}"
code 0 && same "$out" "$first" && ok

name=cli/prompt-from-a-conversation
echo '{"messages":[{"role":"user","content":"hello"}]}' >"$scratch/hello.json"
run run "$model" --chat "$scratch/hello.json" "${say[@]}"
code 0 && same "$out" "$first" && ok

name=cli/conversation-from-a-pipe
run run "$model" --chat <(cat "$scratch/hello.json") "${say[@]}"
code 0 && same "$out" "$first" && ok

name=cli/pipe-that-nothing-writes-into
mkfifo "$scratch/pipe"
timeout 300 "$program" run "$model" --chat "$scratch/pipe" "${say[@]}" >"$scratch/out" 2>"$scratch/err"
rc=$? err=$(cat "$scratch/err")
code 1 && like "$err" 'pipe that nothing writes into' && ok

name=cli/run-json
run run "$model" hello --json "${say[@]}"
code 0 && json <"$scratch/out" && like "$out" '"tokens":\[[0-9]' && same "$err" '' && ok

name=cli/raw
run run "$model" hello --raw "${say[@]}"
code 0 && ok

name=cli/verbose-tells-speed-on-stderr
run run "$model" hello --verbose "${say[@]}"
code 0 && same "$out" "$first" && like "$err" 'tok/s' && ok

name=cli/full-context-says-what-goes-on
python3 - "$scratch/long.json" <<'END'
import json, sys
messages = [{'role': 'system', 'content': 'Be brief.'}]
for i in range(12):
    messages += [{'role': 'user', 'content': f'Who are you, {i}?'}, {'role': 'assistant', 'content': 'I am Beryl, tiny and quick.'}]
json.dump({'messages': messages + [{'role': 'user', 'content': 'What is the capital of France?'}]}, open(sys.argv[1], 'w'))
END
full=(run --chat "$scratch/long.json" --greedy --device "$device" --context 200)
run "${full[@]}"
code 1 && like "$err" 'holds 200' && like "$err" 'larger --context' && like "$err" '--drop-oldest' && same "$(wc -l <"$scratch/err")" 1 && ok

name=cli/drop-oldest-goes-on-without-the-oldest-turns
run "${full[@]}" --drop-oldest --json
code 0 && like "$err" 'without the oldest [0-9]+ messages' && like "$out" 'Paris' && n=$(sed -n 's/.*"n_prompt":\([0-9]*\).*/\1/p' <<<"$out") &&
    { [ "$n" -le 100 ] || fail "a prompt of $n tokens"; } && run "${full[@]}" --context 2000 --drop-oldest --json && same "$err" '' && like "$out" '"n_prompt":[34]' && ok

name=cli/ctrl-c-ends-a-command-at-any-time
# An answer of minutes: whenever it comes, and however busy the machine is, the program has still something to stop.
{ python3 - "$program" "$model" "$device" >"$scratch/out" 2>&1 || fail "$(cat "$scratch/out")"; } <<'END' && ok
import signal, subprocess, sys, time
for n in range(12):
    program = subprocess.Popen([sys.argv[1], 'run', sys.argv[2], 'hello', '--ignore-eos', '--device', sys.argv[3]],
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    time.sleep(0.008 * n)
    program.send_signal(signal.SIGINT)
    try:
        err = program.communicate(timeout=120)[1]
    except subprocess.TimeoutExpired:
        program.kill()
        sys.exit(f'lost after {8 * n} ms')
    assert program.returncode in (1, -signal.SIGINT), (n, program.returncode, err)
END

# ---- measuring ------------------------------------------------------------------------------------------------
name=cli/perplexity
head -c 3000 "$data/default/stories.txt" >"$scratch/story.txt"
run perplexity "$model" "$scratch/story.txt" --piece 32 --pieces 2 --device "$device"
code 0 && like "$out" '^perplexity [0-9.]+ ± [0-9.]+ \(30 tokens of 2 pieces of 32\)$' && ok

name=cli/perplexity-json
run perplexity "$model" "$scratch/story.txt" --piece 32 --pieces 1 --json --device "$device"
code 0 && json <"$scratch/out" && ok

bench=(-p 8 -n 4 -d 0,8 -r 2 --device "$device")
name=cli/bench-markdown
run bench "$model" "${bench[@]}"
code 0 && like "$out" '\| pp8 ' && like "$out" '\| tg4 ' && like "$out" '\| tg4 @ d8 ' && like "$out" ' ± ' && like "$out" 'device memory' && ok

for form in json jsonl csv; do
    name=cli/bench-$form
    run bench "$model" -p 8 -n 4 -r 2 -b 1,2 -o $form --device "$device"
    code 0 && { python3 - $form "$scratch/out" || fail "not $form, or fields are missing: $out"; } <<'END' && ok
import csv, json, sys
text = open(sys.argv[2])
rows = {'json': lambda: json.load(text), 'jsonl': lambda: [json.loads(x) for x in text], 'csv': lambda: list(csv.DictReader(text))}[sys.argv[1]]()
assert [r['test'] for r in rows] == ['pp8', 'tg4', 'tg4 b2'], rows
for r in rows:
    for key in 'avg_ts stddev_ts bytes_per_token dispatches_per_token bandwidth_percent load_s first_token_s device_bytes_peak host_bytes_peak'.split():
        float(r[key])
    assert float(r['avg_ts']) > 0
END
done

name=cli/selftest-needs-a-device-to-compare
run selftest "$model" --device reference
code 1 && same "$out" '' && like "$err" 'choose another device' && ok

# ---- looking inside ---------------------------------------------------------------------------------------------
name=cli/explain-graph
run explain "$model" --device "$device"
code 0 && like "$out" '^ *0 .*gather_rows' && like "$out" 'token_embd.weight' && ok

name=cli/explain-needs-a-plan
run explain "$model" --stage plan --device reference
code 1 && like "$err" 'no plan' && ok

name=cli/explain-stages
for stage in graph plan ir code; do
    run explain "$model" --stage $stage --plan prefill --device dummy
    code 0 && [ -n "$out" ] || { fail "$stage: $err"; break; }
done && ok

name=cli/explain-one
run explain "$model" --stage plan --op 2 --device dummy --json
code 0 && json <"$scratch/out" && run explain "$model" --stage plan --op 2 --device dummy && same "$(wc -l <"$scratch/out")" 1 &&
    like "$out" '^ *2 .*grid' && run explain "$model" --stage plan --op 99999 --device dummy && code 1 &&
    run explain "$model" --op 4294967295 --device dummy && code 1 && like "$err" 'no live node 4294967295' && ok

name=cli/explain-kernel
cat >"$scratch/kernel.ir" <<'END'
kernel "twice" workgroup 1 1 1
  buffer 0 read f32 "x"
  buffer 1 read_write f32 "y"
  %0 = group u32 x
  %1 = load f32 buffer 0 %0
  %2 = add f32 %1 %1
  store buffer 1 %0 %2
END
run explain "$scratch/kernel.ir" --device dummy
code 0 && like "$out" 'after the passes' && run explain "$scratch/kernel.ir" --stage code --device dummy && code 0 &&
    like "$out" '@workgroup_size' && run explain "$scratch/kernel.ir" --device disk && code 1 && like "$err" 'disk:0 keeps memory' &&
    run explain "$scratch/kernel.ir" --stage plan --device dummy && code 1 &&
    sed -i 's/load/lead/' "$scratch/kernel.ir" && run explain "$scratch/kernel.ir" --device dummy && code 1 && like "$err" 'byte [0-9]+' &&
    run explain "$0" && code 1 && like "$err" 'neither' && ok

name=cli/explain-graph-as-text
printf '%%1 = input F32 [4 64] "x"\n%%2 = weight Q4_0 [96 64] "w"\n%%3 = linear %%1 %%2\noutput %%3 "y"\n' >"$scratch/a.graph"
run explain "$scratch/a.graph" --device reference
code 0 && like "$out" 'linear' && run explain "$scratch/a.graph" --stage code --device dummy && code 0 && like "$out" '@workgroup_size' &&
    run explain "$scratch/a.graph" --stage plan --op 0 --device dummy && code 0 &&
    run explain "$scratch/a.graph" --device disk && code 1 && like "$err" 'disk:0 keeps memory' && echo '%4 = frob %3' >>"$scratch/a.graph" &&
    run explain "$scratch/a.graph" --device dummy && code 1 && same "$out" '' && ok

name=cli/what-no-kernel-does-is-named
printf 'extent n 8\n%%1 = input F32 [2 n 8] "x"\n%%2 = input F32 [2 2 4] "angles"\n%%3 = rope %%1 %%2\noutput %%3 "y"\n' >"$scratch/a.graph"
run explain "$scratch/a.graph" --stage plan --device dummy
code 1 && like "$err" 'rope of F32 on dummy:0: rows with gaps' && ok

name=cli/dummy-computes-nothing
run run "$model" hello --max-tokens 2 --device dummy
code 0 && like "$err" '^beryl: warning: the dummy device computes nothing' && same "$(wc -l <"$scratch/err")" 1 && ok

name=cli/trace
run trace "$model" --device host --steps 1 --out "$scratch/trace.json"
if [[ $err =~ 'not usable' || $err =~ 'no device' ]]; then skip "$err"
else code 0 && json <"$scratch/trace.json" && grep -q '"ph":"X"' "$scratch/trace.json" &&
    same "$err" '' && BERYL_CAPS=no-timestamps run trace "$model" --device host --steps 1 --out "$scratch/trace.json" && code 0 &&
    same "$(wc -l <"$scratch/err")" 1 && like "$err" '^beryl: warning: .* gives no timestamps: .*no dispatches$' &&
    json <"$scratch/trace.json" && ! grep -q '"cat":"dispatch"' "$scratch/trace.json" &&
    run trace "$model" --device reference --out "$scratch/none.json" && code 1 && [ ! -e "$scratch/none.json" ] && ok; fi

name=cli/bench-ops
run bench-ops add softmax fused --shape 4,256 --device reference:0
code 0 && like "$out" '\| add +\| F32 +\| 4 x 256' && like "$out" '\| fused +\| F32 +\| 4 x 256' && like "$out" 'reference functions' && ok

for form in json csv; do
    name=cli/bench-ops-$form
    run bench-ops linear --type q4_k --shape 64,1,256 -o $form --device reference
    code 0 && { python3 - $form "$scratch/out" || fail "not $form, or fields are missing: $out"; } <<'END' && ok
import csv, json, sys
text = open(sys.argv[2])
rows = json.load(text)['rows'] if sys.argv[1] == 'json' else list(csv.DictReader(text))
assert len(rows) == 1 and rows[0]['type'] == 'Q4_K' and float(rows[0]['operations']) == 2 * 64 * 256, rows
END
done

name=cli/bench-ops-refused
run bench-ops frobnicate --device reference
code 1 && like "$err" 'no operation' && run bench-ops add --device dummy && code 1 && run bench-ops add --shape 1,2,3,4,5 --device reference && code 2 &&
    run bench-ops add --type Q4_K --device reference && code 1 && like "$err" 'F32 alone' && ok

name=cli/tune-refused
run tune "$model" --device reference --json
code 1 && same "$out" '' && like "$err" 'no plan' && run tune "$model" --device dummy && code 1 && ok

name=cli/tune-list
run tune --list
code 0 && like "$out" 'nothing was tuned'
mkdir -p "$scratch/cache/beryl"
form='{"role":"q","type":"Q4_K","shape":[1,8,256],"vectors":1,"precision":"fast","wg":64,"lanes":0,"rows":0,"depth":0,"groups":0,"n_x":0,"apart":0,"before_us":2,"after_us":1}'
echo "{\"key\":\"x\",\"adapter\":\"some GPU\",\"products\":[$form,$form,{}]}" >"$scratch/cache/beryl/tune-0.json"
echo '{' >"$scratch/cache/beryl/tune-1.json"
printf 'gar\nba\nge\n' >"$scratch/cache/beryl/schedules.txt"
run tune --list
code 0 && like "$out" 'some GPU, 2 products; the rest is damaged, ignored' && like "$out" $'\ndamaged, ignored\n[^\n]*tune-1.json' &&
    like "$out" 'schedules of all devices, damaged, ignored' && echo 'beryl tune 2' >"$scratch/cache/beryl/schedules.txt" && run tune --list &&
    like "$out" 'schedules of all devices by another version of Beryl, nothing' && run tune --list --json && json <"$scratch/out" &&
    run tune --forget && code 0 && like "$out" 'deleted' && [ ! -e "$scratch/cache/beryl/tune-0.json" ] && ok

# ---- adapters -------------------------------------------------------------------------------------------------
name=cli/adapter-convert
lora=$data/lora/e2b-f32.part.gguf
run adapter convert "$lora" "$scratch/peft" --to peft --type f16
code 0 && json <"$scratch/peft/adapter_config.json" && run adapter convert "$scratch/peft" "$scratch/back.gguf" --to gguf && code 0 &&
    like "$("$program" show "$scratch/back.gguf" --json --tensors)" '"blk.1.attn_q.weight.lora_a"' && ok
failing adapter-in-a-form-that-lacks-it 'the form gguf has no name for it' adapter convert "$data/lora/e2b-f32.head" "$scratch/head.gguf" --to gguf

name=cli/adapter-misused
run adapter change "$lora" "$scratch/x" --to gguf
code 2 && like "$err" 'convert IN OUT' && run adapter convert "$lora" "$scratch/x" && code 2 && like "$err" '--to says which form' && run adapter convert "$lora" && code 2 && ok

name=cli/lora-of-commands
small=("$data/e2b-f32.gguf" --device reference --precision exact)
for scale in none 0 1; do
    with=(--lora "$lora:$scale")
    if [ $scale = none ]; then with=(); fi
    run logits "${small[@]}" "${with[@]}" --ids 2,290 --out "$scratch/lora.$scale.npy"
    code 0
done
printf 'abcdefgh' >"$scratch/few.txt"
{ cmp -s "$scratch/lora.none.npy" "$scratch/lora.0.npy" || fail "a scale of 0 changes logits"; } &&
    { ! cmp -s "$scratch/lora.none.npy" "$scratch/lora.1.npy" || fail "a scale of 1 changes nothing"; } &&
    run bench "${small[@]}" --lora "$lora" -p 2 -n 1 -r 1 && code 0 && like "$out" 'tg1' && run perplexity "${small[@]}" --lora "$lora" "$scratch/few.txt" && code 0 && ok

name=cli/merge
run merge "$data/e2b-f32.gguf" --lora "$lora:0.5" --out "$scratch/merged.gguf"
code 0 && same "$out" '' && run run "$scratch/merged.gguf" --ids 2,290,291 --greedy --ignore-eos --max-tokens 8 --print-ids --precision exact --device reference &&
    merged=$out && run run "$data/e2b-f32.gguf" --lora "$lora:0.5" --ids 2,290,291 --greedy --ignore-eos --max-tokens 8 --print-ids --precision exact --device reference &&
    code 0 && same "$out" "$merged" && ok

name=cli/merge-misused
run merge "$data/e2b-f32.gguf" --out "$scratch/x.gguf"
code 2 && like "$err" '--lora' && run merge "$data/e2b-f32.gguf" --lora "$lora" && code 2 && like "$err" '--out' && ok

# ---- ONNX files ----------------------------------------------------------------------------------------------
onnx=$data/onnx
name=cli/onnx-show
run show "$onnx/small.onnx"
code 0 && like "$out" 'input         x  float \[n, 3\]' && like "$out" 'Softmax x 1' && run show "$onnx/refused.onnx" && code 0 &&
    like "$out" 'Unique x 1  \(not supported\)' && run show "$onnx/small.onnx" --json && json <"$scratch/out" && ok

for n in 2 5; do # an open axis at two sizes, against the onnx package's evaluator
    name=cli/onnx-eval-of-$n-rows
    run eval "$onnx/small.onnx" --input "x=$onnx/small.$n.npz" --output "$scratch/out.npz" --device "$device"
    code 0 && like "$out" "y  F32 \[$n, 2, 2\]" && { python3 - "$scratch/out.npz" "$onnx/small.$n.npz" || fail 'other numbers'; } <<'END' && ok
import ast, struct, sys, zipfile
def numbers(path, name):
    data = zipfile.ZipFile(path).read(name + '.npy')
    size = struct.unpack('<H', data[8:10])[0]
    head = ast.literal_eval(data[10:10 + size].decode())
    form = {'<f4': 'f', '<i8': 'q'}[head['descr']]
    return head, struct.unpack('<%d%s' % ((len(data) - 10 - size) // struct.calcsize('<' + form), form), data[10 + size:])
for name, near in ('y', 1e-6), ('best', 0):
    (head, got), (wanted, want) = (numbers(path, name) for path in sys.argv[1:])
    assert head == wanted, (head, wanted)
    assert all(abs(a - b) <= near for a, b in zip(got, want)), (got, want)
END
done

name=cli/onnx-eval-of-one-file
unzip -oq "$onnx/small.2.npz" x.npy -d "$scratch" 2>/dev/null || python3 -m zipfile -e "$onnx/small.2.npz" "$scratch"
run eval "$onnx/small.onnx" -i "x=$scratch/x.npy" --device "$device"
code 0 && like "$out" 'best  I64 \[2\]' && ok

name=cli/onnx-bench
run bench "$onnx/small.onnx" --extent n=7 -r 3 --device "$device"
code 0 && like "$out" 'small.onnx \| [a-z]+ \| fast \| 3 \|' && run bench "$onnx/small.onnx" --extent n=7 -r 3 --device "$device" --json && code 0 &&
    json <"$scratch/out" && like "$out" '"samples_ns":\[[^,]*,[^,]*,[^,]*\]' && ok

name=cli/onnx-explain
run explain "$onnx/small.onnx" --extent n=7 --device dummy
code 0 && like "$out" "F32\[7, 4\]'y'" && run explain "$onnx/small.onnx" --extent n=7 --device dummy --stage plan && code 0 &&
    like "$out" 'dispatches' && run explain "$onnx/small.onnx" --extent n=7 --device dummy --stage code --op 0 && code 0 && like "$out" 'WGSL:' && ok

failing onnx-operator-that-is-not-there "ONNX node 'pick' \(Unique\)" eval "$onnx/refused.onnx" --device "$device"
failing onnx-size-not-given "dimension 'n' of input 'x'" bench "$onnx/small.onnx" --device "$device"
failing onnx-input-not-given "dimension 'n' of input 'x'" eval "$onnx/small.onnx" --device "$device"
failing onnx-input-that-the-model-has-not "small.2.npz: no such part" eval "$onnx/small.onnx" --input "z=$onnx/small.2.npz"
head -c 300 "$onnx/small.onnx" >"$scratch/cut.onnx"
failing onnx-file-cut-off '.' eval "$scratch/cut.onnx" --input "x=$onnx/small.2.npz" --device "$device"
head -c 700 "$onnx/small.2.npz" >"$scratch/cut.npz"
failing onnx-archive-cut-off 'cut.npz: an archive without an end' eval "$onnx/small.onnx" --input "x=$scratch/cut.npz"
(printf 'PK\3\4'; head -c 60 /dev/zero; printf 'PK\5\6\0\0\0\0\1\0\1\0\377\377\377\377\377\377\377\377\0\0') >"$scratch/lies.npz"
failing onnx-archive-that-lies 'damaged directory' eval "$onnx/small.onnx" --input "x=$scratch/lies.npz"
name=cli/onnx-extent-misused
run bench "$onnx/small.onnx" --extent n=x
code 2 && like "$err" 'NAME=N' && run explain "$onnx/small.onnx" --plan decode && code 2 && ok

# ---- streams and terminals -----------------------------------------------------------------------------------
name=cli/no-escapes-without-a-terminal
found=$({ "$program" devices; "$program" show "$model"; "$program" run "$model" hello "${say[@]}"; "$program" nothing; } 2>&1 | grep -c $'\033')
same "$found" 0 && ok

name=cli/nothing-in-the-history-without-a-terminal
same "$(ls "$XDG_STATE_HOME/beryl/history" 2>/dev/null)" '' && ok

if have script; then
    name=cli/colours-on-a-terminal
    on_terminal frobnicate </dev/null
    code 2 && like "$out" $'\033\\[31m' && ok

    name=cli/no-colours-with-NO_COLOR
    export NO_COLOR=1
    on_terminal frobnicate </dev/null
    code 2 && like "$out" '^beryl: ' && ok
    unset NO_COLOR

    name=cli/control-characters-stay-away-from-terminals
    run tokenize --text $'a\033[31mb\007\302\233c'
    ids=$out
    run tokenize --decode "$ids"
    same "$out" $'a\033[31mb\007\302\233c' && on_terminal tokenize --decode "$ids" </dev/null &&
        same "$out" $'a\uFFFD[31mb\uFFFD\uFFFDc' && ok

    name=cli/chat-on-a-terminal
    # The pauses let the program come to its prompt, as a person would.
    on_terminal run "$model" "${say[@]}" < <(types 2 'hello\r' 2 '/stats\r' 0.3 "/save $scratch/saved.json\r" 0.5 '/bye\r' 0.5)
    code 0 && like "$out" '/help' && like "$out" 'tok/s' && like "$out" 'saved 2 messages' && ok

    name=cli/lora-in-a-chat
    on_terminal run "$data/e2b-f32.gguf" --device reference < <(types 2 "/lora $lora:0.5\r" 0.7 '/lora nowhere\r' 0.3 '/lora\r' 0.3 '/lora off\r' 0.5 '/bye\r' 0.5)
    code 0 && like "$out" '1 adapter on; .*nowhere.*1 adapter on; .*no adapter is on' && ok

    name=cli/saved-chat-can-be-rendered
    run render "$model" --chat "$scratch/saved.json"
    code 0 && like "$out" 'hello' && ok

    name=cli/history-is-private
    same "$(stat -c %a "$XDG_STATE_HOME/beryl/history")" 600 && like "$(cat "$XDG_STATE_HOME/beryl/history")" 'hello' && ok

    name=cli/chat-ends-with-ctrl-d
    on_terminal run "$model" "${say[@]}" < <(types 2 '\004' 0.5)
    code 0 && ok

    name=cli/ctrl-c-stops-the-answer-and-keeps-the-chat
    on_terminal run "$model" --device "$device" --greedy --ignore-eos < <(types 2 'hello\r' 0.4 '\003' 1 '/stats\r' 0.3 '/bye\r' 0.5)
    code 0 && like "$out" '\(stopped\)' && like "$out" '\(cancelled\)' && ok

    name=cli/ctrl-c-at-the-prompt-keeps-the-chat
    on_terminal run "$model" "${say[@]}" < <(types 2 'abc\003' 0.3 '/bye\r' 0.5)
    code 0 && like "$out" '\^C' && ok

    name=cli/chat-goes-on-without-the-oldest-turns
    # The message that did not fit is answered once the oldest may go; that they do is told once; the file has all.
    on_terminal run --device "$device" --greedy --context 64 --chat "$scratch/hello.json" < <(types 2 \
        'Who are you, tell me at once?\r' 0.5 'What is the capital of France? It is a question in many words, many more than before, so that it is a long one.\r' 0.5 '/drop on\r' 0.5 \
        'What is the capital of Spain? It is a question in many words, many more than before, so that it is a long one.\r' 0.5 "/save $scratch/dropped.json\r" 0.5 '/bye\r' 0.5)
    code 0 && like "$out" 'no longer fits the context of 64 tokens: /drop on' && like "$out" 'is not told the oldest' &&
        same "$(grep -c 'is not told the oldest' "$scratch/out")" 1 && same "$(grep -o '"role":"user"' "$scratch/dropped.json" | wc -l)" 4 && ok

    name=cli/pictures-and-sound-in-the-chat
    # By command and as a path alone, also one with blanks; what cannot be taken is told, and the next message has the rest.
    cp "$picture" "$scratch/a picture.png"
    head -c 300 "$picture" >"$scratch/broken.png"
    sound=$data/e2b-mmproj.0.wav
    on_terminal run "${seen[@]}" --greedy --ignore-eos --max-tokens 1 --image-budget 70 --context 200 < <(types 2 '/image\r' 0.2 '/image none.png\r' 0.2 \
        "/image $scratch/broken.png\r" 0.2 "/image $sound\r" 0.2 "/audio $picture\r" 0.2 "'$scratch/a picture.png'\r" 0.2 "/audio $sound\r" 0.2 'hello\r' 0.2 \
        "/save $scratch/shown.json\r" 0.2 "$picture $picture $picture\r" 0.2 'again\r' 0.2 '/bye\r' 0.5)
    code 0 && like "$out" '/image needs a file' && like "$out" 'cannot open none.png' && like "$out" 'broken.png: a damaged PNG file: it ends too early' &&
        like "$out" '0.wav: a WAV file is not a picture file' && like "$out" '0.png: a PNG file is not a sound file' &&
        like "$out" 'a picture for the next message: [0-9]+ tokens' && like "$out" 'sound for the next message: 8 tokens' &&
        like "$out" 'no longer fits the context of 200 tokens' &&
        like "$(cat "$scratch/shown.json")" '"type":"image".*a picture.png.*"type":"audio".*0.wav.*hello' && ok
else
    name=cli/terminals
    skip 'no script(1)'
fi

name=cli/typed-keys-wait-while-kernels-compile
if [[ $("$program" devices) == *host:0* ]]; then
    same "$(ulimit -c 0; python3 "$(dirname "$0")/echo.py" "$program" "$model" "$scratch")" '' && ok
else
    skip 'no C compiler'
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
