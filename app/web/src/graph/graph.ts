/*
 * graph.ts - tensor graphs of a page's own: beryl_graph.h in the full module, on a device of its own or by the reference functions.
 *
 * Owns an instance of the full module and what it computes on. A graph is built by the operations of ops.ts, each a call of C, so a
 * mistake is thrown by the call that makes it, and names the operation and its shapes; then it is compiled, and run as often as one
 * likes. All is in the caller's own thread: what takes long runs on the GPU. Runs are made one after another.
 */
import { BerylError } from "../error.js";
import { Bell, Gpu, type GpuFeature, type PowerPreference, type WebGpu } from "../gpu.js";
import { fetchModule } from "../module.js";
import { forPages, statusName, STATUS } from "../status.js";
import { libcImports, wasiImports } from "../wasi.js";
import { callBy, typeNumber, type Heap, type PlainDim } from "./call.js";
import type { Port } from "./onnx.js";
import { OPS, TYPES, type GraphOps, type ValueOps } from "./ops.js";

/** A type of elements. */
export type Type = (typeof TYPES)[number];

/** Numbers of a tensor: F16 and BF16 as their bits, BOOL as bytes. */
export type Numbers = Float32Array | Float64Array | Int8Array | Int16Array | Int32Array | BigInt64Array | Uint8Array | Uint16Array | Uint32Array;

/** A GPUBuffer of the graph's device (`graph.gpuDevice`). Written so that callers need no types of WebGPU. */
export interface DeviceBuffer { readonly size: number; readonly usage: number; destroy(): unknown }

/** How a graph is opened. All is optional. */
export interface GraphOptions {
    /** Which adapter; "reference": no GPU but the reference functions, which are slow. Default "high-performance". */
    device?: PowerPreference | "reference";
    /** A WebGPU implementation (Node). Default navigator.gpu. */
    gpu?: WebGpu;
    /** "fast" (default): int8 activations in products with quantised weights, where the device has dot products. */
    precision?: "fast" | "exact";
    /** Bytes of device memory that may be used; default: what the device has. */
    memory?: number;
    /** Capabilities of the adapter to leave alone. */
    without?: readonly GpuFeature[];
    /** The full module, if beryl-full.wasm does not lie beside the script. */
    module?: string | URL | WebAssembly.Module | BufferSource;
}

/** A size that varies from run to run, or is computed from such. */
export class Dim implements PlainDim {
    /** @internal */
    constructor(readonly size: number, readonly extent: number) {}
}

/** A tensor of a graph, and the operations on it. */
export class Value {
    /** @internal */
    constructor(readonly graph: Graph, readonly id: number) {}
    /** Its type. */
    get type(): Type { return this.graph.shapeOf(this).type; }
    /** Its dimensions: constants, or what varies. */
    get dims(): (number | Dim)[] { return this.graph.shapeOf(this).dims; }
}
export interface Value extends ValueOps {}

type Call = (...args: (number | bigint)[]) => number;
interface Exports extends Heap, Record<string, unknown> { gpu_compiled(self: number, program: number, ok: number): void }

/* Offsets in module.h's frame. */
const FRAME = { out: 28, outSize: 56, message: 64, messageSize: 68, at: 72 } as const;
const IDLE_MOST = 1000; // turns without anything under way
const decoder = new TextDecoder(), encoder = new TextEncoder();

const ARRAYS: Partial<Record<Type, { new(buffer: ArrayBuffer): Numbers; readonly BYTES_PER_ELEMENT: number }>> = {
    f32: Float32Array, f64: Float64Array, f16: Uint16Array, bf16: Uint16Array, i8: Int8Array, i16: Int16Array, i32: Int32Array, i64: BigInt64Array,
    u8: Uint8Array, u16: Uint16Array, u32: Uint32Array, bool: Uint8Array,
};

const FORMULAS: Partial<Record<keyof typeof OPS, (a: number, b: number) => number>> = { dimSum: (a, b) => a + b, dimProduct: (a, b) => a * b, dimQuotient: (a, b) => Math.ceil(a / b) };

const ONNX_TYPES: Record<string, Type | undefined> = { float: "f32", double: "f64", float16: "f16", bfloat16: "bf16", int8: "i8", int16: "i16", int32: "i32", int64: "i64",
    uint8: "u8", uint16: "u16", uint32: "u32", bool: "bool" };

async function moduleOf(given: GraphOptions["module"]): Promise<WebAssembly.Module> {
    const module = given ?? (await import("../full.js")).fullUrl(), { signal } = new AbortController();
    const from = typeof module === "string" || module instanceof URL ? new URL(module, (globalThis.location as Location | undefined)?.href).href : module;
    const found = await fetchModule(from, signal);
    return found instanceof WebAssembly.Module ? found : WebAssembly.compile(found);
}

/** A graph of one's own. */
export class Graph {
    readonly #x: Exports;
    readonly #gpu: Gpu | null;
    readonly #bell: Bell;
    readonly #frame: number;
    readonly #graph: number;
    readonly #inputs = new Map<string, Value>();
    readonly #outputs = new Map<string, Value>();
    readonly #extents = new Map<string, Dim>();
    readonly #computed = new Map<number, (values: ReadonlyMap<number, number>) => number>(); // extents of dimSum and so on
    readonly #places = new Map<string, { buffer: GPUBuffer; offset: number }>(); // inputs and outputs that stay on the device
    readonly #set = new Set<string>(); // inputs that have been given
    readonly #held: number[] = []; // memory that C borrows
    #compiled: Promise<void> | null = null;
    #last: Promise<unknown> = Promise.resolve();
    #closed = false;

    private constructor(x: Exports, gpu: Gpu | null, bell: Bell, frame: number, graph: number) {
        this.#x = x;
        this.#gpu = gpu;
        this.#bell = bell;
        this.#frame = frame;
        this.#graph = graph;
    }

    /** Fetches the full module, once for all graphs if the browser keeps it, and opens a device. Rejects with a BerylError. */
    static async open(options: GraphOptions = {}): Promise<Graph> {
        const bell = new Bell(), { device, gpu, without, precision, memory } = options, reference = device === "reference";
        let opened: Gpu | null = null;
        try {
            const module = await moduleOf(options.module);
            if (!reference) opened = await Gpu.open(bell, { gpu, without, powerPreference: device });
            let exports: Exports | null = null;
            const live = (): Exports => exports!;
            const heap = (): WebAssembly.Memory => live().memory;
            const beryl: WebAssembly.ModuleImports = { ...libcImports(heap), ...opened?.imports(live) };
            for (const { module: from, name } of WebAssembly.Module.imports(module)) if (from === "beryl") beryl[name] ??= () => 0; // what engines need
            beryl["kept_read"] = () => 0xffffffff; // no such text
            const instance = await WebAssembly.instantiate(module, { wasi_snapshot_preview1: wasiImports(heap), beryl });
            exports = instance.exports as unknown as Exports;
            (exports["_initialize"] as Call)();
            const frame = (exports["open"] as Call)(), graph = new Graph(exports, opened, bell, frame, 0);
            if (!frame) throw new BerylError("NO_MEMORY", "no memory for the graph");
            const json = JSON.stringify({ device: reference ? "reference" : "", precision, memory });
            return new Graph(exports, opened, bell, frame, graph.#with(encoder.encode(`${json}\0`), (at) => graph.#call("graph_open", at)));
        } catch (thrown) {
            opened?.close();
            throw BerylError.from(thrown, "DEVICE");
        }
    }

    /* ---- building -------------------------------------------------------------------------------------------- */

    /** @internal A call of ops.ts. */
    build(name: keyof typeof OPS, args: readonly unknown[]): unknown {
        this.#live();
        const words = OPS[name].split(" ");
        const fn = this.#x[`beryl_graph_${name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)}`] as Call;
        const { first, more } = callBy(this.#x, fn, this.#graph, name, words, args, (value, what) => this.#handle(value, what), plainDim);
        const results = [...words[0] === "-" ? [] : [first], ...more];
        if (results.flat().some((one) => typeof one === "object" ? one.size === 0 : one === 0)) throw this.#mistake(name);
        const made = results.map((one) => typeof one === "object" ? Array.isArray(one) ? one.map((id) => new Value(this, id)) : thatDim(one)
            : words[0] === "x" ? new Dim(args[1] as number, one) : new Value(this, one));
        if (made[0] instanceof Dim && name in FORMULAS) {
            const [a, b] = args as [number | Dim, number | Dim], formula = FORMULAS[name]!;
            this.#computed.set(made[0].extent, (values) => formula(this.#sizeOf(a, values), this.#sizeOf(b, values)));
        }
        if (name === "extent") this.#extents.set(String(args[0]), made[0] as Dim);
        if (name === "input") this.#inputs.set(String(args[0]), made[0] as Value);
        return made.length === 1 ? made[0] : made;
    }

    /** A tensor of given numbers that no run changes. Quantised types: bytes as a GGUF file has them. */
    weight(name: string, type: Type, dims: readonly number[], data: ArrayBufferView): Value {
        return this.#stored(name, type, dims, data, true);
    }

    /** Numbers of a plain type, for use in operations. */
    constant(type: Type, dims: readonly number[], data: ArrayBufferView): Value {
        return this.#stored("", type, dims, data, false);
    }

    /** What a run gives, by name. At most 64. */
    output(value: Value, name: string): void {
        this.#live();
        if (this.#outputs.has(name)) throw new BerylError("MISUSE", `there is an output "${name}" already`, "");
        const id = this.#handle(value, "an output");
        this.#withText(name, (at) => (this.#x["beryl_graph_output"] as Call)(this.#graph, id, at));
        this.#outputs.set(name, value);
    }

    /** @internal */
    shapeOf(value: Value): { type: Type; dims: (number | Dim)[] } {
        this.#call("graph_shape", this.#handle(value, "a value"));
        const [type = 0, rank = 0, ...words] = this.#list();
        return { type: TYPES[type]!, dims: Array.from({ length: rank }, (_, i) => thatDim({ size: words[2 * i]!, extent: words[2 * i + 1]! })) };
    }

    /** What it computes on; null: the reference functions. */
    get device(): { backend: string; name: string; f16: boolean; subgroupSize: number } | null {
        if (!this.#gpu) return null;
        this.#call("graph_info");
        return (JSON.parse(this.#text()) as { device: { backend: string; name: string; f16: boolean; subgroupSize: number } }).device;
    }

    /** @internal The model of an ONNX file becomes this graph: its inputs and outputs. */
    readOnnx(file: Uint8Array, shapes: Readonly<Record<string, readonly number[]>>, constants: Readonly<Record<string, ArrayBufferView>>): { inputs: Port[]; outputs: Port[] } {
        this.#live();
        const at = this.#hold(file), given: number[] = [], names = new Set([...Object.keys(shapes), ...Object.keys(constants)]);
        this.#held.push(at);
        if (names.size) this.#call("graph_onnx_describe", at, file.length);
        const { inputs: said = [] } = names.size ? JSON.parse(this.#text()) as { inputs?: { name: string; type: string; shape: (number | string)[] | null }[] } : {};
        try {
            const inputs = [...names].map((name) => {
                const input = said.find((one) => one.name === name), type = ONNX_TYPES[input?.type ?? ""], dims = shapes[name] ?? input?.shape;
                if (!type || !dims?.every((dim) => typeof dim === "number")) throw new BerylError("MISUSE", `the model has no input "${name}" of a shape that is known`, "");
                const numbers = constants[name], bytes = numbers && bytesOf(numbers);
                if (bytes && bytes.length !== dims.reduce((a, b) => a * b, ARRAYS[type]!.BYTES_PER_ELEMENT))
                    throw new BerylError("MISUSE", `the input "${name}" is ${type} [${dims.join(", ")}], and was given ${bytes.length} bytes`, "");
                if (bytes) given.push(this.#hold(bytes));
                return { name, dims, type: typeNumber(type), data: bytes && given.at(-1) };
            });
            this.#withText(JSON.stringify({ inputs }), (json) => this.#call("graph_from_onnx", at, file.length, json));
        } finally {
            for (const one of given) this.#x.give(one);
        }
        return { inputs: this.#ports(0, this.#inputs), outputs: this.#ports(1, this.#outputs) };
    }

    #ports(output: number, into: Map<string, Value>): Port[] {
        const ports: Port[] = [];
        for (let i = 0;; i++) {
            this.#call("graph_port", output, i);
            if (!this.#word(FRAME.outSize)) return ports;
            const { name, value, type, dims } = JSON.parse(this.#text()) as { name: string; value: number; type: number; dims: [number, number][] };
            if (value) into.set(name, new Value(this, value));
            ports.push({ name, type: TYPES[type]!, dims: dims.map(([size]) => size), live: value !== 0 });
        }
    }

    /** The GPUDevice, for buffers of one's own; null: the reference functions. */
    get gpuDevice(): object | null {
        return this.#gpu?.device ?? null;
    }

    /* ---- running ----------------------------------------------------------------------------------------------- */

    /** Uploads weights and compiles. `run` does it where it was not done. */
    compile(): Promise<void> {
        return this.#compiled ??= this.#settle("graph_compile");
    }

    /** A run. Inputs that are not given keep their numbers; what varies is given by name. Gives the outputs by name, but for those that
     *  go `into` a GPUBuffer (COPY_DST): they stay on the GPU, now and from then on, as do inputs from a GPUBuffer (COPY_SRC). */
    run(inputs: Readonly<Record<string, ArrayBufferView | DeviceBuffer>> = {}, extents: Readonly<Record<string, number>> = {}, into: Readonly<Record<string, DeviceBuffer>> = {}):
        Promise<Record<string, Numbers>> {
        return this.#alone(async () => {
            await this.compile();
            const values = this.#extentValues(extents);
            for (const [name, data] of Object.entries(inputs)) this.#give(name, data, values);
            for (const name of Object.keys(into)) this.#placeOf(name, this.#outputs.get(name), "output");
            for (const name of this.#inputs.keys()) if (!this.#set.has(name)) throw new BerylError("MISUSE", `the input "${name}" has never been given`, "");
            const list = [...this.#extents.values()].map((dim) => values.get(dim.extent)!);
            await this.#with(new Uint8Array(Uint32Array.from(list).buffer), (at) => this.#settle("graph_run", at, list.length));
            const results: Record<string, Numbers> = {};
            for (const [name, buffer] of Object.entries(into)) this.#copy(name, this.#outputs.get(name)!, this.sizes(this.#outputs.get(name)!), buffer, false);
            for (const [name, value] of this.#outputs) if (!this.#places.has(`output ${name}`)) results[name] = await this.#fetch("graph_read", value);
            return results;
        });
    }

    /** Sizes of a value in the last run. */
    sizes(value: Value): number[] {
        return value.dims.map((dim) => typeof dim === "number" ? dim : this.#sizeIn(dim));
    }

    /** All numbers of a state, before the next run. */
    setState(state: Value, data: ArrayBufferView): Promise<void> {
        return this.#alone(async () => {
            await this.compile();
            const bytes = bytesOf(data);
            this.#with(bytes, (at) => this.#call("graph_state_set", this.#handle(state, "a state"), at, bytes.length));
        });
    }

    /** The numbers that a state has after the last run. */
    getState(state: Value): Promise<Numbers> {
        return this.#alone(async () => {
            await this.compile();
            return this.#fetch("graph_state_get", state);
        });
    }

    /** Gives the device and all memory back. */
    close(): void {
        if (this.#closed) return;
        this.#closed = true;
        (this.#x["graph_close"] as Call)(this.#frame, this.#graph);
        for (const at of this.#held) this.#x.give(at);
        this.#gpu?.close();
        this.#bell.ring();
    }

    /* ---- inside --------------------------------------------------------------------------------------------------- */

    #live(): void {
        if (this.#closed) throw new BerylError("MISUSE", "the graph is closed");
    }

    #handle(value: unknown, what: string): number {
        if (!(value instanceof Value) || value.graph !== this) throw new BerylError("MISUSE", `${what} must be a value of this graph`, "");
        return value.id;
    }

    #stored(name: string, type: Type, dims: readonly number[], data: ArrayBufferView, keep: boolean): Value {
        this.#live();
        const number = typeNumber(type), bytes = bytesOf(data), Kind = ARRAYS[type];
        if (Kind && bytes.length !== dims.reduce((a, b) => a * b, Kind.BYTES_PER_ELEMENT))
            throw new BerylError("MISUSE", `"${name}", ${type} [${dims.join(", ")}], was given ${bytes.length} bytes`, "");
        const at = this.#hold(bytes);
        if (keep) this.#held.push(at);
        const id = this.#with(new Uint8Array(Uint32Array.from(dims).buffer), (shape) => keep
            ? this.#withText(name, (text) => (this.#x["beryl_graph_weight"] as Call)(this.#graph, text, number, dims.length, shape, at, bytes.length))
            : (this.#x["beryl_graph_constant"] as Call)(this.#graph, number, dims.length, shape, at));
        if (!keep) this.#x.give(at);
        if (!id) throw this.#mistake(keep ? "weight" : "constant");
        return new Value(this, id >>> 0);
    }

    #hold(bytes: Uint8Array): number {
        const at = this.#x.take(bytes.length);
        if (!at) throw new BerylError("NO_MEMORY", `no memory for ${bytes.length} bytes`);
        new Uint8Array(this.#x.memory.buffer, at, bytes.length).set(bytes);
        return at;
    }

    #with<T>(bytes: Uint8Array, use: (at: number) => T): T {
        const at = this.#hold(bytes), give = (): void => this.#x.give(at);
        let result: T;
        try {
            result = use(at);
        } catch (thrown) {
            give();
            throw thrown;
        }
        if (result instanceof Promise) return result.finally(give) as T;
        give();
        return result;
    }

    #withText<T>(text: string, use: (at: number) => T): T {
        return this.#with(encoder.encode(`${text.replaceAll("\0", "")}\0`), use);
    }

    /* A call of module_graph.c that takes the frame: its `out`, or what failed. */
    #call(name: string, ...args: number[]): number {
        this.#live();
        const status = this.#status(name, args);
        if (status !== STATUS.OK) throw this.#failure(status);
        return this.#word(FRAME.out);
    }

    #status(name: string, args: readonly number[]): number {
        return (this.#x[name] as Call)(this.#frame, ...name === "graph_open" ? [] : [this.#graph], ...args);
    }

    #word(at: number): number {
        return new DataView(this.#x.memory.buffer).getUint32(this.#frame + at, true);
    }

    #list(): number[] {
        return [...new Uint32Array(this.#x.memory.buffer.slice(this.#word(FRAME.out), this.#word(FRAME.out) + 4 * this.#word(FRAME.outSize)))];
    }

    #text(): string {
        return decoder.decode(new Uint8Array(this.#x.memory.buffer, this.#word(FRAME.out), this.#word(FRAME.outSize)).slice());
    }

    #failure(status: number): BerylError {
        const text = decoder.decode(new Uint8Array(this.#x.memory.buffer, this.#word(FRAME.message), this.#word(FRAME.messageSize)).slice());
        return new BerylError(statusName(status), forPages(text), "");
    }

    /* The error of building, which sticks. */
    #mistake(name: string): BerylError {
        const status = this.#status("graph_compile", []);
        return status === STATUS.OK || status === STATUS.PENDING ? new BerylError("MISUSE", `${name}: the graph is compiled, nothing can be added`, "") : this.#failure(status);
    }

    /* A call until it is no longer PENDING. */
    async #settle(name: string, ...args: number[]): Promise<void> {
        for (let idle = 0;;) {
            this.#live();
            const status = this.#status(name, args);
            if (status === STATUS.OK) return;
            if (status !== STATUS.PENDING) throw this.#failure(status);
            if (this.#gpu?.outstanding) {
                idle = 0;
                await this.#bell.wait();
            } else if (++idle > IDLE_MOST) throw new BerylError("DEVICE", "the graph waits, but nothing is under way: please report this");
            else await new Promise((resolve) => { setTimeout(resolve); });
        }
    }

    /* One after another. */
    #alone<T>(job: () => Promise<T>): Promise<T> {
        const mine = this.#last.then(job);
        this.#last = mine.catch(() => undefined);
        return mine;
    }

    #extentValues(given: Readonly<Record<string, number>>): Map<number, number> {
        const values = new Map<number, number>();
        for (const [name, dim] of this.#extents) {
            const value = given[name];
            if (value === undefined || !Number.isInteger(value) || value < 0 || value > dim.size)
                throw new BerylError("MISUSE", `the extent "${name}" must be a whole number from 0 to ${dim.size}, not ${String(value)}`, "");
            values.set(dim.extent, value);
        }
        for (const name of Object.keys(given)) if (!this.#extents.has(name)) throw new BerylError("MISUSE", `there is no extent "${name}"`, "");
        return values;
    }

    /* What a dimension will be in a run with these extents. */
    #sizeOf(dim: number | Dim, values: ReadonlyMap<number, number>): number {
        if (typeof dim === "number") return dim;
        return values.get(dim.extent) ?? this.#computed.get(dim.extent)?.(values) ?? dim.size;
    }

    #sizeIn(dim: Dim): number {
        return (this.#x["beryl_graph_extent_value"] as Call)(this.#graph, dim.extent) >>> 0;
    }

    /* Memory is laid out for the bounds; numbers here lie side by side. */
    #give(name: string, data: ArrayBufferView | DeviceBuffer, values: ReadonlyMap<number, number>): void {
        const value = this.#inputs.get(name);
        if (!value) throw new BerylError("MISUSE", `there is no input "${name}"; there ${this.#inputs.size === 1 ? "is" : "are"} ${[...this.#inputs.keys()].join(", ") || "none"}`, "");
        const { type, dims } = this.shapeOf(value), Kind = ARRAYS[type]!, size = Kind.BYTES_PER_ELEMENT;
        const sizes = dims.map((dim) => this.#sizeOf(dim, values));
        if (!ArrayBuffer.isView(data)) {
            this.#placeOf(name, value, "input");
            this.#copy(name, value, sizes, data, true);
            this.#set.add(name);
            return;
        }
        const numbers = type === "i32" && data instanceof BigInt64Array ? narrowed(name, data) : data;
        if (!ArrayBuffer.isView(numbers) || (numbers as Numbers).BYTES_PER_ELEMENT !== size || numbers.byteLength !== sizes.reduce((a, b) => a * b, size))
            throw new BerylError("MISUSE", `the input "${name}" is ${type} [${sizes.join(", ")}]: ${Kind.name} of ${sizes.reduce((a, b) => a * b, 1)} numbers`, "");
        const bytes = laidOut(bytesOf(numbers), sizes, dims.map(boundOf), size, true);
        const place = this.#places.get(`input ${name}`);
        if (place && bytes.length) this.#gpu!.device.queue.writeBuffer(place.buffer, place.offset, padded(bytes));
        if (!place) this.#with(bytes, (at) => this.#call("graph_set", value.id, at, bytes.length));
        this.#set.add(name);
    }

    /* Where an input or output lies on the device; from then on it is not copied to or from there. */
    #placeOf(name: string, value: Value | undefined, what: "input" | "output"): void {
        const key = `${what} ${name}`;
        if (this.#places.has(key)) return;
        if (!value) throw new BerylError("MISUSE", `there is no ${what} "${name}"`, "");
        this.#call("graph_place", value.id);
        if (!this.#gpu || !this.#word(FRAME.outSize)) throw new BerylError("UNSUPPORTED", `the ${what} "${name}" lies in no buffer of a GPU`, "");
        const [handle = 0n, offset = 0n] = new BigUint64Array(this.#x.memory.buffer.slice(this.#word(FRAME.out), this.#word(FRAME.out) + 16));
        this.#places.set(key, { buffer: this.#gpu.bufferOf(Number(handle)), offset: Number(offset) });
    }

    /* To an input from a GPUBuffer, or to one from an output: on the GPU, in the order of the queue. */
    #copy(name: string, value: Value, sizes: readonly number[], buffer: DeviceBuffer, inwards: boolean): void {
        const { type, dims } = this.shapeOf(value), element = ARRAYS[type]!.BYTES_PER_ELEMENT;
        const bytes = Math.ceil(sizes.reduce((a, b) => a * b, element) / 4) * 4, { buffer: own, offset } = this.#places.get(`${inwards ? "input" : "output"} ${name}`)!;
        if (typeof buffer !== "object" || buffer === null || !(buffer.size >= bytes) || !("usage" in buffer))
            throw new BerylError("MISUSE", `"${name}" is ${type} [${sizes.join(", ")}]: a typed array, or a GPUBuffer of ${bytes} bytes at least`, "");
        if (!sizes.slice(1).every((size, i) => size === boundOf(dims[i + 1]!)))
            throw new BerylError("UNSUPPORTED", `"${name}" as a GPUBuffer: only its first dimension may vary`, "");
        if (!bytes) return;
        const { device } = this.#gpu!, encoder = device.createCommandEncoder();
        if (inwards) encoder.copyBufferToBuffer(buffer as unknown as GPUBuffer, 0, own, offset, bytes);
        else encoder.copyBufferToBuffer(own, offset, buffer as unknown as GPUBuffer, 0, bytes);
        device.queue.submit([encoder.finish()]);
    }

    async #fetch(name: string, value: Value): Promise<Numbers> {
        const { type, dims } = this.shapeOf(value), Kind = ARRAYS[type];
        if (!Kind) throw new BerylError("UNSUPPORTED", `numbers of ${type} are not read`, "");
        const sizes = this.sizes(value), bounds = dims.map(boundOf), bytes = laidBytes(sizes, bounds, Kind.BYTES_PER_ELEMENT), at = this.#hold(new Uint8Array(bytes));
        try {
            await this.#settle(name, value.id, at, bytes);
            const laid = new Uint8Array(this.#x.memory.buffer, at, bytes).slice();
            return new Kind(laidOut(laid, sizes, bounds, Kind.BYTES_PER_ELEMENT, false).buffer as ArrayBuffer);
        } finally {
            if (!this.#closed) this.#x.give(at);
        }
    }
}
export interface Graph extends GraphOps {}

for (const name of Object.keys(OPS) as (keyof typeof OPS)[]) {
    const own = OPS[name].split(" ")[1] === "v";
    Object.defineProperty((own ? Value : Graph).prototype, name, {
        value: own ? function (this: Value, ...args: unknown[]) { return this.graph.build(name, [this, ...args]); }
            : function (this: Graph, ...args: unknown[]) { return this.build(name, args); },
    });
}

/** @internal No element of that type. */
export function noNumbers(type: Type): Numbers {
    return new (ARRAYS[type] ?? Uint8Array)(new ArrayBuffer(0));
}

const boundOf = (dim: number | Dim): number => typeof dim === "number" ? dim : dim.size;

function thatDim({ size, extent }: PlainDim): number | Dim {
    return extent ? new Dim(size, extent) : size;
}

function plainDim(value: unknown, what: string): PlainDim {
    if (value instanceof Dim) return value;
    if (typeof value !== "number" || !Number.isInteger(value) || value < 0 || value >= 2 ** 32)
        throw new BerylError("MISUSE", `${what} must be a whole number or a dimension, not ${String(value)}`, "");
    return { size: value, extent: 0 };
}

function bytesOf(data: ArrayBufferView): Uint8Array {
    if (!ArrayBuffer.isView(data)) throw new BerylError("MISUSE", "numbers must be a typed array", "");
    return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
}

/* To whole words, as the device writes them. */
function padded(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
    const to = new Uint8Array(Math.ceil(bytes.length / 4) * 4);
    to.set(bytes);
    return to;
}

/* 64-bit integers for a device that has none. */
function narrowed(name: string, data: BigInt64Array): Int32Array {
    const narrow = Int32Array.from(data, Number);
    data.forEach((one, i) => {
        if (one !== BigInt(narrow[i]!)) throw new BerylError("BAD_INPUT", `the input "${name}": ${one} is beyond 32 bits, which are what is computed with here`, "");
    });
    return narrow;
}

/* Bytes that hold all elements where the bounds say they lie. */
function laidBytes(sizes: readonly number[], bounds: readonly number[], element: number): number {
    return sizes.length ? sizes[0]! * bounds.slice(1).reduce((a, b) => a * b, element) : element;
}

/* From side by side to where the bounds say, or back: the same where only the first dimension varies. */
function laidOut(bytes: Uint8Array, sizes: readonly number[], bounds: readonly number[], element: number, apart: boolean): Uint8Array {
    if (sizes.slice(1).every((size, i) => size === bounds[i + 1])) return bytes;
    const to = new Uint8Array(apart ? laidBytes(sizes, bounds, element) : sizes.reduce((a, b) => a * b, element));
    const walk = (axis: number, packed: number, laid: number): void => {
        const row = (all: readonly number[]): number => all.slice(axis + 1).reduce((a, b) => a * b, element);
        if (axis === sizes.length - 1) {
            const from = apart ? packed : laid;
            to.set(bytes.subarray(from, from + sizes[axis]! * element), apart ? laid : packed);
            return;
        }
        for (let i = 0; i < sizes[axis]!; i++) walk(axis + 1, packed + i * row(sizes), laid + i * row(bounds));
    };
    walk(0, 0, 0);
    return to;
}
