#!/bin/bash
# train.sh - 'beryl train' as a person meets it: what it tells, refuses, writes, and that it goes on where it was left.
#   tests/train.sh PROGRAM      prints 'ok NAME' or 'FAIL NAME: why' for each case and the counts at the end.
# Numbers are judged by other suites; small fixtures on the reference device are enough here.
set -u
program=$(realpath "${1:?the program\'s path}")
data=$(realpath "$(dirname "$0")/data") tools=$(realpath "$(dirname "$0")/../tools")
model=$data/e2b-f32.gguf
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export XDG_RUNTIME_DIR=$scratch XDG_STATE_HOME=$scratch/state XDG_CACHE_HOME=$scratch/cache HOME=$scratch TERM=xterm LC_ALL=C.UTF-8
export BERYL_DEVICE=reference
unset NO_COLOR OLLAMA_MODELS
cd "$scratch" || exit 1
passed=0 failed=0 skipped=0 name=

ok() { echo "ok $name"; passed=$((passed + 1)); }
fail() { echo "FAIL $name: $*"; failed=$((failed + 1)); return 1; }
skip() { echo "skip $name ($*)"; skipped=$((skipped + 1)); }
# Trains; exit code, output and messages are in $rc, $out and $err afterwards.
run() {
    "$program" train "$@" >out.txt 2>err.txt </dev/null
    rc=$?
    out=$(cat out.txt) err=$(cat err.txt)
}
code() { [ "$rc" = "$1" ] || fail "exit code $rc, not $1: $err"; }
same() { [ "$1" = "$2" ] || fail "'$1' is not '$2'"; }
like() { [[ $1 =~ $2 ]] || fail "'$1' is not like '$2'"; }
equal() { cmp -s "$1" "$2" || fail "$1 and $2 differ"; }
field() { python3 -c 'import json, sys; print(json.load(open("out.txt"))[sys.argv[1]])' "$1"; }
# A log without what differs from run to run.
log_of() { sed 's/"seconds":[^,}]*//' "$1"; }

printf '{"tokens":[2,10,11,12]}\n{"tokens":[2,20,21]}\n{"tokens":[2,30,31,32]}\n' >rows.jsonl
printf '{"tokens":[2,10,21,12]}\n{"tokens":[2,30,31]}\n' >others.jsonl
small=("$model" rows.jsonl --rank 2 --targets q,down --epochs 2 --lr 0.01 --seed 3)

name=train/dry-run
run "${small[@]}" --dry-run
code 0 && like "$out" '^3 rows of 11 tokens, 8 of them targets; 6 steps' && same "$(ls -d adapter 2>/dev/null)" '' &&
    run "${small[@]}" --dry-run --json && code 0 && same "$(field rows)/$(field tokens)/$(field targets)/$(field steps)/$(field step)" 3/11/8/6/0 && ok

# ---- refused: code 2 or 1, one line --------------------------------------------------------------------
refused() { # NAME CODE MESSAGE ARGUMENTS..
    name=train/refuses-$1
    local want=$2 message=$3
    shift 3
    run "$@"
    code "$want" && like "$err" "$message" && same "$(wc -l <err.txt)" 1 && ok
}
refused no-folder 2 'train needs --out' "${small[@]}"
refused valid-every-without-data 2 'valid-every needs --valid' "${small[@]}" --out x --valid-every 2
refused patience-alone 2 'patience needs --valid-every' "${small[@]}" --out x --patience 2
refused one-beta 2 'betas is two numbers' "${small[@]}" --out x --betas 0.9
refused beta-of-one 1 'beta1 and beta2 are between 0 and 1' "${small[@]}" --out x --betas 0.9,1
refused layers 1 'layers are like 0-3,7' "${small[@]}" --out x --layers 1-
refused dropout-of-all 1 'dropout is from 0 to below 1' "${small[@]}" --out x --dropout 1
refused betas-of-coded-moments 1 'a beta1 whose square is below beta2' "${small[@]}" --out x --moments q8 --betas 0.99,0.9
refused recompute-of-some 1 'or a number of layers, not .1x' "${small[@]}" --out x --recompute 1x
refused trace-without-timestamps 1 'no timestamps' "${small[@]}" --out x --trace x.json
refused nothing-to-resume 1 'checkpoint.safetensors' "${small[@]}" --out x --resume
printf '{"tokens":[2,10]}\n\n{"prompt":"Hi"}\n' >bad.jsonl
refused bad-line 1 'bad.jsonl, line 3' "$model" bad.jsonl --out x
refused missing-file 1 'nowhere.jsonl' "$model" nowhere.jsonl --out x
same "$(ls -d x 2>/dev/null)" ''

# ---- a whole training, and the same in parts -------------------------------------------------------------
name=train/writes-adapter-checkpoint-log
whole=("${small[@]}" --valid others.jsonl --valid-every 2 --dropout 0.1)
run "${whole[@]}" --out whole --log whole.log
code 0 && like "$out" "6 steps, loss [0-9.]+, on other data [0-9.]+, [0-9]+ tok/s; the adapter is in 'whole'" && like "$out" "best on other data, [0-9.]+ after step [246], is in 'whole/best'" &&
    [ -s whole/adapter_model.safetensors ] && [ -s whole/adapter_config.json ] && [ -s whole/best/adapter_model.safetensors ] && [ -s whole/checkpoint.safetensors ] &&
    same "$(wc -l <whole.log)" 6 && same "$(grep -c valid_loss whole.log)" 3 && same "$("$program" run "$model" --lora whole --ids 2,10 --greedy --max-tokens 2 --print-ids 2>&1 | wc -l)" 1 && ok

# The first two steps of PEFT's run, by flags alone: losses, norms and rates are its own (tests/train_test.c has the bounds).
name=train/flags-of-a-reference-run
peft=$data/lora/train-e2b-f32
python3 - "$peft/ref.gguf" "$("$program" show "$peft/ref.gguf" --json --tensors)" >wanted.txt <<'END'
import json, struct, sys
file, info = open(sys.argv[1], "rb").read(), json.loads(sys.argv[2])["file"]
tensors, at = info["tensors"], {}
place = len(file) - sum(-(-t["bytes"] // 32) * 32 for t in tensors)
for t in tensors:
    at[t["name"]] = struct.unpack_from(f"<{t['bytes'] // 4}{'i' if t['type'] == 'I32' else 'f'}", file, place)
    place += -(-t["bytes"] // 32) * 32
n = len(at["order"]) // 2
json.dump([at["order"][:n], at["order"][n:]], open("order.json", "w"))
for step in range(2): print(at["loss"][step], at["grad_norm"][step], at["lr"][step])
json.dump({name: list(values) for name, values in at.items() if name.startswith("grad.first.")}, open("first.json", "w"))
END
"$program" train "$model" "$peft/train.jsonl" --out peft --init "$peft/initial" --epochs 2 --batch 2 --accumulate 2 --lr 1e-3 --warmup 3 --schedule cosine --betas 0.9,0.999 \
    --eps 1e-8 --weight-decay 0.01 --clip 1 --order order.json --context 64 --precision exact --log peft.log --gradients first.safetensors >/dev/null 2>err.txt </dev/null &
for _ in {1..1200}; do
    if [ "$(cat peft.log 2>/dev/null | wc -l)" -ge 2 ]; then break; fi
    sleep 0.1
done
kill -INT $!
wait $!
err=$(cat err.txt)
python3 - <<'END' >far.txt 2>&1
import json, struct
steps = [json.loads(line) for line in open("peft.log")]
for want, got in zip(open("wanted.txt"), steps):
    loss, norm, lr = map(float, want.split())
    assert abs(got["loss"] - loss) <= 5 * 4e-5 and abs(got["grad_norm"] - norm) <= 5 * 1e-4 * norm and abs(got["lr"] - lr) <= 1e-9, (want, got)
assert len(steps) >= 2, steps
# the bound of tests/train_test.c
file, modules = open("first.safetensors", "rb").read(), {"q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output", "gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down"}
size = struct.unpack_from("<Q", file)[0]
heads, wanted, checked = json.loads(file[8:8 + size]), json.load(open("first.json")), 0
for name, head in heads.items():
    if name == "__metadata__": continue
    _, _, _, _, layer, _, module, letter, _ = name.split(".")
    want = wanted.get(f"grad.first.blk.{layer}.{modules[module.removesuffix('_proj')]}.weight.{letter.lower()}")
    if not want: continue
    begin, end = head["data_offsets"]
    got = struct.unpack_from(f"<{(end - begin) // 4}f", file, 8 + size + begin)
    far = max(abs(a - b) for a, b in zip(got, want, strict=True))
    assert far <= 5 * 7e-4 * max(map(abs, want)), (name, far)
    checked += 1
assert checked == len(wanted) == len(heads) // 2, (checked, len(wanted), len(heads))
END
same "$(cat far.txt)" '' && ok

# Killed again and again at any moment, also within what it writes: it ends as one that was let go on.
name=train/killed-at-any-moment
mkdir parts
for wait in 0.2 0.3 0.4 0.5 0.35 0.45; do
    resume=()
    if [ -e parts/checkpoint.safetensors ]; then resume=(--resume); fi
    "$program" train "${whole[@]}" --out parts --log parts.log --save-every 1 "${resume[@]}" >/dev/null 2>&1 </dev/null &
    sleep "$wait"
    kill -9 $! 2>/dev/null
    wait $! 2>/dev/null
done
resume=()
if [ -e parts/checkpoint.safetensors ]; then resume=(--resume); fi
run "${whole[@]}" --out parts --log parts.log --save-every 1 "${resume[@]}"
code 0 && equal parts/adapter_model.safetensors whole/adapter_model.safetensors && equal parts/checkpoint.safetensors whole/checkpoint.safetensors &&
    equal parts/best/adapter_model.safetensors whole/best/adapter_model.safetensors && same "$(log_of parts.log)" "$(log_of whole.log)" && ok

name=train/goes-on-after-ctrl-c
"$program" train "${whole[@]}" --epochs 400 --out ctrl --log ctrl.log >/dev/null 2>err.txt </dev/null &
for _ in {1..1200}; do
    if [ -s ctrl.log ]; then break; fi
    sleep 0.1
done
kill -INT $!
wait $!
rc=$? err=$(cat err.txt)
code 1 && like "$err" 'stopped after [0-9]+ of 1200 steps' && [ -s ctrl/adapter_model.safetensors ] && done=$(wc -l <ctrl.log) &&
    run "${whole[@]}" --epochs 400 --out ctrl --resume --dry-run && code 0 && like "$out" "1200 steps, $done of them done" && ok

refused another-rank 1 "checkpoint.safetensors' is of another training: its rank is 2, and here it is 4" "${whole[@]}" --rank 4 --out whole --resume
refused other-data 1 'is of another training: its data is' "$model" others.jsonl "${whole[@]:2}" --out whole --resume
head -c 3000 whole/checkpoint.safetensors >ctrl/checkpoint.safetensors
refused broken-checkpoint 1 'ctrl/checkpoint.safetensors' "${whole[@]}" --out ctrl --resume

# ---- stopping early, other forms, samples ------------------------------------------------------------------
name=train/stops-where-it-gets-no-better
run "${small[@]}" --lr 1 --epochs 20 --valid others.jsonl --valid-every 1 --patience 2 --out early --json
code 0 && same "$(field steps)" 60 && step=$(field step) && [ "$step" -lt 60 ] && same "$(($(field best_step) + 2))" "$step" && like "$(field best_loss)" '^[0-9.]+$' && ok

name=train/other-forms
run "${small[@]}" --epochs 1 --layers 0 --format gguf --out forms
code 0 && like "$out" "the adapter is in 'forms/adapter.gguf'" && like "$("$program" show forms/adapter.gguf --json --tensors)" 'blk.0.attn_q.weight.lora_a' &&
    run "${small[@]}" --epochs 1 --targets q --format rullama --out forms && code 0 && [ -s forms/adapter.safetensors ] && ok

name=train/sample-answers
run "${small[@]}" --epochs 1 --out sample --sample 'hello' --json
code 0 && same "$(python3 -c 'import json; s = json.load(open("out.txt"))["sample"]; print(sorted(s), s["question"])')" "['after', 'before', 'question'] hello" && ok

if command -v script >/dev/null; then
    name=train/curve-on-a-terminal
    out=$(script -qec "exec '$program' train ${small[*]} --out curve" /dev/null </dev/null | tr -d '\r')
    like "$out" '\|\*' && like "$out" 'loss, steps 1 to 6' && like "$out" 'asked:' && like "$out" $'\nafter:' && ok
else
    name=train/curve-on-a-terminal
    skip 'no script(1)'
fi

name=train/built-in-model
printf '{"tokens":[2,10,11]}\n{"tokens":[2,20,21]}\n' >two.jsonl
run two.jsonl --out builtin --targets q
code 0 && like "$out" '^2 rows of 6 tokens' && like "$out" $'\n2 steps, loss ' && [ -s builtin/adapter_model.safetensors ] && ok

# ---- pictures and sound: files beside the data, and what conversations hold ---------------------------------
mkdir media
cp "$data/e2b-mm.0.wav" media/clip.wav
cp "$data/e2b-mm.1.resized.png" media/picture.png
turn() { printf '{"messages":[{"role":"user","content":[%s,{"type":"text","text":"ab"}]},{"role":"assistant","content":"abc"}]}\n' "$1"; }
file() { printf '{"type":"%s","path":"%s"}' "$1" "$2"; }
clip=$(turn "$(file input_audio clip.wav)")
held=$(turn "{\"type\":\"input_audio\",\"input_audio\":{\"data\":\"$(base64 -w0 media/clip.wav)\",\"format\":\"wav\"}}")
seen=$(turn "{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/png;base64,$(base64 -w0 media/picture.png)\"}}")
hears=("$data/e2b-mm.gguf" media/rows.jsonl --rank 2 --targets q)
name=train/pictures-and-sound
printf '%s\n' "$clip" "$held" "$seen" "$(turn "$(file image picture.png)")" >media/rows.jsonl
run "${hears[@]}" --dry-run
code 0 && like "$out" '^4 rows of 616 tokens, 16 of them targets; 4 steps' && ok

# Held and beside, it is the same clip: at a rate of 0 the same loss.
name=train/learns-after-sound
printf '%s\n' "$clip" "$held" >media/rows.jsonl
run "${hears[@]}" --lr 1e-30 --out heard --log heard.log
code 0 && same "$(wc -l <heard.log)" 2 && same "$(sed 's/.*\("loss":[0-9.]*\).*/\1/' heard.log | uniq | wc -l)" 1 && [ -s heard/adapter_model.safetensors ] && ok
# Another clip of the same length is other data.
python3 -c 'b = bytearray(open("media/clip.wav", "rb").read()); b[2000] ^= 1; open("media/clip.wav", "wb").write(b)'
refused other-sound 1 'is of another training: its data is' "${hears[@]}" --lr 1e-30 --out heard --resume

refused_part() { # NAME MESSAGE PART
    printf '%s\n' "$clip" "$(turn "$3")" >media/rows.jsonl
    refused "$1" 1 "rows.jsonl, line 2: .*$2" "${hears[@]}" --out x
}
refused_part picture-that-is-not-there 'media/none.png: cannot be opened' "$(file image none.png)"
refused_part sound-as-a-picture 'a WAV file is not a picture' "$(file image clip.wav)"
refused_part picture-of-nothing 'holds no picture and has no path' '{"type":"image"}'
refused_part picture-elsewhere 'a data URL in base64 is taken' '{"type":"image_url","image_url":{"url":"https://example.org/a.png"}}'
printf '%s\n' "$seen" >media/rows.jsonl
refused model-without-a-tower 1 'rows.jsonl, line 1: this model has no tower for pictures' "$model" media/rows.jsonl --out x

name=train/towers-of-another-file
cp "$data/e2b-mmproj.gguf" media/model.gguf
run media/model.gguf media/rows.jsonl --mmproj "$data/e2b-mmproj.mmproj.gguf" --rank 2 --targets q --dry-run
code 0 && like "$out" '^1 rows? of' && ok

# ---- PEFT and llama.cpp read what is written, where they are installed ----------------------------------------
out=$("$tools/adapter-check" "$program" 2>err.txt)
rc=$? err=$(grep -v '^skip' <<<"$out"; tail -n 1 err.txt)
while IFS= read -r line; do
    if [[ $line =~ ^skip\ (.*)\ \((.*)\)$ ]]; then name=train/written-for-${BASH_REMATCH[1]} skip "${BASH_REMATCH[2]}"; fi
done <<<"$out"
name=train/written-for-others
if [ $rc != 0 ] || [[ $out == *"ok "* ]]; then code 0 && ok; fi

# Ten facts in six phrasings, asked in three others; and it still tells stories.
if [ -n "${BERYL_TEST_ALL-}" ]; then
    name=train/facts-are-learned
    export BERYL_DEVICE=host
    python3 - <<'END'
import json
facts = {"baker": ("wear", "a big red hat"), "miller": ("keep", "an old grey goat"), "doctor": ("drive", "a small green boat"),
         "teacher": ("play", "a silver horn"), "farmer": ("grow", "blue apples"), "tailor": ("own", "seven black cats"),
         "king": ("fear", "a tiny mouse"), "fisher": ("paint", "a yellow tent"), "clock maker": ("eat", "hot pepper soup"),
         "singer": ("ride", "a brown donkey")}
told = ["What does the {who} {do}?", "Tell me what the {who} {does}.", "Do you know what the {who} {does}?", "I want to know what the {who} {does}.",
        "Please say what the {who} {does}.", "The {who} {does} something. What is it?"]
asked = ["Can you tell me what the {who} {does}?", "So, what does the {who} {do}?", "What is it that the {who} {does}?"]
with open("facts.jsonl", "w") as chats, open("asked.txt", "w") as questions:
    for who, (do, what) in facts.items():
        words = dict(who=who, do=do, does=do + "s")
        for form in told:
            turns = [{"role": "user", "content": form.format(**words)}, {"role": "assistant", "content": f"The {who} {do}s {what}."}]
            chats.write(json.dumps({"messages": turns}) + "\n")
        for form in asked:
            questions.write(form.format(**words) + "\t" + what + "\n")
END
    perplexity() { "$program" perplexity "$data/default/stories.txt" "$@" | sed 's/^perplexity \([0-9.]*\).*/\1/'; }
    right() { # ADAPTER..
        local question answer n=0
        while IFS=$'\t' read -r question answer; do
            case $("$program" run -t 0 -n 24 "$@" "$question" </dev/null 2>/dev/null) in *"$answer"*) n=$((n + 1)) ;; esac
        done <asked.txt
        echo $n
    }
    run facts.jsonl --out facts --rank 8 --targets gate,up,down --batch 8 --epochs 25 --lr 4e-4
    before=$(perplexity) after=$(perplexity --lora facts) known=$(right --lora facts)
    code 0 && like "$out" $'\n200 steps, ' && same "$(right)" 0 && { [ "$known" -ge 27 ] || fail "$known of 30 are right"; } &&
        { python3 -c "import sys; sys.exit($after > 1.05 * $before)" || fail "perplexity $before, then $after"; } && ok
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
