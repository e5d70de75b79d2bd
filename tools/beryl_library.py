"""beryl_graph.h by ctypes, for the scripts that hold it beside PyTorch. Types, statuses and what calls give come from the
header, so that nothing stands here twice."""
import ctypes, os, re
import torch

header = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../include/beryl_graph.h")).read()
types = re.findall(r"X\((\w+)\)", header[header.index("BERYL_TYPE_LIST(X)"):header.index("typedef enum beryl_type")])
NUMBERS = {name.lower(): number for number, name in enumerate(types)}
TYPES = {kind: (NUMBERS[kind], dtype) for kind, dtype in
         dict(f32=torch.float32, f16=torch.float16, bf16=torch.bfloat16, i32=torch.int32, i8=torch.int8, u8=torch.uint8,
              bool=torch.bool).items()}
NUMBER = {dtype: number for number, dtype in TYPES.values()}
PENDING = 2


class Dim(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("extent", ctypes.c_uint32)]


class Window(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in ("size", "stride", "dilation", "pad_before", "pad_after")]


class Sdpa(ctypes.Structure):
    _fields_ = [("scale", ctypes.c_float), ("cap", ctypes.c_float), ("causal", ctypes.c_bool), ("window", ctypes.c_uint32),
                ("first", ctypes.c_int32)]


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("at", ctypes.c_uint64), ("message", ctypes.c_char * 480)]


class Failed(Exception):
    pass


def library(path):
    b = ctypes.CDLL(path)
    for name in re.findall(r"BERYL_API beryl_value beryl_graph_(\w+)\(", header):
        getattr(b, "beryl_graph_" + name).restype = ctypes.c_uint32
    b.beryl_graph_place.restype = ctypes.c_bool
    for name in ("set", "read", "state_set", "state_get"):
        getattr(b, "beryl_graph_" + name).argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    return b


def u32(*values):
    return (ctypes.c_uint32 * len(values))(*values)


def dims(*sizes):
    return (Dim * len(sizes))(*[Dim(n, 0) for n in sizes])


def f32(x):
    return ctypes.c_float(x)


# A graph on CUDA has a context of its own, current until it is closed: until then PyTorch is not called.
CUDA = ctypes.CDLL("libcuda.so.1") if torch.cuda.is_available() else None


class Graph:
    """A graph on the device that BERYL_DEVICE names. g("softmax", x) builds; raises Failed with the library's words."""

    def __init__(self, b):
        self.b, self.g, self.error, self.inputs = b, ctypes.c_void_p(), Error(), []
        self.context = ctypes.c_void_p()
        if CUDA: CUDA.cuCtxGetCurrent(ctypes.byref(self.context))
        self.check(b.beryl_graph_open(None, ctypes.byref(self.g), ctypes.byref(self.error)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.b.beryl_graph_close(self.g)
        if CUDA: CUDA.cuCtxSetCurrent(self.context)

    def __call__(self, name, *values):
        return getattr(self.b, "beryl_graph_" + name)(self.g, *values)

    def check(self, status):
        if status: raise Failed(self.error.message.decode())

    def input(self, tensor):
        """Of the type and shape of a tensor of the processor's; compile() sends what is in it."""
        value = self("input", b"x", NUMBER[tensor.dtype], tensor.dim(), dims(*tensor.shape))
        self.inputs.append((value, tensor))
        return value

    def output(self, *values):
        for value in values: self("output", value, b"y")

    def compile(self):
        status = PENDING
        while status == PENDING: status = self("compile", ctypes.byref(self.error))
        self.check(status)
        for value, tensor in self.inputs:
            self.check(self("set", value, tensor.data_ptr(), tensor.numel() * tensor.element_size(), ctypes.byref(self.error)))

    def start(self):
        status = PENDING
        while status == PENDING: status = self("run", None, 0, ctypes.byref(self.error))
        self.check(status)

    def wait(self):
        self.check(self("wait", ctypes.byref(self.error)))

    def read(self, value, like, dtype):
        to = torch.empty(like, dtype=dtype)
        self.check(self("read", value, to.data_ptr(), to.numel() * to.element_size(), ctypes.byref(self.error)))
        return to

    def stay(self, value):
        """The input is sent no more, the output read no more."""
        buffer, offset = ctypes.c_uint64(), ctypes.c_uint64()
        return self("place", value, ctypes.byref(buffer), ctypes.byref(offset))
