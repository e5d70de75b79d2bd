#!/usr/bin/env python3
"""Training beside PyTorch, eager and by torch.compile, on one GPU: layers forward and backward, optimisers, losses, whole steps.

  BERYL_LIBRARY=libberyl.so python3 bench/torch_train.py [--device cuda] [--only WORD,…] [--no-torch] [--small]

A time is the best of a few rounds of runs queued at once; GB/s counts what has to be read and written once everything is joined.
Numbers are random, matrices of PyTorch without TF32. --small: sizes that a processor can do, to see that all of it runs.
"""
import argparse, os, sys, time
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tools"))
import torch
import torch.nn.functional as F
from beryl_graph import Graph
from torch_models import Gpt, Mlp, beryl_step, drawn

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--only", default="")
parser.add_argument("--no-torch", action="store_true")
parser.add_argument("--no-compile", action="store_true")
parser.add_argument("--small", action="store_true")
options = parser.parse_args()
SMALL, GPU = options.small, "cpu" if options.small else "cuda"
ROUNDS = 2 if SMALL else 5
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False


def best(run, wait, seconds=0.1):
    """Of a few rounds, each of about so many seconds; the first two runs compile."""
    for _ in range(3): run()
    wait()
    start = time.perf_counter()
    run()
    wait()
    n = max(1, min(50, int(seconds / (time.perf_counter() - start + 1e-9))))
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(n): run()
        wait()
        times.append((time.perf_counter() - start) / n)
    return min(times)


def synchronize():
    if GPU == "cuda": torch.cuda.synchronize()


def tensor(*shape, dtype=torch.float32, grad=False):
    return torch.randn(*shape, device=GPU, dtype=dtype).requires_grad_(grad)


class Row:
    """One line of the table."""

    def __init__(self, name, amount=0, unit="GB/s"):
        self.name, self.amount, self.unit, self.cells = name, amount, unit, []

    def add(self, who, make, note=""):
        """make() -> (what runs once, what waits for all, a note of what was used, what closes it)"""
        try:
            run, wait, used, close = make()
            took = best(run, wait)
            speed = f" {self.amount / took / 1e9:8.1f} {self.unit}" if self.amount else ""
            self.cells.append(f"{who} {took * 1e6:9.1f} us{speed}{used() if used else ''}")
            if close: close()
        except Exception as why:
            self.cells.append(f"{who} does not run: {str(why).splitlines()[0][:90] if str(why) else type(why).__name__}")
        print(f"{self.name:34} {self.cells[-1]}", flush=True)
        if GPU == "cuda": torch.cuda.empty_cache()

    def beryl(self, build):
        """build(g): makes and compiles the graph; gives what describes it, or nothing."""
        def make():
            g = Graph(options.device)
            note = build(g)
            return g.run, g.wait, note, g.close
        self.add("beryl  ", make)

    def torch(self, make, compiled=True):
        """make(compile) -> what runs once; compile: torch.compile, or nothing."""
        if options.no_torch: return
        self.add("eager  ", lambda: (make(lambda f: f), synchronize, memory(), None))
        if compiled and not SMALL and not options.no_compile: self.add("compile", lambda: (make(torch.compile), synchronize, memory(), None))


def memory():
    if GPU != "cuda": return None
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    return lambda: f"  most {(torch.cuda.max_memory_allocated() - before) / 2**20:.0f} MiB"


def wanted(name):
    return not options.only or any(word in name for word in options.only.split(","))


def some(g, *shape, kind="f32"):
    """A state of random numbers: set once the graph is compiled."""
    v = g.state(*shape, kind=kind)
    g.random.append((v, shape, {"f32": torch.float32, "f16": torch.float16}[kind]))
    return v


def finish(g, *kept):
    """A row of each value that has to be made is read back."""
    for v, n in kept: g.output(g.narrow(g.reshape(v, n), 0, 0, 1, 1))
    g.compile()
    seen = {}
    for v, shape, dtype in g.random:
        if (shape, dtype) not in seen: seen[shape, dtype] = torch.randn(*shape, dtype=dtype)
        g.state_set(v, seen[shape, dtype])


# ---- one layer, forward and backward ---------------------------------------------------------

ROWS, COLUMNS = (64, 256) if SMALL else (8192, 4096)
LAYERS = {  # in Beryl, in PyTorch, tensors read and written at least: the sum of the result times dy, and its gradients
    "softmax": (lambda g, x, y, w, b: g.softmax(x), lambda x, y, w, b: torch.softmax(x, -1), 2 + 3),
    "rms_norm": (lambda g, x, y, w, b: g.rms_norm(x, w, 1e-6), lambda x, y, w, b: F.rms_norm(x, (COLUMNS,), w, 1e-6), 2 + 3),
    "layer_norm": (lambda g, x, y, w, b: g.layer_norm(x, w, b, 1e-6), lambda x, y, w, b: F.layer_norm(x, (COLUMNS,), w, b, 1e-6), 2 + 3),
    "chain of 3": (lambda g, x, y, w, b: g.scale(g.mul(g.add(x, y), w), 0.5), lambda x, y, w, b: (x + y) * w * 0.5, 3 + 4),
    "chain of 6": (lambda g, x, y, w, b: g.scale(g.tanh(g.scale(g.add(g.gelu_tanh(g.scale(g.mul(g.add(x, y), w), 0.5)), x), 1 / 30)), 30.0),
                   lambda x, y, w, b: torch.tanh((F.gelu((x + y) * w * 0.5, approximate="tanh") + x) / 30) * 30, 3 + 5),
}


def layers():
    n = ROWS * COLUMNS
    for name, (ours, theirs, tensors) in LAYERS.items():
        if not wanted(name): continue
        two = "chain" in name
        row = Row(f"{name}, forward and backward", tensors * n * 4)

        def build(g):
            g.random = []
            x, y, dy = (some(g, ROWS, COLUMNS) for _ in range(3))
            w, b = (some(g, COLUMNS) for _ in range(2))
            loss = g.sum(g.mul(ours(g, x, y, w, b), dy))
            d = g.gradient(loss, [x, y] if two else [x])
            g.output(loss)
            finish(g, *[(v, n) for v in d])
        row.beryl(build)

        def make(compile):
            x, y, w, b = tensor(ROWS, COLUMNS, grad=True), tensor(ROWS, COLUMNS, grad=two), tensor(COLUMNS), tensor(COLUMNS)
            dy, f = tensor(ROWS, COLUMNS), compile(lambda x, y, w, b, dy: (theirs(x, y, w, b) * dy).sum())
            return lambda: torch.autograd.grad(f(x, y, w, b, dy), [x, y] if two else [x])
        row.torch(make)


# ---- optimisers, losses, convolutions ----------------------------------------------------------

def optimisers():
    n, side = (4, 256) if SMALL else (64, 4096)
    for kind, tensors in (("adam", 7), ("adamw", 7), ("sgd", 3)):
        name = f"{kind}, {n * side * side / 1e9:.2f} G parameters"
        if not wanted(name): continue
        row = Row(name, tensors * n * side * side * 4)

        def build(g):
            g.random = []
            p, d = ([some(g, side, side) for _ in range(n)] for _ in range(2))
            rate = g.input("f32")
            g.optimise(p, d, rate, kind, weight_decay=0.01 if kind == "adamw" else 0.0)
            g.output(g.scale(rate, 1.0))
            finish(g)
            g.set(rate, torch.tensor([1e-4]))
        row.beryl(build)

        def make(compile, fused=None):
            p = [tensor(side, side, grad=True) for _ in range(n)]
            for x in p: x.grad = tensor(side, side)
            of = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[kind]
            optimiser = of(p, lr=1e-4, fused=fused) if kind == "sgd" else of(p, lr=1e-4, fused=fused, weight_decay=0.01 if kind == "adamw" else 0)
            return compile(lambda: optimiser.step())
        row.torch(make)
        if not options.no_torch and not SMALL: row.add("fused  ", lambda: (make(lambda f: f, True), synchronize, None, None))


def cross_entropy():
    n, d, classes = (32, 64, 1000) if SMALL else (2048, 1024, 262144)
    name = f"cross-entropy, {classes} classes"
    if not wanted(name): return
    row = Row(f"{name}, {n} x {d}", 3 * 2 * n * d * classes, "GFLOP/s")

    def build(g):
        g.random = []
        x, w = some(g, n, d), some(g, classes, d)
        t = g.input("i32", n)
        loss = g.mean(g.linear_cross_entropy(x, w, t, 0.0))
        dx, dw = g.gradient(loss, [x, w])
        g.output(loss)
        finish(g, (dx, n * d), (dw, classes * d))
        g.set(t, torch.randint(0, classes, (n,), dtype=torch.int32))
        return lambda: f"  intermediates {g.memory() / 2**20:.0f} MiB, {classes * d * 4 / 2**20:.0f} of them the weight's gradient"
    row.beryl(build)

    def make(compile):
        x, w, t = tensor(n, d, grad=True), tensor(classes, d, grad=True), torch.randint(0, classes, (n,), device=GPU)
        f = compile(lambda x, w, t: F.cross_entropy(x @ w.T, t))
        return lambda: torch.autograd.grad(f(x, w, t), [x, w])
    row.torch(make)


CONVOLUTIONS = [(3, 64, 224, 7, 2, 3), (64, 64, 56, 1, 1, 0), (64, 64, 56, 3, 1, 1), (256, 64, 56, 1, 1, 0), (128, 128, 28, 3, 1, 1),
                (256, 512, 56, 1, 2, 0), (256, 256, 14, 3, 1, 1), (512, 512, 7, 3, 1, 1)]  # in, out, side, size, stride, pad


def convolutions():
    batch = 1 if SMALL else 32
    for kind, dtype in (("f32", torch.float32), ("f16", torch.float16)):
        for i, o, side, size, stride, pad in CONVOLUTIONS:
            if SMALL: i, o, side = min(i, 8), min(o, 8), side // 7
            name = f"conv2d backward {i}-{o}, {size}x{size}/{stride}, {side}, {kind}"
            if not wanted(name): continue
            out = (side + 2 * pad - size) // stride + 1
            row = Row(name, 2 * 2 * batch * o * out * out * i * size * size, "GFLOP/s")

            def build(g):
                g.random = []
                x, w, dy = some(g, batch, i, side, side, kind=kind), some(g, o, i, size, size, kind=kind), some(g, batch, o, out, out, kind=kind)
                dx, dw = g.gradient(g.sum(g.mul(g.conv(x, w, stride, pad), dy)), [x, w])
                finish(g, (dx, batch * i * side * side), (dw, o * i * size * size))
            row.beryl(build)

            def make(compile):
                x, w, dy = tensor(batch, i, side, side, dtype=dtype), tensor(o, i, size, size, dtype=dtype), tensor(batch, o, out, out, dtype=dtype)
                return lambda: torch.ops.aten.convolution_backward(dy, x, w, None, [stride] * 2, [pad] * 2, [1, 1], False, [0, 0], 1,
                                                                   [True, True, False])
            row.torch(make, False)


# ---- whole steps -------------------------------------------------------------------------------

def steps():
    cases = [("mlp 784-2048-10, batch 512", Mlp() if not SMALL else Mlp((16, 8, 4), 4), "adam"),
             ("gpt 10 M, f32", Gpt(kind="f32") if not SMALL else Gpt(1, 32, 2, 8, 2, 16), "adamw"),
             ("gpt 10 M, bf16", Gpt(kind="bf16") if not SMALL else Gpt(1, 32, 2, 8, 2, 16, "bf16"), "adamw")]
    for name, model, kind in cases:
        if not wanted(name): continue
        row = Row(name)
        decay = dict(weight_decay=0.01) if kind == "adamw" else {}

        def build(g):
            _, inputs, _ = beryl_step(g, model, 1e-3, kind, **decay)
            for value, x in zip(inputs, model.batches()): g.set(value, x)
            return lambda: f"  intermediates {g.memory() / 2**20:.0f} MiB"
        row.beryl(build)

        def make(compile):
            p = [x.to(GPU).requires_grad_() for x in drawn(model.shapes)]
            of = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[kind]
            optimiser = of(p, lr=1e-3, fused=GPU == "cuda" or None, **decay)
            x, t = (b.to(GPU) for b in model.batches())
            f, t = compile(lambda p, x, t: model.torch(p, x, t)), t.long()

            def step():
                optimiser.zero_grad()
                f(p, x, t).backward()
                optimiser.step()
            return step
        row.torch(make)


def main():
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name() if GPU == 'cuda' else 'cpu'}; Beryl on {options.device}; layers f32 [{ROWS}, {COLUMNS}]")
    for part in (layers, optimisers, cross_entropy, convolutions, steps): part()


main()
