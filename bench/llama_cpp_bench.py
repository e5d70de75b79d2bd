#!/usr/bin/env python3
"""Time llama.cpp on a model as `beryl bench` times Beryl, through the PyPI package llama-cpp-python.

  python3 llama_cpp_bench.py MODEL [-p 512,4096] [-n 128] [-d 0,16384] [-r 5] [-t THREADS]

pp N reads N tokens, tg N generates N one by one after -d tokens of context; a mean with its standard deviation, as llama-bench
prints them. All layers on the GPU, flash attention as llama.cpp chooses, f16 caches, micro-batches of 512. Token ids are
random: speed does not depend on them. It needs a llama-cpp-python that was built for the device to be compared.
"""
import argparse, random, statistics, sys, time
import llama_cpp as l
import llama_cpp._ggml as ggml


def sizes(text):
    return [int(word) for word in text.split(",") if word]


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("-p", type=sizes, default=[512], metavar="N,..")
    p.add_argument("-n", type=sizes, default=[128], metavar="N,..")
    p.add_argument("-d", type=sizes, default=[0], metavar="N,..")
    p.add_argument("-r", type=int, default=5, metavar="N")
    p.add_argument("-t", type=int, default=0, metavar="N", help="threads, where processors are all there is; default llama.cpp's own")
    return p.parse_args()


class Bench:
    def __init__(self, path, n_context, n_thread):
        self.log = l.llama_log_callback(lambda level, text, data: None)  # kept: the library borrows it
        l.llama_log_set(self.log, None)
        ggml.libggml.ggml_backend_load_all_from_path(str(ggml.libggml_base_path).encode())  # where backends are files of their own
        l.llama_backend_init()
        model = l.llama_model_default_params()
        model.n_gpu_layers = 999
        self.model = l.llama_model_load_from_file(path.encode(), model)
        if not self.model:
            sys.exit(f"{path}: llama.cpp cannot load it")
        context = l.llama_context_default_params()
        context.n_ctx, context.n_batch, context.n_ubatch = n_context, 2048, 512
        if n_thread:
            context.n_threads = context.n_threads_batch = n_thread
        self.context = l.llama_init_from_model(self.model, context)
        if not self.context:
            sys.exit(f"{path}: llama.cpp cannot make a context of {n_context}")
        self.n_vocab = l.llama_vocab_n_tokens(l.llama_model_get_vocab(self.model))

    def decode(self, n, together):
        for at in range(0, n, together):
            k = min(together, n - at)
            tokens = (l.llama_token * k)(*(random.randrange(self.n_vocab) for _ in range(k)))
            if l.llama_decode(self.context, l.llama_batch_get_one(tokens, k)):
                sys.exit("llama.cpp cannot decode")
            if together == 1:
                l.llama_synchronize(self.context)
        l.llama_synchronize(self.context)

    def row(self, name, n, together, depth, repeat):
        rates = []
        for k in range(repeat + 1):  # the first one warms up
            l.llama_memory_clear(l.llama_get_memory(self.context), False)
            self.decode(depth, 2048)
            start = time.perf_counter()
            self.decode(n, together)
            rates.append(n / (time.perf_counter() - start))
        rates = rates[1:]
        spread = statistics.stdev(rates) if len(rates) > 1 else 0
        print(f"| {name + (f' @ d{depth}' if depth else ''):18} | {statistics.mean(rates):12.2f} ± {spread:.2f} |", flush=True)


def main():
    o = options()
    bench = Bench(o.model, max(o.p + o.n + [0]) + max(o.d) + 8, o.t)
    print(f"llama.cpp {l.__version__} (llama-cpp-python): {l.llama_print_system_info().decode()}")
    print("| test               |                  t/s |\n| ------------------ | -------------------: |")
    for depth in o.d:
        for n in o.p:
            if n: bench.row(f"pp{n}", n, 2048, depth, o.r)
        for n in o.n:
            if n: bench.row(f"tg{n}", n, 1, depth, o.r)


main()
