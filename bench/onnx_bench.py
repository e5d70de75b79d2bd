#!/usr/bin/env python3
"""ResNet-50 from an ONNX file: Beryl beside onnxruntime, in turns, on the processors of this machine.

    python3 -m venv v && v/bin/pip install onnx onnxruntime
    v/bin/python bench/onnx_bench.py [--device host] [--batch 1 32] [--rounds 5] [--threads 2]

The file is made here, with random weights, as torchvision's network is exported (convolutions, batch norms and relus as nodes of
their own). Prints for each batch the minimum and the median of a run's wall time, the minimum of its
processor time, and how far the results are apart.
"""
import argparse, os, statistics, sys, time
import numpy as np, onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tools"))
from beryl_onnx import LIBRARY, Library


class Net:
    """Nodes and weights, appended in order."""
    def __init__(self):
        self.nodes, self.weights, self.random = [], [], np.random.default_rng(7)

    def weight(self, numbers):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(numbers.astype(np.float32), name))
        return name

    def node(self, op, *inputs, **attributes):
        name = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name, **attributes))
        return name

    def conv(self, x, n_in, n_out, size, stride):
        weights = self.random.standard_normal((n_out, n_in, size, size)) * (2 / (n_in * size * size)) ** 0.5
        x = self.node("Conv", x, self.weight(weights), kernel_shape=[size] * 2, strides=[stride] * 2, pads=[size // 2] * 4)
        norm = [self.random.uniform(low, high, n_out) for low, high in ((0.5, 1), (-0.1, 0.1), (-0.1, 0.1), (0.5, 1.5))]
        return self.node("BatchNormalization", x, *map(self.weight, norm), epsilon=1e-5)

    def block(self, x, n_in, width, stride):
        y = self.node("Relu", self.conv(x, n_in, width, 1, 1))
        y = self.node("Relu", self.conv(y, width, width, 3, stride))
        y = self.conv(y, width, 4 * width, 1, 1)
        if n_in != 4 * width: x = self.conv(x, n_in, 4 * width, 1, stride)
        return self.node("Relu", self.node("Add", y, x))


def resnet50(batch):
    """Bytes of a model: image [batch, 3, 224, 224] -> scores [batch, 1000]."""
    net = Net()
    x = net.node("Relu", net.conv("image", 3, 64, 7, 2))
    x = net.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    n_in = 64
    for stage, n_block in enumerate((3, 4, 6, 3)):
        for i in range(n_block):
            x = net.block(x, n_in, 64 << stage, 2 if stage and not i else 1)
            n_in = 4 * (64 << stage)
    x = net.node("Flatten", net.node("GlobalAveragePool", x), axis=1)
    last = net.random.standard_normal((1000, 2048)) * 0.02
    net.nodes.append(helper.make_node("Gemm", [x, net.weight(last), net.weight(np.zeros(1000))], ["scores"], "scores", transB=1))
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in
             (("image", [batch, 3, 224, 224]), ("scores", [batch, 1000]))]
    graph = helper.make_graph(net.nodes, "resnet50", ports[:1], ports[1:], net.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model.SerializeToString()


class Beryl:
    def __init__(self, model, image, device):
        self.graph = Library(os.environ.get("BERYL_LIBRARY") or LIBRARY).open(device).load(model, {"image": image})

    def run(self, image):
        return self.graph.run({"image": image})["scores"]


class Runtime:
    def __init__(self, model, threads):
        import onnxruntime
        how = onnxruntime.SessionOptions()
        how.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(model, how, providers=["CPUExecutionProvider"])

    def run(self, image):
        return self.session.run(["scores"], {"image": image})[0]


def timed(engine, image):
    wall, cpu = time.perf_counter(), time.process_time()
    engine.run(image)
    return time.perf_counter() - wall, time.process_time() - cpu


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", default="host")
    p.add_argument("--batch", type=int, nargs="+", default=[1, 32])
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--write", metavar="FILE", help="only writes the model of the first batch")
    o = p.parse_args()
    if o.write:
        with open(o.write, "wb") as f: f.write(resnet50(o.batch[0]))
        return
    for batch in o.batch:
        model, image = resnet50(batch), np.random.default_rng(batch).standard_normal((batch, 3, 224, 224)).astype(np.float32)
        engines = {"beryl": Beryl(model, image, o.device), "onnxruntime": Runtime(model, o.threads)}
        scores = {name: engine.run(image) for name, engine in engines.items()}
        off = np.max(np.abs(scores["beryl"] - scores["onnxruntime"])) / np.max(np.abs(scores["onnxruntime"]))
        times = {name: [] for name in engines}
        for _ in range(o.rounds):
            for name, engine in engines.items(): times[name].append(timed(engine, image))
        least = {}
        for name, found in times.items():
            wall, cpu = zip(*found)
            least[name] = min(wall)
            print(f"batch {batch:2} {name:12} {1e3 * min(wall):8.1f} ms least, {1e3 * statistics.median(wall):8.1f} median, "
                  f"{1e3 * min(cpu):8.1f} of processor")
        print(f"batch {batch:2} beryl at {least['onnxruntime'] / least['beryl']:.2f} of onnxruntime's speed; results {off:.1e} apart", flush=True)


main()
