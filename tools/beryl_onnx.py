"""beryl_onnx.h by ctypes with NumPy's arrays, for the scripts that run ONNX files."""
import ctypes as C, os
import numpy as np

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
LIBRARY = os.path.join(ROOT, "build/lib/libberyl.so")
NAMES = "F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4 NVFP4 I32 U32 IQ1_S IQ1_M IQ2_XXS " \
    "IQ2_XS IQ2_S IQ3_XXS IQ3_S TQ1_0 TQ2_0 F64 I8 I16 I64 U8 U16 BOOL".split()
DTYPES = {"F32": np.float32, "F16": np.float16, "I32": np.int32, "U32": np.uint32, "F64": np.float64, "I8": np.int8, "I16": np.int16,
          "I64": np.int64, "U8": np.uint8, "U16": np.uint16, "BOOL": np.bool_}
OK, PENDING, EXACT = 0, 2, 1


class Error(C.Structure):
    _fields_ = [("code", C.c_int), ("at", C.c_uint64), ("message", C.c_char * 480)]


class Input(C.Structure):
    _fields_ = [("name", C.c_char_p), ("type", C.c_int), ("rank", C.c_uint32), ("dims", C.POINTER(C.c_uint32)), ("data", C.c_void_p)]


class Options(C.Structure):
    _fields_ = [("size", C.c_size_t), ("folder", C.c_char_p), ("inputs", C.POINTER(Input)), ("n_input", C.c_size_t), ("bound", C.c_uint32)]


class Dim(C.Structure):
    _fields_ = [("size", C.c_uint32), ("extent", C.c_uint32)]


class Port(C.Structure):
    _fields_ = [("name", C.c_char_p), ("value", C.c_uint32), ("type", C.c_int), ("rank", C.c_uint32), ("dims", Dim * 10)]


class GraphOptions(C.Structure):
    _fields_ = [("size", C.c_size_t), ("device", C.c_char_p), ("precision", C.c_int), ("memory", C.c_uint64), ("rest", C.c_void_p * 4)]


class Refused(Exception):
    pass


def type_of(a):
    if a.dtype.name == "bfloat16":
        return "BF16"
    for name, dtype in DTYPES.items():
        if a.dtype == dtype:
            return name
    raise Refused("type " + a.dtype.name)


def dtype_of(name):
    return DTYPES[name] if name != "BF16" else __import__("ml_dtypes").bfloat16


class Graph:
    """A graph on a device; what fails raises Refused with the library's words."""

    def __init__(self, lib, device):
        self.lib, self.g, self.error, self.inputs, self.outputs = lib, C.c_void_p(), Error(), [], []
        options = GraphOptions(size=C.sizeof(GraphOptions), device=device.encode(), precision=EXACT)
        self.check(lib.beryl_graph_open(C.byref(options), C.byref(self.g), C.byref(self.error)))

    def check(self, status):
        if status != OK:
            raise Refused(self.error.message.decode(errors="replace"))

    def settle(self, name, *arguments):
        """A call until it is no longer PENDING."""
        while (status := getattr(self.lib, "beryl_graph_" + name)(self.g, *arguments, C.byref(self.error))) == PENDING:
            pass
        self.check(status)

    def load(self, model, inputs):
        """Reads a file's bytes and compiles; of the inputs' arrays shapes are taken, and numbers where they have to be known."""
        keep, given = [], (Input * max(1, len(inputs)))()
        for i, (name, a) in enumerate(inputs.items()):
            dims = (C.c_uint32 * max(1, a.ndim))(*a.shape)
            a = np.array(a, order="C")
            keep += [dims, a]
            given[i] = Input(name.encode(), NAMES.index(type_of(a)), a.ndim, dims, a.ctypes.data)
        how = Options(C.sizeof(Options), None, given, len(inputs), 0)
        self.model = model  # the graph borrows it
        self.check(self.lib.beryl_graph_from_onnx(self.g, model, C.c_size_t(len(model)), C.byref(how), C.byref(self.error)))
        for output, ports in ((False, self.inputs), (True, self.outputs)):
            port = Port()
            while self.lib.beryl_graph_port(self.g, output, C.c_size_t(len(ports)), C.byref(port)):
                ports.append(port)
                port = Port()
        if any(p.value for p in self.outputs):
            self.settle("compile")
        return self

    def run(self, inputs):
        """Arrays by name -> arrays by name."""
        if any(p.value for p in self.outputs):
            for p in self.inputs:
                if p.value:
                    a = np.array(inputs[p.name.decode()], order="C", copy=None)
                    self.settle("set", p.value, C.c_void_p(a.ctypes.data), C.c_size_t(a.nbytes))
            self.settle("run", None, 0)
            self.settle("wait")
        found = {}
        for p in self.outputs:
            a = np.zeros([p.dims[i].size for i in range(p.rank)], dtype_of(NAMES[p.type]))
            if p.value:
                self.settle("read", p.value, C.c_void_p(a.ctypes.data), C.c_size_t(a.nbytes))
            found[p.name.decode()] = a
        return found

    def close(self):
        self.lib.beryl_graph_close(self.g)


class Library:
    def __init__(self, path=LIBRARY):
        self.lib = C.CDLL(os.path.abspath(path))
        self.lib.beryl_graph_port.restype = C.c_bool

    def open(self, device):
        return Graph(self.lib, device)

    def run(self, device, model, inputs):
        """A model once: arrays by name -> arrays by name."""
        graph = self.open(device)
        try:
            return graph.load(model, inputs).run(inputs)
        finally:
            graph.close()
