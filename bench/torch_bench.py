#!/usr/bin/env python3
"""The cases of graph_bench and of `beryl bench-ops` by PyTorch, for tables that show both.

  python3 torch_bench.py [DEVICE]     (cuda; cpu)

Single operations as PyTorch runs them one by one, and the chains by torch.compile too. A time is the best of a few rounds of 24
runs queued at once; GB/s counts what has to be read and written once the operations are joined, as graph_bench does.
"""
import sys, time
import torch
import torch.nn.functional as F

ROWS, COLUMNS, ROUNDS, QUEUED = 8192, 4096, 7, 24
device = sys.argv[1] if len(sys.argv) > 1 else "cuda"
torch.backends.cuda.matmul.allow_tf32 = False


def chain3(x, y, w):
    return (x + y) * w * 0.5


def chain6(x, y, w):
    return torch.tanh((F.gelu((x + y) * w * 0.5, approximate="tanh") + x) / 30) * 30


def seconds(run):
    wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    best = float("inf")
    for _ in range(ROUNDS + 1):  # the first one compiles
        wait()
        start = time.perf_counter()
        for _ in range(QUEUED):
            run()
        wait()
        best = min(best, (time.perf_counter() - start) / QUEUED)
    return best


def row(name, run, amount, unit):
    try:
        took = seconds(run)
    except Exception as why:  # a torch.compile without a compiler
        print(f"{name:34} does not run: {str(why).splitlines()[0][:80]}", flush=True)
        return
    print(f"{name:34} {took * 1e6:10.1f} us {amount / took / 1e9:10.1f} {unit}", flush=True)


def main():
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name() if device == 'cuda' else 'cpu'}; f32 [{ROWS}, {COLUMNS}]")
    x, y = (torch.randn(ROWS, COLUMNS, device=device) for _ in range(2))
    w, v = (torch.randn(COLUMNS, device=device) for _ in range(2))
    size = x.numel() * 4
    row("copy", lambda: x.clone(), 2 * size, "GB/s")
    row("softmax", lambda: torch.softmax(x, -1), 2 * size, "GB/s")
    row("layer_norm", lambda: F.layer_norm(x, (COLUMNS,), w, v, 1e-6), 2 * size, "GB/s")
    for name, chain in (("chain of 3", chain3), ("chain of 6", chain6)):
        row(name, lambda: chain(x, y, w), 3 * size, "GB/s")
        compiled = torch.compile(chain)
        row(f"{name}, torch.compile", lambda: compiled(x, y, w), 3 * size, "GB/s")
    for kind in (torch.float32, torch.float16):
        q, k, u = (torch.randn(1, 16, 2048, 64, device=device, dtype=kind) for _ in range(3))
        row(f"attention s 2048 h 16 d 64, {str(kind)[6:]}", lambda: F.scaled_dot_product_attention(q, k, u, is_causal=True),
            2 * 2 * 16 * 2048 * 2048 * 64 / 2, "GFLOP/s")
        a, b = (torch.randn(4096, 4096, device=device, dtype=kind) for _ in range(2))
        row(f"matmul 4096, {str(kind)[6:]}", lambda: a @ b, 2 * 4096**3, "GFLOP/s")


main()
