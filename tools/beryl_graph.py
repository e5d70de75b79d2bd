"""beryl_graph.h by ctypes, for the scripts that hold it beside PyTorch. Types, statuses and what calls give come from the
header, so that nothing stands here twice.

  with Graph("cuda") as g:                device: as --device has it; none: what BERYL_DEVICE says
      x = g.given(tensor)                 an input, and what is sent to it once the graph is compiled
      y = g.softmax(x)                    g.NAME(...) and g("NAME", ...): beryl_graph_NAME(g, ...)
      g.output(y); g.compile(); g.run(); g.wait()
      g.read(y, torch.empty(3, 512))
"""
import ctypes, os, re
from ctypes import c_bool, c_char, c_char_p, c_float, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
header = open(os.path.join(HERE, "../include/beryl_graph.h")).read()
types = re.findall(r"X\((\w+)\)", header[header.index("BERYL_TYPE_LIST(X)"):header.index("typedef enum beryl_type")])
NUMBERS = {name.lower(): number for number, name in enumerate(types)}
TYPES = {kind: (NUMBERS[kind], dtype) for kind, dtype in
         dict(f32=torch.float32, f16=torch.float16, bf16=torch.bfloat16, i32=torch.int32, i8=torch.int8, u8=torch.uint8,
              bool=torch.bool).items()}
KINDS = {dtype: kind for kind, (_, dtype) in TYPES.items()}
OPTIMISERS = {"sgd": 0, "adam": 1, "adamw": 2}
PENDING, PLAN = 2, 1  # a status, a stage of what is explained


class Dim(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("extent", c_uint32)]


class Window(ctypes.Structure):
    _fields_ = [(name, c_uint32) for name in ("size", "stride", "dilation", "pad_before", "pad_after")]


class Sdpa(ctypes.Structure):
    _fields_ = [("scale", c_float), ("cap", c_float), ("causal", c_bool), ("window", c_uint32), ("first", c_int32)]


class Options(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("device", c_char_p), ("precision", c_int), ("memory", c_uint64), ("allocator", c_void_p * 2)]


class Explain(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("stage", c_int), ("plan", c_int), ("one", c_bool), ("op", c_uint32), ("device", c_char_p),
                ("precision", c_int)]


class Optimiser(ctypes.Structure):
    _fields_ = [("kind", c_int), ("momentum", c_float), ("weight_decay", c_float), ("nesterov", c_bool), ("beta1", c_float),
                ("beta2", c_float), ("eps", c_float), ("when", c_uint32)]


class Error(ctypes.Structure):
    _fields_ = [("code", c_int), ("at", c_uint64), ("message", c_char * 480)]


class Failed(Exception):
    """In the library's words."""


def library(path):
    b = ctypes.CDLL(path)
    for name in re.findall(r"BERYL_API beryl_value beryl_graph_(\w+)\(", header):
        getattr(b, "beryl_graph_" + name).restype = c_uint32
    b.beryl_graph_place.restype = c_bool
    for name in ("set", "read", "state_set", "state_get"):
        getattr(b, "beryl_graph_" + name).argtypes = [c_void_p, c_uint32, c_void_p, c_size_t, c_void_p]
    return b


def u32(*values):
    return (c_uint32 * len(values))(*values)


def dims(*sizes):
    return (Dim * len(sizes))(*[Dim(n, 0) for n in sizes])


class Graph:
    path = os.environ.get("BERYL_LIBRARY") or os.path.join(HERE, "../build/lib/libberyl.so")  # set before the first graph
    lib = None

    def __init__(self, device=None):
        if not Graph.lib: Graph.lib = library(Graph.path)
        self.g, self.error, self.tensors = c_void_p(), Error(), []
        how = Options(size=ctypes.sizeof(Options), device=device.encode()) if device else None
        self.check(self.lib.beryl_graph_open(how and ctypes.byref(how), ctypes.byref(self.g), ctypes.byref(self.error)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.lib.beryl_graph_close(self.g)

    def check(self, status):
        if status: raise Failed(self.error.message.decode())

    def __call__(self, name, *arguments):
        return getattr(self.lib, "beryl_graph_" + name)(self.g, *[c_float(a) if isinstance(a, float) else a for a in arguments])

    def __getattr__(self, name):
        return lambda *arguments: self(name, *arguments)

    # ---- values

    def input(self, kind, *sizes):
        return self("input", b"x", NUMBERS[kind], len(sizes), dims(*sizes))

    def given(self, tensor):
        """Of the type and shape of a tensor of the processor's."""
        value = self.input(KINDS[tensor.dtype], *tensor.shape)
        self.tensors.append((value, tensor))
        return value

    def state(self, *sizes, kind="f32", name=b"s"):
        return self("state", name, NUMBERS[kind], len(sizes), u32(*sizes))

    def reshape(self, x, *sizes):
        return self("reshape", x, len(sizes), dims(*sizes))

    def permute(self, x, *axes):
        return self("permute", x, len(axes), u32(*axes))

    def cast(self, x, kind):
        return self("cast", x, NUMBERS[kind], c_bool(False))

    def sum(self, x, *axes):
        return self("sum", x, u32(*axes) if axes else None, len(axes), c_bool(False))

    def mean(self, x, *axes):
        return self("mean", x, u32(*axes) if axes else None, len(axes), c_bool(False))

    def sdpa(self, q, k, v, causal):
        return self("sdpa", q, k, v, 0, ctypes.byref(Sdpa(causal=causal)))

    def conv(self, x, w, stride, pad, groups=1):
        return self("conv", x, w, 2, (Window * 2)(*[Window(0, stride, 1, pad, pad)] * 2), groups)

    def max_pool(self, x, size, stride, pad):
        return self("max_pool", x, 2, (Window * 2)(*[Window(size, stride, 1, pad, pad)] * 2))

    def gradient(self, loss, values):
        found = u32(*[0] * len(values))
        self("gradient", loss, len(values), u32(*values), found)
        return list(found)

    def clip(self, values, norm):
        found = u32(*[0] * len(values))
        self("clip", len(values), u32(*values), norm, found)
        return list(found)

    def optimise(self, parameters, gradients, rate, kind, **how):
        self("optimise", len(parameters), u32(*parameters), u32(*gradients), rate,
             ctypes.byref(Optimiser(kind=OPTIMISERS[kind], **how)), None)

    def output(self, *values):
        for value in values: self("output", value, b"y")

    # ---- running

    def _until_done(self, name, *arguments):
        status = PENDING
        while status == PENDING: status = self(name, *arguments, ctypes.byref(self.error))
        self.check(status)

    def compile(self):
        self._until_done("compile")
        for value, tensor in self.tensors: self.set(value, tensor)

    def explain(self, stage=PLAN):
        """The plan as text, before the graph is compiled."""
        parts = []
        write = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_size_t)(lambda _, text, size: parts.append(ctypes.string_at(text, size)))
        how = Explain(size=ctypes.sizeof(Explain), stage=stage)
        self.check(self("explain", ctypes.byref(how), write, None, ctypes.byref(self.error)))
        return b"".join(parts).decode()

    def _move(self, name, value, data):
        """data: an array of NumPy, or a tensor of PyTorch on the processor, contiguous."""
        at, size = (data.ctypes.data, data.nbytes) if hasattr(data, "ctypes") else (data.data_ptr(), data.numel() * data.element_size())
        self._until_done(name, value, at, size)
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
        self._until_done("run", None, 0)

    def wait(self):
        self.check(self("wait", ctypes.byref(self.error)))

    def stay(self, value):
        """The input is sent no more, the output read no more."""
        buffer, offset = c_uint64(), c_uint64()
        return self("place", value, ctypes.byref(buffer), ctypes.byref(offset))

    def memory(self):
        """Bytes of intermediates."""
        n = c_uint64()
        self.check(self("memory", ctypes.byref(n), None, ctypes.byref(self.error)))
        return n.value
