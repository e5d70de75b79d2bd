"""Writes NAME.bin for each type: 4 blocks as a file has them, then their 1,024 values as the Python package gguf
dequantises them (f32, little-endian). Needs gguf and numpy."""
import os
import numpy as np
from gguf import GGMLQuantizationType as T, GGML_QUANT_SIZES, quants

HALF = {"IQ1_S": 0, "IQ2_XXS": 0, "IQ2_XS": 0, "IQ2_S": 0, "IQ3_XXS": 0, "IQ3_S": 0, "TQ1_0": 52, "TQ2_0": 64}
here = os.path.dirname(os.path.abspath(__file__))
for name in [*HALF, "IQ1_M"]:
    rng = np.random.default_rng(len(name) * 1000 + sum(map(ord, name)))
    blocks = rng.integers(0, 256, (4, GGML_QUANT_SIZES[T[name]][1]), dtype=np.uint8)
    d = rng.uniform(-0.05, 0.05, 4).astype(np.float16).view(np.uint16)
    for i in range(4):
        if name in HALF:
            blocks[i, HALF[name]:HALF[name] + 2] = d[i:i + 1].view(np.uint8)
        else:  # four bits of it on top of each of the last four words
            for w in range(4):
                blocks[i, 49 + 2 * w] = blocks[i, 49 + 2 * w] & 15 | (int(d[i]) >> 4 * w & 15) << 4
    values = quants.dequantize(blocks, T[name]).astype("<f4")
    with open(os.path.join(here, name + ".bin"), "wb") as f:
        f.write(blocks.tobytes() + values.tobytes())
