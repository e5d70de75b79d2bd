#!/usr/bin/env python3
"""Operations of beryl_graph.h beside PyTorch's, eager and by torch.compile, in one process on one device.

  BERYL_DEVICE=D python3 bench/torch_bench.py [--device cuda|cpu] [--library FILE] [--no-compile] [NAME ...]

Needs PyTorch. NAME: rows whose name has it, or `operations`, `products`, `attention`, `convolutions`, `networks`, `order`: the rest is left
out. A time is the median of some rounds of runs queued at once, then a wait; what goes in and out stays on the device, and is
more than its caches hold. Both get the same numbers; results that differ are told. A row is met if PyTorch's better time over
ours is at least what issue 15 wants and, where bytes limit it, so is the share of what PyTorch's copy moves. Bytes are those
that have to be moved, TFLOP those of the textbook (of an FFT 5 n log2(n)). PyTorch's indices are int64, ours int32; its
convolutions are of contiguous NCHW, as ours.
"""
import argparse, math, os, sys, time, warnings
import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tools"))
from beryl_graph import Failed, Graph, Sdpa, Window, u32
import ctypes

F = torch.nn.functional
ROUNDS, ROUND_SECONDS = 5, 0.02
options = argparse.ArgumentParser(usage=__doc__)
options.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
options.add_argument("--library", default="build/lib/libberyl.so")
options.add_argument("--no-compile", action="store_true")
options.add_argument("names", nargs="*")
options = options.parse_args()
CUDA = options.device == "cuda"
F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16


def size(cuda, cpu):
    return cuda if CUDA else cpu


# ---- what goes in

def floats(*shape, type=F32):
    return lambda: torch.randn(shape, device=options.device).to(type)


def indices(limit, *shape):
    return lambda: torch.randint(0, limit, shape, device=options.device, dtype=torch.int32)


def values(*shape):
    """Whole numbers as floats, so that sums in any order are the same."""
    return lambda: torch.randint(-8, 9, shape, device=options.device).float()


# ---- rows: name, inputs, ours (g, *values), theirs (*tensors), amount, its unit, aim, share of the copy wanted, torch.compile?

ROWS = []


def row(part, name, inputs, ours, theirs, amount, unit="GB/s", aim=None, share=0, compiled=False, prepare=None, loose=False,
        repeats=False):
    """prepare: theirs gets what it makes of the inputs. loose: results may differ where both are right. repeats: PyTorch has to
    give the same bits in every run, as we do."""
    if aim is None: aim = 0.9
    ROWS.append(dict(part=part, name=name, inputs=inputs, ours=ours, theirs=theirs, amount=amount, unit=unit, share=share,
                     aim=aim if CUDA else 0.7, compiled=compiled, prepare=prepare, loose=loose,
                     repeats=repeats))


N, M = size(8192, 2048), 4096


def moves(name, inputs, ours, theirs, n_moved, width=4, share=0.8, **more):
    row("operations", name, inputs, ours, theirs, n_moved * width, share=share, compiled=True, **more)


def operations():
    x, y, w = floats(N, M), floats(N, M), floats(M)
    moves("copy", [x], lambda g, x: g("copy", x), lambda x: x.clone(), 2 * N * M)
    moves("silu", [x], lambda g, x: g("silu", x), F.silu, 2 * N * M)
    moves("silu f16", [floats(N, M, type=F16)], lambda g, x: g("silu", x), F.silu, 2 * N * M, 2)
    moves("add", [x, y], lambda g, x, y: g("add", x, y), torch.add, 3 * N * M)
    moves("chain of 6", [x, y, w],
          lambda g, x, y, w: g("softcap", g("add", g("gelu_tanh", g("scale", g("mul", g("add", x, y), w), 0.5)), x), 30.0),
          lambda x, y, w: torch.tanh((F.gelu((x + y) * w * 0.5, approximate="tanh") + x) / 30) * 30, 3 * N * M)
    for name, axis, shape in (("rows", 1, (N, M)), ("columns", 0, (N, M)), ("middle axis", 1, (N // 64, 512, M // 8))):
        count = math.prod(shape)
        moves("sum of " + name, [floats(*shape)], lambda g, x, a=axis: g("sum", x, u32(a), 1, ctypes.c_bool(False)),
              lambda x, a=axis: x.sum(a), count)
        moves("amax of " + name, [floats(*shape)], lambda g, x, a=axis: g("amax", x, u32(a), 1, ctypes.c_bool(False)),
              lambda x, a=axis: x.amax(a), count)
    moves("sum of all", [values(N, M)], lambda g, x: g("sum", x, None, 0, ctypes.c_bool(False)), lambda x: x.sum(), N * M)
    moves("var of columns", [x], lambda g, x: g("var", x, u32(0), 1, 1, ctypes.c_bool(False)), lambda x: x.var(0), N * M, share=0)
    moves("layer_norm", [x, w, w], lambda g, x, w, v: g("layer_norm", x, w, v, 1e-05),
          lambda x, w, v: F.layer_norm(x, (M,), w, v), 2 * N * M)
    moves("rms_norm", [x, w], lambda g, x, w: g("rms_norm", x, w, 1e-05), lambda x, w: F.rms_norm(x, (M,), w, 1e-5), 2 * N * M)
    moves("softmax", [x], lambda g, x: g("softmax", x), lambda x: x.softmax(-1), 2 * N * M)
    moves("transpose", [x], lambda g, x: g("copy", g("permute", x, 2, u32(1, 0))), lambda x: x.t().contiguous(), 2 * N * M)
    moves("transpose f16", [floats(N, M, type=F16)], lambda g, x: g("copy", g("permute", x, 2, u32(1, 0))),
          lambda x: x.t().contiguous(), 2 * N * M, 2)
    moves("permute 0 2 1 3", [floats(N // 512, 512, 32, 128)], lambda g, x: g("copy", g("permute", x, 4, u32(0, 2, 1, 3))),
          lambda x: x.permute(0, 2, 1, 3).contiguous(), 2 * N * M)
    half = floats(N, M // 2)
    moves("concat of columns", [half, half], lambda g, x, y: g("concat", 2, u32(x, y), 1), lambda x, y: torch.cat((x, y), 1), 2 * N * M)
    long = lambda x, *more: (x, *[i.long() for i in more])
    moves("index_select rows of 4096", [x, indices(N, N)], lambda g, x, i: g("index_select", x, i, 0),
          lambda x, i: x.index_select(0, i), 2 * N * M)
    moves("index_select rows of 64", [floats(N * M // 64, 64), indices(N * M // 64, N * M // 64)],
          lambda g, x, i: g("index_select", x, i, 0), lambda x, i: x.index_select(0, i), 2 * N * M)
    moves("gather in rows", [x, indices(M, N, M)], lambda g, x, i: g("gather", x, i, 1), lambda x, i: x.gather(1, i), 3 * N * M,
          prepare=long)
    moves("gather in columns", [x, indices(N, N, M)], lambda g, x, i: g("gather", x, i, 0), lambda x, i: x.gather(0, i), 3 * N * M,
          prepare=long)
    moves("cumsum of rows", [values(N, M)], lambda g, x: g("cumsum", x, 1), lambda x: x.cumsum(1), 2 * N * M)
    moves("cumsum of long rows", [values(N // 256, M * 256)], lambda g, x: g("cumsum", x, 1), lambda x: x.cumsum(1), 2 * N * M, share=0.55)


def products():
    aims = {F32: 0.9, F16: 0.6, BF16: 0.6}
    n = size(4096, 1024)
    for type, aim in aims.items():
        kind = str(type)[6:]
        for form, a, b in (("a b", False, False), ("a bT", False, True), ("aT b", True, False)):
            row("products", f"matmul {n} {form} {kind}", [floats(n, n, type=type)] * 2,
                lambda g, x, y, a=a, b=b: g("matmul", x, y, ctypes.c_bool(a), ctypes.c_bool(b)),
                lambda x, y, a=a, b=b: (x.t() if a else x) @ (y.t() if b else y), 2 * n**3, "TFLOP/s", aim)
        k, m = size(64, 8), size(1024, 256)
        row("products", f"matmul {k} of {m} {kind}", [floats(k, m, m, type=type)] * 2, lambda g, x, y: g("matmul", x, y, False, False),
            torch.matmul, 2 * k * m**3, "TFLOP/s", aim)
        v = size(16384, 4096)
        row("products", f"matmul {v} one vector {kind}", [floats(v, v, type=type), floats(v, type=type)],
            lambda g, x, y: g("matmul", x, y, False, False), torch.matmul, v * v * type.itemsize, "GB/s", 0.9)
    for type in (F32, F16):
        for odd in (n - 1, n + 1):
            row("products", f"matmul {odd} a b {str(type)[6:]}", [floats(odd, odd, type=type)] * 2,
                lambda g, x, y: g("matmul", x, y, False, False), torch.matmul, 2 * odd**3, "TFLOP/s", aims[type])


def attention():
    b, h, n = size((4, 16, 4096), (1, 4, 1024))
    for d in (64, 128):
        for causal in (False, True):
            row("attention", f"sdpa f16 d {d}{' causal' if causal else ''}", [floats(b, h, n, d, type=F16)] * 3,
                lambda g, q, k, v, c=causal: g("sdpa", q, k, v, 0, ctypes.byref(Sdpa(causal=c))),
                lambda q, k, v, c=causal: F.scaled_dot_product_attention(q, k, v, is_causal=c),
                4 * b * h * n * n * d // (2 if causal else 1), "TFLOP/s", 0.5)


def convolutions():
    batch = size(32, 2)
    for type in (F16, F32):
        for c_in, c_out, side, k, stride, groups in ((64, 64, 56, 3, 1, 1), (128, 128, 28, 3, 1, 1), (256, 256, 14, 3, 1, 1),
                                                     (512, 512, 7, 3, 1, 1), (64, 256, 56, 1, 1, 1), (1024, 256, 14, 1, 1, 1),
                                                     (3, 64, 224, 7, 2, 1), (128, 128, 56, 3, 1, 128)):
            out, pad = side // stride, k // 2
            n = batch * c_out * out * out
            windows = (Window * 2)(*[Window(k, stride, 1, pad, pad)] * 2)
            amount = (2 * n * 4 if type is F32 else 2 * n * 2) if groups > 1 else 2 * n * c_in // groups * k * k
            plain = lambda x, w, s=stride, p=pad, g=groups: F.conv2d(x, w, None, s, p, 1, g)
            row("convolutions", f"conv {k}x{k} {c_in} to {c_out}, {side} {str(type)[6:]}" + (" depthwise" if groups > 1 else ""),
                [floats(batch, c_in, side, side, type=type), floats(c_out, c_in // groups, k, k, type=type)],
                lambda g, x, w, s=windows, n=groups: g("conv", x, w, 2, s, n), plain, amount,
                "GB/s" if groups > 1 else "TFLOP/s", 1.0 if groups > 1 else 0.5)


def networks():
    """ResNet-50's forward pass: ours with batch norms folded, as an ONNX file is read, PyTorch's with them."""
    blocks = [(64 << stage, i, 2 if stage and not i else 1) for stage, n in enumerate((3, 4, 6, 3)) for i in range(n)]
    shapes, c = [(64, 3, 7)], 64
    for width, first, stride in blocks:
        shapes += [(width, c, 1), (width, width, 3), (4 * width, width, 1)] + ([] if first else [(4 * width, c, 1)])
        c = 4 * width

    def over(image, weights, conv, pool, relu, add, end):
        left = iter(zip(weights[0:-1:2], weights[1:-1:2]))
        x = pool(relu(conv(image, *next(left), 7, 2)))
        for width, first, stride in blocks:
            y = relu(conv(x, *next(left), 1, 1))
            y = conv(relu(conv(y, *next(left), 3, stride)), *next(left), 1, 1)
            x = relu(add(y, x if first else conv(x, *next(left), 1, stride)))
        return end(x, weights[-1])

    def our_conv(g, x, w, bias, k, stride):
        return g("add", g("conv", x, w, 2, (Window * 2)(*[Window(k, stride, 1, k // 2, k // 2)] * 2), 1), bias)

    def net(g, image, *weights):
        pool = (Window * 2)(*[Window(3, 2, 1, 1, 1)] * 2)
        end = lambda x, w: g("linear", g("mean", x, u32(2, 3), 2, ctypes.c_bool(False)), w)
        return over(image, weights, lambda *a: our_conv(g, *a), lambda x: g("max_pool", x, 2, pool), lambda x: g("relu", x),
                    lambda x, y: g("add", x, y), end)

    def torch_net(image, *weights):
        def conv(x, w, bias, k, stride):
            one = torch.ones_like(bias.flatten())
            return F.batch_norm(F.conv2d(x, w, None, stride, k // 2), 0 * one, one, one, bias.flatten(), eps=1e-9)
        return over(image, weights, conv, lambda x: F.max_pool2d(x, 3, 2, 1), F.relu, torch.add,
                    lambda x, w: F.linear(x.mean((2, 3)), w))

    def weight(type, *shape):
        return lambda: (torch.randn(shape, device=options.device) * (1 / math.prod(shape[1:])) ** 0.5).to(type)

    for type in (F32, F16):
        for batch in (1, 32):
            inputs = [floats(batch, 3, 224, 224, type=type)]
            for out, c_in, k in shapes: inputs += [weight(type, out, c_in, k, k), weight(type, out, 1, 1)]
            row("networks", f"resnet-50 of {batch} {str(type)[6:]}", inputs + [weight(type, 1000, 2048)], net, torch_net,
                8.2e9 * batch, "TFLOP/s", 0.6)


def order():
    n = size(1 << 24, 1 << 20)
    side = size(4096, 512)
    row("order", f"sort {n}", [floats(n)], lambda g, x: g("sort", x, 0, False, None), lambda x: x.sort(0).values, 2 * n * 4, aim=0.5)
    row("order", f"sort {n} with indices", [floats(n)], lambda g, x: g("argsort", x, 0, False), lambda x: x.sort(0).indices, 2 * n * 4,
        aim=0.5, loose=True)
    for k in (64, 4096):
        row("order", f"topk {k} of {n}", [floats(n)], lambda g, x, k=k: g("topk", x, k, 0, None), lambda x, k=k: x.topk(k).values, n * 4,
            aim=0.5)
    row("order", f"sort 1024 rows of {n // 1024}", [floats(1024, n // 1024)], lambda g, x: g("sort", x, 1, False, None),
        lambda x: x.sort(1).values, 2 * n * 4, aim=0.5)
    row("order", f"scatter_add {n} to {n // 16}", [values(n // 16), indices(n // 16, n), values(n)],
        lambda g, x, i, u: g("scatter_add", x, i, u, 0), lambda x, i, u: x.scatter_add(0, i, u), (2 * n + n // 8) * 4, aim=0.5,
        prepare=lambda x, i, u: (x, i.long(), u), repeats=True)
    row("order", f"index_add {n // 64} rows of 64", [values(n // 1024, 64), indices(n // 1024, n // 64), values(n // 64, 64)],
        lambda g, x, i, u: g("index_add", x, i, u, 0), lambda x, i, u: x.index_add(0, i, u), n * 4, aim=0.5, repeats=True)
    both = lambda x: (torch.view_as_complex(x),)
    flops = 5 * side * side * math.log2(side)
    row("order", f"fft {side} rows", [floats(side, side, 2)], lambda g, x: g("fft", x, 1, False, 0),
        lambda x: torch.view_as_real(torch.fft.fft(x)), flops, "TFLOP/s", 0.5, prepare=both)
    row("order", f"fft {side} x {side}", [floats(side, side, 2)], lambda g, x: g("fft", g("fft", x, 1, False, 0), 0, False, 0),
        lambda x: torch.view_as_real(torch.fft.fft2(x)), 2 * flops, "TFLOP/s", 0.5, prepare=both)


# ---- timing

def seconds(start, wait):
    """A run's, of runs queued: the median of rounds."""
    def round(n):
        began = time.perf_counter()
        for _ in range(n): start()
        wait()
        return (time.perf_counter() - began) / n
    round(1), round(2)
    n = min(200, max(2, int(ROUND_SECONDS / max(round(2), 1e-6))))
    return sorted(round(n) for _ in range(ROUNDS))[ROUNDS // 2]


def ours(r, tensors, like):
    """Seconds, and the result."""
    tensors = [x.contiguous().cpu() for x in tensors]
    with Graph() as g:
        inputs = [g.given(x) for x in tensors]
        y = r["ours"](g, *inputs)
        g.output(y)
        g.compile()
        g.run()
        g.wait()
        got = g.read(y, torch.empty(like.shape, dtype=torch.int32 if like.dtype == torch.int64 else like.dtype))
        for v in (*inputs, y): g.stay(v)
        return seconds(g.run, g.wait), got


def theirs(run, tensors):
    with torch.no_grad():
        return seconds(lambda: run(*tensors), torch.cuda.synchronize if CUDA else lambda: None)


def difference(got, like):
    like = like.double()
    return float((got.double() - like).norm() / like.norm().clamp(min=1e-30))


def timed(r, copy):
    """Prints the row."""
    torch.use_deterministic_algorithms(r["repeats"], warn_only=True)
    tensors = [make() for make in r["inputs"]]
    given = r["prepare"](*tensors) if r["prepare"] else tensors
    scale = {"GB/s": 1e9, "TFLOP/s": 1e12 if CUDA else 1e9}[r["unit"]]
    unit = r["unit"] if CUDA else r["unit"].replace("TFLOP", "GFLOP")
    try:
        eager = theirs(r["theirs"], given)
    except RuntimeError as why:
        print(f"{r['name']:36} PyTorch: {str(why).splitlines()[0]}", flush=True)
        return
    best, compiled = eager, None
    if r["compiled"] and not options.no_compile:
        torch._dynamo.reset()
        compiled = theirs(torch.compile(r["theirs"], dynamic=False), given)
        best = min(best, compiled)
    line = f"{r['name']:36}"
    try:
        with torch.no_grad(): like = r["theirs"](*given).cpu()
        took, got = ours(r, tensors, like)
    except Failed as why:
        print(f"{line} {'':9} {eager * 1e6:9.1f} does not run: {why}", flush=True)
        return
    share = r["amount"] / took / copy if copy and r["unit"] == "GB/s" else None
    met = best / took >= r["aim"] and (share is None or share >= r["share"])
    off = 0 if r["loose"] else difference(got, like)
    wrong = off > (2e-2 if got.dtype in (F16, BF16) else 1e-4)
    print(f"{line} {took * 1e6:9.1f} {eager * 1e6:9.1f} {f'{compiled * 1e6:9.1f}' if compiled else '        -'} {best / took:6.2f} "
          f"{r['aim']:4.2f} {r['amount'] / took / scale:8.1f} {unit:8}{f'{share:5.0%}' if share is not None else '     '} "
          f"{'met' if met else 'short'}{f' WRONG by {off:.2g}' if wrong else ''}", flush=True)


def main():
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    torch.utils.deterministic.fill_uninitialized_memory = False
    warnings.filterwarnings("ignore")
    for part in (operations, products, attention, convolutions, networks, order): part()
    Graph.path = options.library
    where = torch.cuda.get_device_name() if CUDA else f"{torch.get_num_threads()} threads"
    print(f"PyTorch {torch.__version__}, {where}; BERYL_DEVICE={os.environ.get('BERYL_DEVICE', '')}")
    print(f"{'':36} {'us':>9} {'eager':>9} {'compiled':>9} {'ratio':>6} {'aim':>4}")
    x = torch.randn(N, M, device=options.device)
    if CUDA: theirs(lambda x: x @ x.t(), [x])  # clocks up
    y = torch.empty_like(x)
    copy = 2 * x.numel() * 4 / theirs(lambda x: y.copy_(x), [x])
    for r in ROWS:
        if not options.names or any(name in r["name"] or name == r["part"] for name in options.names): timed(r, copy)


main()
