/*
 * index.ts - `beryl-gpu/graph`: tensor graphs of a page's own, and ONNX files. An entry of its own, so that only those who import it fetch it.
 */
export { BerylError, type BerylStatus } from "../error.js";
export { Dim, Graph, Value, type DeviceBuffer, type GraphOptions, type Numbers, type Type } from "./graph.js";
export { loadOnnx, OnnxModel, type OnnxOptions, type Port } from "./onnx.js";
export type { GraphOps, Optimiser, Pool, Sdpa, ValueOps, Window } from "./ops.js";
