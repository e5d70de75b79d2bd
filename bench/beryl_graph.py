"""beryl_graph.h by ctypes, as far as benchmarks and checks beside PyTorch need it.

  g = Graph("cuda")
  x = g.input("f32", 3, 512)
  y = g.softmax(g.linear(x, w))      any beryl_graph_NAME(g, ...) that gives a value
  g.output(y); g.compile(); g.run()
"""
import ctypes, os, sys
from ctypes import c_bool, c_char_p, c_float, c_int, c_size_t, c_uint32, c_uint64, c_void_p

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../tools"))
from beryl_library import NUMBERS, PENDING, Error, Sdpa, Window, dims, library, u32

PLAN = 1
OPTIMISERS = {"sgd": 0, "adam": 1, "adamw": 2}


class Options(ctypes.Structure):  # beryl_graph_options
    _fields_ = [("size", c_size_t), ("device", c_char_p), ("precision", c_int), ("memory", c_uint64),
                ("allocator", c_void_p * 2)]


class Explain(ctypes.Structure):  # beryl_explain_options
    _fields_ = [("size", c_size_t), ("stage", c_int), ("plan", c_int), ("one", c_bool), ("op", c_uint32), ("device", c_char_p),
                ("precision", c_int)]


class Optimiser(ctypes.Structure):
    _fields_ = [("kind", c_int), ("momentum", c_float), ("weight_decay", c_float), ("nesterov", c_bool), ("beta1", c_float),
                ("beta2", c_float), ("eps", c_float), ("when", c_uint32)]


class Graph:
    lib = None

    def __init__(self, device=None):
        if not Graph.lib: Graph.lib = library(os.environ.get("BERYL_LIBRARY") or os.path.join(HERE, "../build/lib/libberyl.so"))
        self.g, self.error = c_void_p(), Error()
        options = Options(size=ctypes.sizeof(Options), device=device.encode()) if device else None
        self.check(self.lib.beryl_graph_open(options and ctypes.byref(options), ctypes.byref(self.g), ctypes.byref(self.error)))

    def check(self, status):
        if status: raise RuntimeError(self.error.message.decode())

    def call(self, name, *arguments):
        f = getattr(self.lib, "beryl_graph_" + name)
        f.restype = c_uint32
        return f(self.g, *[c_float(a) if isinstance(a, float) else a for a in arguments])

    def __getattr__(self, name):
        return lambda *arguments: self.call(name, *arguments)

    def input(self, kind, *sizes):
        return self.call("input", b"x", NUMBERS[kind], len(sizes), dims(*sizes))

    def state(self, *sizes, kind="f32", name=b"s"):
        return self.call("state", name, NUMBERS[kind], len(sizes), u32(*sizes))

    def reshape(self, x, *sizes):
        return self.call("reshape", x, len(sizes), dims(*sizes))

    def permute(self, x, *axes):
        return self.call("permute", x, len(axes), u32(*axes))

    def cast(self, x, kind):
        return self.call("cast", x, NUMBERS[kind], c_bool(False))

    def sum(self, x, *axes):
        return self.call("sum", x, u32(*axes) if axes else None, len(axes), c_bool(False))

    def mean(self, x):
        return self.call("mean", x, None, 0, c_bool(False))

    def sdpa(self, q, k, v, causal):
        return self.call("sdpa", q, k, v, 0, ctypes.byref(Sdpa(causal=causal)))

    def conv(self, x, w, stride, pad):
        return self.call("conv", x, w, 2, (Window * 2)(*[Window(0, stride, 1, pad, pad)] * 2), 1)

    def max_pool(self, x, size, stride, pad):
        return self.call("max_pool", x, 2, (Window * 2)(*[Window(size, stride, 1, pad, pad)] * 2))

    def gradient(self, loss, values):
        found = u32(*[0] * len(values))
        self.call("gradient", loss, len(values), u32(*values), found)
        return list(found)

    def clip(self, values, norm):
        found = u32(*[0] * len(values))
        self.call("clip", len(values), u32(*values), norm, found)
        return list(found)

    def optimise(self, parameters, gradients, rate, kind, **how):
        self.call("optimise", len(parameters), u32(*parameters), u32(*gradients), rate,
                  ctypes.byref(Optimiser(kind=OPTIMISERS[kind], **how)), None)

    def output(self, value):
        self.call("output", value, b"y")
        return value

    def compile(self):
        status = PENDING
        while status == PENDING: status = self.lib.beryl_graph_compile(self.g, ctypes.byref(self.error))
        self.check(status)

    def explain(self, stage=PLAN):
        """The plan as text, before the graph is compiled."""
        parts = []
        write = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_size_t)(lambda _, text, size: parts.append(ctypes.string_at(text, size)))
        how = Explain(size=ctypes.sizeof(Explain), stage=stage)
        self.check(self.lib.beryl_graph_explain(self.g, ctypes.byref(how), write, None, ctypes.byref(self.error)))
        return b"".join(parts).decode()

    def _move(self, name, value, data):
        """data: an array of NumPy, or a tensor of PyTorch on the processor, contiguous."""
        at, size = (data.ctypes.data, data.nbytes) if hasattr(data, "ctypes") else (data.data_ptr(), data.numel() * data.element_size())
        status = PENDING
        while status == PENDING:
            status = getattr(self.lib, "beryl_graph_" + name)(self.g, value, at, size, ctypes.byref(self.error))
        self.check(status)
        return data

    def set(self, value, data):
        return self._move("set", value, data)

    def read(self, value, data):
        return self._move("read", value, data)

    def state_set(self, value, data):
        return self._move("state_set", value, data)

    def state_get(self, value, data):
        return self._move("state_get", value, data)

    def run(self):
        status = PENDING
        while status == PENDING: status = self.lib.beryl_graph_run(self.g, None, 0, ctypes.byref(self.error))
        self.check(status)

    def wait(self):
        self.check(self.lib.beryl_graph_wait(self.g, ctypes.byref(self.error)))

    def memory(self):
        """Bytes of intermediates."""
        n = c_uint64()
        self.check(self.lib.beryl_graph_memory(self.g, ctypes.byref(n), None, ctypes.byref(self.error)))
        return n.value

    def close(self):
        self.lib.beryl_graph_close(self.g)
