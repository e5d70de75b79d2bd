#!/usr/bin/env python3
"""Fine-tuning beside PyTorch with transformers and PEFT, in bf16 on the same GPU: one packed row a step, random weights of the same shape.

  python3 bench/peft_train.py --program build/bin/beryl --model e2b.gguf [--memory 6G] [--tokens 2048] [--steps 6]

A rate is that of the fastest step but the first two. Memory is the most that the whole device held, less what it held before: of PyTorch what its
tensors took at most. PyTorch runs as it is and with checkpoints of each layer, its attention and its loss as transformers chooses them.
--small: PyTorch's part alone, with sizes that a processor can do, to see that it runs.
"""
import argparse, json, os, random, subprocess, sys, tempfile, threading, time
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--program")
parser.add_argument("--model")
parser.add_argument("--memory", action="append", default=[], help="of Beryl, one more run each")
parser.add_argument("--tokens", type=int, default=2048)
parser.add_argument("--steps", type=int, default=6)
parser.add_argument("--rank", type=int, default=16)
parser.add_argument("--small", action="store_true")
parser.add_argument("--way", choices=["kept", "recomputed"], help="PyTorch alone, one way")
options = parser.parse_args()
GPU = "cpu" if options.small else "cuda"
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
E2B = dict(hidden_size=1536, intermediate_size=6144, num_hidden_layers=35, num_attention_heads=8, num_key_value_heads=1, head_dim=256,
           global_head_dim=512, sliding_window=512, num_kv_shared_layers=20, vocab_size=262144, vocab_size_per_layer_input=262144,
           hidden_size_per_layer_input=256)
SMALL = dict(E2B, hidden_size=64, intermediate_size=128, num_hidden_layers=10, head_dim=16, global_head_dim=32, sliding_window=16,
             num_kv_shared_layers=5, vocab_size=512, vocab_size_per_layer_input=512, hidden_size_per_layer_input=8)


def row(name, rate, memory, note=""):
    print(f"{name:40} {rate:9.0f} tok/s {memory / 2**30:8.2f} GiB  {note}", flush=True)


# ---- transformers and PEFT

def adapted(checkpoints):
    import peft
    from transformers import Gemma4ForCausalLM, Gemma4TextConfig
    shape = SMALL if options.small else E2B
    config = Gemma4TextConfig(**shape, use_double_wide_mlp=True, final_logit_softcapping=30.0,
                              layer_types=["sliding_attention" if (i + 1) % 5 else "full_attention" for i in range(shape["num_hidden_layers"])])
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(GPU):
        model = Gemma4ForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    model.config.use_cache = False
    if checkpoints:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    how = peft.LoraConfig(r=options.rank, lora_alpha=2 * options.rank, target_modules=TARGETS, task_type="CAUSAL_LM")
    return peft.get_peft_model(model, how).train()


def pytorch(checkpoints):
    model = adapted(checkpoints)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(trained, lr=2e-4, weight_decay=0, fused=not options.small)
    vocabulary, times, losses = model.config.vocab_size, [], []
    for _ in range(options.steps):
        ids = torch.randint(3, vocabulary, (1, options.tokens), device=GPU)
        start = time.perf_counter()
        with torch.autocast(GPU, torch.bfloat16):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        losses.append(loss.item())  # waits
        times.append(time.perf_counter() - start)
    memory = 0 if options.small else torch.cuda.max_memory_allocated()
    row("PyTorch" + (", layers recomputed" if checkpoints else ""), options.tokens / min(times[2:]), memory,
        f"{sum(p.numel() for p in trained)} trained, loss {losses[-1]:.3f}")


# ---- Beryl

def used():
    said = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], capture_output=True, text=True).stdout
    return int(said.split()[0]) << 20


def beryl(memory):
    with tempfile.TemporaryDirectory() as folder:
        data, log = os.path.join(folder, "rows.jsonl"), os.path.join(folder, "log.jsonl")
        random.seed(1)
        with open(data, "w") as file:
            for _ in range(options.steps):
                file.write(json.dumps({"tokens": [2] + [random.randrange(300, 250000) for _ in range(options.tokens - 1)]}) + "\n")
        words = [options.program, "train", options.model, data, "--out", os.path.join(folder, "out"), "--rank", str(options.rank), "--log", log]
        before, most = used(), 0
        run = subprocess.Popen(words + (["--memory", memory] if memory else []), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        said = []
        reader = threading.Thread(target=lambda: said.append(run.stderr.read()))
        reader.start()
        while run.poll() is None:
            most = max(most, used() - before)
            time.sleep(0.05)
        reader.join()
        if run.returncode:
            print(f"beryl train: {said[0].strip()[-200:]}")
            return
        lines = [json.loads(line) for line in open(log)]
        row("Beryl" + (f", --memory {memory}" if memory else ""), options.tokens / min(l["seconds"] for l in lines[2:]), most,
            f"loss {lines[-1]['loss']:.3f}")


if options.way:
    pytorch(options.way == "recomputed")
    sys.exit()
if options.program and options.model:
    for memory in [None] + options.memory:
        beryl(memory)
for way in ("kept", "recomputed"):  # a process each: its memory goes with it
    subprocess.run([sys.executable, *sys.argv, "--way", way])
