"""Small models twice, as graphs of beryl_graph.py and in PyTorch, over one list of parameters: for bench/torch_train.py and
tools/torch-losses. `shapes` are the parameters' shapes, `first` their first numbers; both sides give a mean loss of a batch."""
import ctypes, math
import torch
import torch.nn.functional as F


def drawn(shapes, seed=1):
    """Vectors begin as `one` says, matrices and filters uniform, by their inputs."""
    torch.manual_seed(seed)
    first = []
    for shape, one in shapes:
        most = 1 / math.sqrt(math.prod(shape[1:]) or 1)
        first.append(torch.full(shape, float(one)) if len(shape) == 1 else (2 * torch.rand(shape) - 1) * most)
    return first


class Mlp:
    def __init__(self, sizes=(784, 2048, 10), batch=512):
        self.sizes, self.batch = sizes, batch
        self.shapes = [s for i, o in zip(sizes, sizes[1:]) for s in (((o, i), 0), ((o,), 0))]

    def batches(self):
        x = torch.randn(self.batch, self.sizes[0])
        return x, (x[:, : self.sizes[-1]].argmax(1)).int()

    def inputs(self, g):
        return g.input("f32", self.batch, self.sizes[0]), g.input("i32", self.batch)

    def beryl(self, g, p, x, t):
        for i in range(0, len(p), 2):
            x = g.add(g.linear(x, p[i]), p[i + 1])
            if i + 2 < len(p): x = g.relu(x)
        return g.mean(g.cross_entropy(x, t))

    def torch(self, p, x, t):
        for i in range(0, len(p), 2):
            x = F.linear(x, p[i], p[i + 1])
            if i + 2 < len(p): x = F.relu(x)
        return F.cross_entropy(x, t)


class Gpt:
    """Of characters; kind: what is multiplied and attended."""

    def __init__(self, layers=6, width=384, heads=6, time=256, batch=64, chars=128, kind="f32"):
        self.layers, self.width, self.heads, self.time, self.batch, self.chars, self.kind = layers, width, heads, time, batch, chars, kind
        w = width
        layer = [((w,), 1), ((w, w), 0), ((w, w), 0), ((w, w), 0), ((w, w), 0), ((w,), 1), ((4 * w, w), 0), ((w, 4 * w), 0)]
        self.shapes = [((chars, w), 0), ((time, w), 0)] + layer * layers + [((w,), 1)]

    def batches(self):
        """Each character is told by the one before."""
        ids = torch.randint(0, self.chars, (self.batch, 1))
        ids = (ids + torch.arange(self.time + 1) * 7 + torch.randint(0, 2, (self.batch, self.time + 1))) % self.chars
        return ids[:, :-1].int().contiguous(), ids[:, 1:].int().reshape(-1).contiguous()

    def inputs(self, g):
        return g.input("i32", self.batch, self.time), g.input("i32", self.batch * self.time)

    def beryl(self, g, p, ids, t):
        half, n, w, h = self.kind != "f32", self.batch * self.time, self.width, self.heads
        narrow = lambda x: g.cast(x, self.kind) if half else x
        wide = lambda x: g.cast(x, "f32") if half else x
        product = lambda x, m: g.matmul(x, narrow(m), ctypes.c_bool(False), ctypes.c_bool(True)) if half else g.linear(x, m)
        turned = lambda x: g.permute(g.reshape(x, self.batch, self.time, h, w // h), 0, 2, 1, 3)
        x = g.reshape(g.add(g.gather_rows(p[0], ids, 1.0), p[1]), n, w)
        for l in range(self.layers):
            q = p[2 + 8 * l : 10 + 8 * l]
            y = narrow(g.rms_norm(x, q[0], 1e-5))
            y = g.sdpa(*[turned(product(y, m)) for m in q[1:4]], causal=True)
            x = g.add(x, wide(product(g.reshape(g.permute(y, 0, 2, 1, 3), n, w), q[4])))
            y = g.gelu_tanh(product(narrow(g.rms_norm(x, q[5], 1e-5)), q[6]))
            x = g.add(x, wide(product(y, q[7])))
        return g.mean(g.cross_entropy(wide(product(narrow(g.rms_norm(x, p[-1], 1e-5)), p[0])), t))

    def torch(self, p, ids, t):
        dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[self.kind]
        product = lambda x, m: F.linear(x, m.to(dtype))
        turned = lambda x: x.view(self.batch, self.time, self.heads, -1).transpose(1, 2)
        x = (F.embedding(ids, p[0]) + p[1]).view(-1, self.width)
        norm = lambda x, m: F.rms_norm(x, (self.width,), m, 1e-5).to(dtype)
        for l in range(self.layers):
            q = p[2 + 8 * l : 10 + 8 * l]
            y = norm(x, q[0])
            y = F.scaled_dot_product_attention(*[turned(product(y, m)) for m in q[1:4]], is_causal=True)
            x = x + product(y.transpose(1, 2).reshape(-1, self.width), q[4]).float()
            x = x + product(F.gelu(product(norm(x, q[5]), q[6]), approximate="tanh"), q[7]).float()
        return F.cross_entropy(product(norm(x, p[-1]), p[0]).float(), t)


class Resnet:
    """As examples/resnet.c has it."""

    plan = [(1, 8, 3, 1), (8, 8, 3, 1), (8, 8, 3, 1), (8, 16, 3, 2), (16, 16, 3, 1), (8, 16, 1, 2)]  # in, out, size, stride

    def __init__(self, side=16, batch=32):
        self.side, self.batch = side, batch
        self.shapes = [s for i, o, size, _ in self.plan for s in (((o, i, size, size), 0), ((o,), 0))] + [((4, 16), 0)]

    def batches(self):
        x = torch.randn(self.batch, 1, self.side, self.side)
        t = torch.randint(0, 4, (self.batch,))
        for i in range(self.batch):
            x[i, 0, 4 * t[i] : 4 * t[i] + 4] += 1.0
        return x, t.int()

    def inputs(self, g):
        return g.input("f32", self.batch, 1, self.side, self.side), g.input("i32", self.batch)

    def over(self, p, x, t, conv, add, relu, end):
        at = lambda i, x: conv(x, p[2 * i], p[2 * i + 1], self.plan[i][3], self.plan[i][2] // 2)
        y = relu(at(0, x))
        y = relu(add(at(2, relu(at(1, y))), y))
        y = relu(add(at(4, relu(at(3, y))), at(5, y)))
        return end(y, p[-1], t)

    def beryl(self, g, p, x, t):
        conv = lambda x, w, bias, stride, pad: g.batch_norm_training(g.conv(x, w, stride, pad), 0, bias, 1e-5, None, None)
        end = lambda y, w, t: g.mean(g.cross_entropy(g.linear(g.mean(y, 2, 3), w), t))
        return self.over(p, x, t, conv, g.add, g.relu, end)

    def torch(self, p, x, t):
        conv = lambda x, w, bias, stride, pad: F.batch_norm(F.conv2d(x, w, None, stride, pad), None, None, None, bias, True, 0, 1e-5)
        end = lambda y, w, t: F.cross_entropy(F.linear(y.mean((2, 3)), w), t)
        return self.over(p, x, t, conv, torch.add, F.relu, end)


def beryl_step(graph, model, rate, kind, clip=0.0, **how):
    """A compiled training step: (states, inputs, loss), first numbers set."""
    p = [graph.state(*shape, name=b"p%d" % i) for i, (shape, _) in enumerate(model.shapes)]
    inputs = model.inputs(graph)
    step = graph.input("f32")
    loss = model.beryl(graph, p, *inputs)
    d = graph.gradient(loss, p)
    if clip: d = graph.clip(d, clip)
    graph.optimise(p, d, step, kind, **how)
    graph.output(loss)
    graph.compile()
    for state, first in zip(p, drawn(model.shapes)): graph.state_set(state, first)
    graph.set(step, torch.tensor([rate]))
    return p, inputs, loss
