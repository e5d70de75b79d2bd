/*
 * gpu.ts - the JavaScript half of the browser's device: does what the module's blocks of words say.
 *
 * Owns the GPUDevice and everything made on it. The other half is src/device/web: web.h has the words
 * of each operation and what is written back. Nothing here knows of models. One block comes in for a
 * submit; it becomes one command buffer, and at most one map for its results. What ends later
 * (maps, compiles, uploads) is written into the module's memory, and whoever waits is woken.
 */
import { BerylError } from "./error.js";
import { within } from "./source/source.js";
import { Uploads } from "./upload.js";

/** Wakes all that wait when something has ended. */
export class Bell {
    #waiting: (() => void)[] = [];

    /** Resolves at the next ring. */
    wait(): Promise<void> {
        return new Promise((resolve) => this.#waiting.push(resolve));
    }

    ring(): void {
        const waiting = this.#waiting;
        this.#waiting = [];
        for (const wake of waiting) wake();
    }
}

/** A capability that is left alone although the adapter has it. */
export type GpuFeature = "f16" | "subgroups" | "dot" | "timestamps";

/** A WebGPU implementation, as navigator.gpu. Written so that callers need no types of WebGPU. */
export interface WebGpu { requestAdapter(options?: object): Promise<object | null> }

export type PowerPreference = "high-performance" | "low-power";

export interface GpuOptions {
    /** Default navigator.gpu. */
    gpu?: WebGpu | undefined;
    powerPreference?: PowerPreference | undefined;
    without?: readonly GpuFeature[] | undefined;
    /** For tests: kernels as GPUs get them, on an adapter in software too. */
    hard?: boolean | undefined;
}

/** What crossed the module's border, and what was done, since the device was opened. */
export interface GpuCounts {
    /** Calls from C: blocks. */
    blocks: number;
    submits: number;
    dispatches: number;
    maps: number;
    /** Bytes from the module's memory to the GPU, and back. */
    bytesOut: number;
    bytesIn: number;
}

/** What the device needs of the module. */
export interface GpuModule {
    readonly memory: WebAssembly.Memory;
    gpu_compiled(self: number, program: number, ok: number): void;
}

/* Operations in the order of web.h, from 1. */
const OP = {
    BUFFER_MAKE: 1, BUFFER_DROP: 2, PROGRAM_MAKE: 3, PROGRAM_DROP: 4, BINDINGS_MAKE: 5, BINDINGS_DROP: 6, SETTLE: 7, WRITE: 8,
    WRITE_HERE: 9, FLUSH: 10, BEGIN: 11, DISPATCH: 12, COPY: 13, FILL: 14, FETCH: 15, STAMP: 16, END: 17, CLOSE: 18,
} as const;
const FAULT = { INVALID: 1, NO_ROOM: 2, LOST: 3 } as const;
const STATE = { READY: 2, FAILED: 3 } as const;
/** Offsets of web_shared. */
export const SHARED = { done: 0, uploaded: 8, fault: 16, textSize: 20, text: 24, toldSize: 1024, told: 1028, full: 2028, settled: 2032 } as const;
const TEXT = 1000; // bytes of a text there
const PARAMS = 256; // bytes of parameters that a dispatch sees
const USAGE = { MAP_READ: 0x1, COPY_SRC: 0x4, COPY_DST: 0x8, UNIFORM: 0x40, STORAGE: 0x80, QUERY_RESOLVE: 0x200 } as const;
const MAP_READ = 0x1, COMPUTE = 0x4;
/* Where the GPU has nothing to do, so many dispatches of a submit are sent ahead: it begins with them while the others are still
 * taken in. In Chromium a prompt's 420 take 3 ms. */
const EARLY = 64;
const SPARE_MOST = 8; // buffers for results that are kept
const LOSS_WAIT = 500; // milliseconds from a failed map to the loss that explains it

const LIMITS = [
    "maxComputeWorkgroupStorageSize", "maxComputeInvocationsPerWorkgroup", "maxComputeWorkgroupSizeX", "maxComputeWorkgroupSizeY",
    "maxComputeWorkgroupSizeZ", "maxComputeWorkgroupsPerDimension", "maxStorageBuffersPerShaderStage", "maxStorageBufferBindingSize",
    "maxBufferSize", "minStorageBufferOffsetAlignment",
] as const;

interface Program { pipeline: GPUComputePipeline | null; params: boolean }
interface Layout { group: GPUBindGroupLayout; plain: GPUPipelineLayout; withParams: GPUPipelineLayout }
interface Ticket { number: number; done: boolean }

const encoder = new TextEncoder(), decoder = new TextDecoder();

/** A GPUDevice as the module sees it. One device serves one engine. */
export class Gpu {
    /** Resolves with the reason when the device is lost, but not when it is closed. */
    readonly lost: Promise<string>;
    readonly counts: GpuCounts = { blocks: 0, submits: 0, dispatches: 0, maps: 0, bytesOut: 0, bytesIn: 0 };
    readonly #device: GPUDevice;
    readonly #facts: string;
    readonly #bell: Bell;
    readonly #buffers = new Map<number, GPUBuffer>();
    readonly #programs = new Map<number, Program>();
    readonly #groups = new Map<number, GPUBindGroup>();
    readonly #layouts = new Map<number, Layout>();
    readonly #tickets: Ticket[] = []; // submitted and not done, oldest first
    readonly #offset = new Uint32Array(1);
    readonly #uploads: Uploads;
    #module: GpuModule | null = null;
    #self = 0;
    #shared = 0;
    #fault: { kind: number; text: string } | null = null;
    #closed = false;
    #outstanding = 0;
    #made: Promise<unknown> = Promise.resolve(); // ends when it is known of every buffer whether it has memory
    #settling = 0;
    #written = 0; // bytes of writes that are done
    #full = ""; // what was said of a buffer without memory, for SETTLE
    #spare: GPUBuffer[] = [];
    #paramLayout: GPUBindGroupLayout | null = null;
    #params: GPUBuffer | null = null;
    #paramGroup: GPUBindGroup | null = null;
    #queries: GPUQuerySet | null = null;
    #queryBytes: GPUBuffer | null = null;
    #waiting: { weight: number; compile: () => void }[] = []; // programs of this turn
    /* of the submit that is being encoded */
    #encoder: GPUCommandEncoder | null = null;
    #pass: GPUComputePassEncoder | null = null;
    #pipeline: GPUComputePipeline | null = null;
    #group: GPUBindGroup | null = null;
    #staging: GPUBuffer | null = null;
    #stamps = 0;
    #results = 0; // bytes
    #early = 0; // dispatches until the first of them are sent; 0: no more

    private constructor(device: GPUDevice, facts: string, bell: Bell) {
        this.#device = device;
        this.#uploads = new Uploads(device, (done, bytes) => this.#writes(done, bytes));
        this.#facts = facts;
        this.#bell = bell;
        device.addEventListener("uncapturederror", (event) => {
            const { error } = event as GPUUncapturedErrorEvent;
            this.#fail(error.constructor.name === "GPUOutOfMemoryError" ? FAULT.NO_ROOM : FAULT.INVALID, error.message);
        });
        this.lost = new Promise((resolve) => {
            void device.lost.then(({ message, reason }) => {
                if (this.#closed) return;
                this.#fail(FAULT.LOST, message || reason);
                resolve(message || reason);
            });
        });
    }

    /** Finds an adapter, opens a device with all it has, and learns what C wants to know of it. */
    static async open(bell: Bell, options: GpuOptions = {}): Promise<Gpu> {
        const gpu = options.gpu as GPU | undefined ?? (globalThis.navigator as Navigator | undefined)?.gpu;
        if (!gpu) throw new BerylError("NO_DEVICE", "there is no WebGPU here");
        const adapter = await gpu.requestAdapter(options.powerPreference ? { powerPreference: options.powerPreference } : {});
        if (!adapter) throw new BerylError("NO_DEVICE", "WebGPU has no adapter here");
        const wanted = (name: GpuFeature, feature: string): boolean => !options.without?.includes(name) && adapter.features.has(feature);
        const f16 = wanted("f16", "shader-f16"), timestamps = wanted("timestamps", "timestamp-query");
        const features: string[] = [];
        if (f16) features.push("shader-f16");
        if (timestamps) features.push("timestamp-query");
        if (wanted("subgroups", "subgroups")) features.push("subgroups");
        const requiredLimits: Record<string, number> = {};
        for (const name of LIMITS) requiredLimits[name] = adapter.limits[name];
        let device: GPUDevice;
        try {
            device = await adapter.requestDevice({ requiredFeatures: features as GPUFeatureName[], requiredLimits });
        } catch (thrown) {
            throw BerylError.from(thrown, "NO_DEVICE");
        }
        const { info } = adapter;
        const described = [info.vendor, info.architecture, info.device].filter(Boolean).join(" ");
        const name = info.description || described || "unknown adapter";
        const software = info.isFallbackAdapter === true || /swiftshader|llvmpipe|lavapipe|basic render/i.test(`${name} ${described}`);
        const dot = gpu.wgslLanguageFeatures?.has("packed_4x8_integer_dot_product") ?? false;
        const facts: Record<string, unknown> = {
            name, driver: described,
            kind: software && !options.hard ? "software" : info.vendor === "nvidia" ? "discrete" : "integrated",
            f16, timestamps,
            dot: dot && (!software || options.hard === true) && !options.without?.includes("dot"), // software only imitates it
            subgroup: features.includes("subgroups") ? await subgroupSize(device, info) : 0,
        };
        for (const limit of LIMITS) facts[limit] = device.limits[limit];
        return new Gpu(device, JSON.stringify(facts), bell);
    }

    /** Things begun on the GPU that have not ended: while there are some, the bell will ring. */
    get outstanding(): number {
        return this.#outstanding;
    }

    /** @internal All that C has written is submitted. */
    get device(): GPUDevice {
        this.#uploads.flush();
        return this.#device;
    }

    /** @internal The buffer with this handle. */
    bufferOf(handle: number): GPUBuffer {
        return this.#buffer(handle);
    }

    /** The module's imports, by name. */
    imports(module: () => GpuModule): WebAssembly.ModuleImports {
        return {
            gpu_facts: (to: number, room: number): number => {
                const bytes = encoder.encode(this.#facts);
                if (bytes.length > room) return 0;
                new Uint8Array(module().memory.buffer, to, bytes.length).set(bytes);
                return bytes.length;
            },
            gpu_open: (self: number, shared: number): void => {
                this.#module = module();
                this.#self = self;
                this.#shared = shared;
                this.#written = 0;
                if (this.#fault) this.#tellFault();
            },
            gpu_run: (block: number, n: number): void => {
                this.counts.blocks++;
                try {
                    this.#run(block, n);
                } catch (thrown) { // a JavaScript exception must not pass through C
                    this.#fail(FAULT.INVALID, thrown instanceof Error ? thrown.message : String(thrown));
                }
            },
        };
    }

    /** Gives everything back; what is still under way is forgotten. */
    close(): void {
        if (this.#closed) return;
        this.#closed = true;
        this.#module = null;
        this.#uploads.close();
        this.#device.destroy();
        this.#bell.ring();
    }

    /* ---- what is told to C ---------------------------------------------------------------------------- */

    #view(): DataView | null {
        return this.#module ? new DataView(this.#module.memory.buffer) : null;
    }

    #putText(sizeAt: number, at: number, text: string): void {
        const view = this.#view();
        if (!view) return;
        const { written } = encoder.encodeInto(text.replace(/\s+/g, " "), new Uint8Array(view.buffer, at, TEXT));
        view.setUint32(sizeAt, written, true);
    }

    #tellFault(): void {
        if (!this.#fault || !this.#shared) return;
        this.#putText(this.#shared + SHARED.textSize, this.#shared + SHARED.text, this.#fault.text);
        this.#view()?.setUint32(this.#shared + SHARED.fault, this.#fault.kind, true);
    }

    /* The first fault stays, but for the loss of the device, which explains all others. */
    #fail(kind: number, text: string): void {
        if (this.#closed || (this.#fault && kind !== FAULT.LOST)) return;
        this.#fault = { kind, text };
        this.#tellFault();
        this.#bell.ring();
    }

    /* `promise` has ended: then tells C, unless all is closed by then. */
    #after<T>(promise: Promise<T>, then: (value: T) => void, failed: (thrown: unknown) => void = then as () => void): void {
        this.#outstanding++;
        const end = (tell: () => void): void => {
            this.#outstanding--;
            if (!this.#closed) tell();
            this.#bell.ring();
        };
        promise.then((value) => end(() => then(value)), (thrown: unknown) => end(() => failed(thrown)));
    }

    /* A map fails first where the device goes away; then its loss is what C is to hear of. */
    async #unlessLost<T>(promise: Promise<T>): Promise<T> {
        try {
            return await promise;
        } catch (thrown) {
            await within(LOSS_WAIT, this.#device.lost);
            throw thrown;
        }
    }

    /* Tickets are done in order, whatever order the browser tells them in. */
    #finish(ticket: Ticket): void {
        ticket.done = true;
        let last = 0;
        while (this.#tickets[0]?.done) last = this.#tickets.shift()?.number ?? 0;
        if (last) this.#view()?.setFloat64(this.#shared + SHARED.done, last, true);
    }

    /* ---- blocks ------------------------------------------------------------------------------------------ */

    #run(block: number, n: number): void {
        const module = this.#module;
        if (!module || this.#closed) return;
        const { buffer } = module.memory;
        const w = new Uint32Array(buffer, block, n);
        const u64 = (at: number): number => w[at]! + w[at + 1]! * 4294967296;
        for (let at = 0; at < n;) {
            const op = w[at]!;
            const a = at + 1;
            switch (op) {
            case OP.DISPATCH:
                this.#dispatch(w, a);
                at = a + 6;
                break;
            case OP.WRITE_HERE: {
                const size = w[a + 3]!;
                this.#writeNow(this.#buffer(w[a]!), u64(a + 1), buffer, block + 4 * (a + 4), size);
                at = a + 4 + size / 4;
                break;
            }
            case OP.WRITE:
                this.#write(w[a]!, u64(a + 1), buffer, w[a + 3]!, w[a + 4]!);
                at = a + 5;
                break;
            case OP.BEGIN:
                this.#begin(buffer, w[a]!, w[a + 1]!, w[a + 2]!, w[a + 3]!);
                at = a + 4;
                break;
            case OP.END:
                this.#end(w[a]!, w[a + 1]!, w[a + 2]!, w[a + 3]!);
                at = a + 4;
                break;
            case OP.FETCH:
                this.#endPass();
                if (this.#staging) this.#encoder?.copyBufferToBuffer(this.#buffer(w[a]!), u64(a + 1), this.#staging, w[a + 5]!, u64(a + 3));
                at = a + 6;
                break;
            case OP.COPY:
                this.#endPass();
                this.#encoder?.copyBufferToBuffer(this.#buffer(w[a]!), u64(a + 2), this.#buffer(w[a + 1]!), u64(a + 4), u64(a + 6));
                at = a + 8;
                break;
            case OP.FILL:
                this.#endPass();
                this.#encoder?.clearBuffer(this.#buffer(w[a]!), u64(a + 1), u64(a + 3));
                at = a + 5;
                break;
            case OP.STAMP:
                this.#stamp();
                at = a;
                break;
            case OP.FLUSH:
                this.#uploads.flush();
                at = a;
                break;
            default:
                at = this.#make(op, w, a);
            }
        }
    }

    /* Operations of no step: things that are made and dropped. Gives where the next one begins. */
    #make(op: number, w: Uint32Array, a: number): number {
        switch (op) {
        case OP.BUFFER_MAKE:
            this.#makeBuffer(w[a]!, w[a + 1]! + w[a + 2]! * 4294967296);
            return a + 3;
        case OP.SETTLE:
            this.#settle(w[a]!);
            return a + 1;
        case OP.BUFFER_DROP:
            this.#uploads.flush();
            this.#buffers.get(w[a]!)?.destroy();
            this.#buffers.delete(w[a]!);
            return a + 1;
        case OP.PROGRAM_MAKE:
            this.#compile(w.subarray(a, a + 10));
            return a + 10;
        case OP.PROGRAM_DROP:
            this.#programs.delete(w[a]!);
            return a + 1;
        case OP.BINDINGS_MAKE:
            this.#bind(w, a);
            return a + 3 + 5 * w[a + 1]!;
        case OP.BINDINGS_DROP:
            this.#groups.delete(w[a]!);
            return a + 1;
        case OP.CLOSE:
            this.close();
            return w.length;
        }
        throw new Error(`operation ${op} is not known: the module and its JavaScript are of two versions`);
    }

    /* Of a buffer without memory C is told at its next SETTLE; where there is none, the device is at fault. */
    #makeBuffer(handle: number, size: number): void {
        this.#device.pushErrorScope("out-of-memory");
        this.#buffers.set(handle, this.#device.createBuffer({ size, usage: USAGE.STORAGE | USAGE.COPY_SRC | USAGE.COPY_DST }));
        const known = this.#device.popErrorScope().then((error) => {
            if (error && this.#settling) this.#full ||= error.message.split("\n", 1)[0]!;
            else if (error) this.#fail(FAULT.NO_ROOM, error.message);
        }, () => undefined); // the device is lost, which is told elsewhere
        this.#made = Promise.all([this.#made, known]);
    }

    #settle(number: number): void {
        this.#settling++;
        const answer = (): void => {
            this.#settling--;
            this.#putText(this.#shared + SHARED.toldSize, this.#shared + SHARED.told, this.#full);
            this.#view()?.setUint32(this.#shared + SHARED.full, this.#full ? 1 : 0, true);
            this.#view()?.setFloat64(this.#shared + SHARED.settled, number, true);
            this.#full = "";
        };
        this.#after(this.#made, answer);
    }

    #buffer(handle: number): GPUBuffer {
        const buffer = this.#buffers.get(handle);
        if (!buffer) throw new Error(`no buffer ${handle}`);
        return buffer;
    }

    #write(handle: number, offset: number, from: ArrayBufferLike, at: number, size: number): void {
        const to = this.#buffer(handle);
        if (this.#uploads.write(to, offset, new Uint8Array(from, at, size))) {
            this.counts.bytesOut += size;
            return;
        }
        this.#writeNow(to, offset, from, at, size);
        this.#device.queue.submit([]); // for which some implementations wait
        this.#writes(this.#device.queue.onSubmittedWorkDone(), size);
    }

    /* After what was written before. */
    #writeNow(to: GPUBuffer, offset: number, from: ArrayBufferLike, at: number, size: number): void {
        this.counts.bytesOut += size;
        this.#uploads.flush();
        this.#device.queue.writeBuffer(to, offset, from as ArrayBuffer, at, size);
    }

    /* So many bytes of writes are under way until that, whether they are done then or never will be. */
    #writes(until: Promise<unknown>, bytes: number): void {
        this.#after(until, () => this.#view()?.setFloat64(this.#shared + SHARED.uploaded, this.#written += bytes, true));
    }

    /* ---- programs and bindings ------------------------------------------------------------------------------ */

    /* One for each number of bindings and set of written ones. */
    #layout(n: number, written: number): Layout {
        const key = n * 65536 + written;
        let layout = this.#layouts.get(key);
        if (layout) return layout;
        const entries: GPUBindGroupLayoutEntry[] = [];
        for (let binding = 0; binding < n; binding++)
            entries.push({ binding, visibility: COMPUTE, buffer: { type: (written >> binding) & 1 ? "storage" : "read-only-storage" } });
        const group = this.#device.createBindGroupLayout({ entries });
        this.#paramLayout ??= this.#device.createBindGroupLayout({
            entries: [{ binding: 0, visibility: COMPUTE, buffer: { type: "uniform", hasDynamicOffset: true, minBindingSize: PARAMS } }],
        });
        layout = {
            group,
            plain: this.#device.createPipelineLayout({ bindGroupLayouts: [group] }),
            withParams: this.#device.createPipelineLayout({ bindGroupLayouts: [group, this.#paramLayout] }),
        };
        this.#layouts.set(key, layout);
        return layout;
    }

    #compile(w: Uint32Array): void {
        const [handle = 0, n = 0, written = 0, params = 0, features = 0, text = 0, size = 0, entry = 0, entrySize = 0, label = 0] = w;
        const memory = new Uint8Array(w.buffer);
        const read = (at: number, count: number): string => decoder.decode(memory.slice(at, at + count));
        const program: Program = { pipeline: null, params: params > 0 };
        this.#programs.set(handle, program);
        // on the program's own first line, so that the compiler's line numbers stay right
        const enable = `${features & 1 ? "enable f16; " : ""}${features & 2 ? "enable subgroups; " : ""}`;
        const name = read(label, memory.indexOf(0, label) - label);
        const code = enable + read(text, size), descriptor = { layout: this.#layout(n, written), entry: read(entry, entrySize), code, name };
        this.#outstanding++;
        if (!this.#waiting.length) queueMicrotask(() => this.#compileAll());
        this.#waiting.push({ weight: weightOf(code), compile: () => {
            this.#outstanding--;
            if (!this.#closed) this.#compileNow(handle, program, descriptor);
        } });
    }

    /* Compilers work side by side: the long ones first, so that none of them is left alone at the end. */
    #compileAll(): void {
        const all = this.#waiting.sort((a, b) => b.weight - a.weight);
        this.#waiting = [];
        for (const { compile } of all) compile();
    }

    #compileNow(handle: number, program: Program, { layout, entry, code, name }: { layout: Layout; entry: string; code: string; name: string }): void {
        this.#device.pushErrorScope("validation"); // the text's errors come by the pipeline's promise
        const shader = this.#device.createShaderModule({ label: name, code });
        const scope = this.#device.popErrorScope();
        const pipeline = this.#device.createComputePipelineAsync({
            label: name, layout: program.params ? layout.withParams : layout.plain, compute: { module: shader, entryPoint: entry },
        });
        const compiled = Promise.allSettled([pipeline, scope]).then(async ([made, found]) => {
            const mistake = found.status === "fulfilled" ? found.value : null;
            if (made.status === "fulfilled" && !mistake) return made.value;
            throw new Error(await compilerText(shader, mistake?.message ?? String((made as PromiseRejectedResult).reason)));
        });
        const tell = (ok: boolean): void => this.#module?.gpu_compiled(this.#self, handle, ok ? 1 : 0);
        this.#after(compiled, (made) => {
            program.pipeline = made;
            tell(true);
        }, (thrown) => {
            this.#putText(this.#shared + SHARED.toldSize, this.#shared + SHARED.told, (thrown as Error).message);
            tell(false);
        });
    }

    #bind(w: Uint32Array, a: number): void {
        const n = w[a + 1]!;
        const entries: GPUBindGroupEntry[] = [];
        for (let binding = 0; binding < n; binding++) {
            const at = a + 3 + 5 * binding;
            entries.push({ binding, resource: {
                buffer: this.#buffer(w[at]!), offset: w[at + 1]! + w[at + 2]! * 4294967296, size: w[at + 3]! + w[at + 4]! * 4294967296,
            } });
        }
        this.#groups.set(w[a]!, this.#device.createBindGroup({ layout: this.#layout(n, w[a + 2]!).group, entries }));
    }

    /* ---- a submit --------------------------------------------------------------------------------------------- */

    #begin(memory: ArrayBufferLike, params: number, size: number, stamps: number, results: number): void {
        this.#encoder = this.#device.createCommandEncoder();
        this.#early = this.#tickets.length ? 0 : EARLY;
        this.#staging = results ? this.#takeStaging(results) : null;
        this.#results = results;
        this.#stamps = 0;
        if (size) this.#putParams(memory, params, size);
        if (stamps) this.#readyQueries(stamps);
    }

    #putParams(memory: ArrayBufferLike, at: number, size: number): void {
        const room = Math.ceil(size / PARAMS) * PARAMS;
        if (!this.#params || this.#params.size < room) {
            this.#params?.destroy();
            this.#params = this.#device.createBuffer({ size: Math.max(room, 64 * PARAMS) * 2, usage: USAGE.UNIFORM | USAGE.COPY_DST });
            this.#paramGroup = null;
        }
        if (this.#paramLayout)
            this.#paramGroup ??= this.#device.createBindGroup({
                layout: this.#paramLayout, entries: [{ binding: 0, resource: { buffer: this.#params, size: PARAMS } }],
            });
        this.#device.queue.writeBuffer(this.#params, 0, memory as ArrayBuffer, at, size);
        this.counts.bytesOut += size;
    }

    #beginPass(descriptor?: GPUComputePassDescriptor): GPUComputePassEncoder {
        if (!this.#encoder) throw new Error("a command outside a submit");
        this.#pipeline = null;
        this.#group = null;
        return this.#pass = this.#encoder.beginComputePass(descriptor);
    }

    #endPass(): void {
        this.#pass?.end();
        this.#pass = null;
    }

    #dispatch(w: Uint32Array, a: number): void {
        const pass = this.#pass ?? this.#beginPass();
        const program = this.#programs.get(w[a]!), group = this.#groups.get(w[a + 1]!);
        if (!program?.pipeline || !group) throw new Error("a dispatch without its program or bindings");
        if (this.#pipeline !== program.pipeline) pass.setPipeline(this.#pipeline = program.pipeline);
        if (this.#group !== group) pass.setBindGroup(0, this.#group = group);
        if (program.params) {
            this.#offset[0] = w[a + 2]!;
            pass.setBindGroup(1, this.#paramGroup, this.#offset, 0, 1);
        }
        pass.dispatchWorkgroups(w[a + 3]!, w[a + 4]!, w[a + 5]!);
        this.counts.dispatches++;
        if (this.#early-- === 1) {
            this.#send(this.#encoder!);
            this.#encoder = this.#device.createCommandEncoder();
        }
    }

    #readyQueries(n: number): void {
        if (this.#queries && this.#queries.count >= n) return;
        const count = Math.max(n, 256);
        this.#queries?.destroy();
        this.#queryBytes?.destroy();
        this.#queries = this.#device.createQuerySet({ type: "timestamp", count });
        this.#queryBytes = this.#device.createBuffer({ size: 8 * count, usage: USAGE.QUERY_RESOLVE | USAGE.COPY_SRC });
    }

    /* At the beginning of a pass of its own, which goes on from there. */
    #stamp(): void {
        if (!this.#queries) return;
        this.#endPass();
        this.#beginPass({ timestampWrites: { querySet: this.#queries, beginningOfPassWriteIndex: this.#stamps++ } });
    }

    #takeStaging(bytes: number): GPUBuffer {
        let best = -1;
        this.#spare.forEach((buffer, i) => {
            if (buffer.size >= bytes && (best < 0 || buffer.size < this.#spare[best]!.size)) best = i;
        });
        if (best >= 0) return this.#spare.splice(best, 1)[0]!;
        let size = 1024;
        while (size < bytes) size *= 2;
        return this.#device.createBuffer({ size, usage: USAGE.MAP_READ | USAGE.COPY_DST });
    }

    #giveStaging(buffer: GPUBuffer): void {
        this.#spare.push(buffer);
        if (this.#spare.length > SPARE_MOST) this.#spare.shift()?.destroy();
    }

    /* What has been encoded. */
    #send(encoder: GPUCommandEncoder): void {
        this.#endPass();
        this.#uploads.flush();
        this.#device.queue.submit([encoder.finish()]);
        this.#encoder = null;
    }

    #end(number: number, state: number, to: number, stampsAt: number): void {
        const encoder = this.#encoder;
        if (!encoder) return;
        this.#endPass();
        if (this.#stamps && this.#queries && this.#queryBytes && this.#staging) {
            encoder.resolveQuerySet(this.#queries, 0, this.#stamps, this.#queryBytes, 0);
            encoder.copyBufferToBuffer(this.#queryBytes, 0, this.#staging, stampsAt, 8 * this.#stamps);
        }
        this.#send(encoder);
        this.counts.submits++;
        const ticket: Ticket = { number, done: false }, staging = this.#staging, bytes = this.#results;
        this.#tickets.push(ticket);
        if (!staging || !state) {
            this.#after(this.#device.queue.onSubmittedWorkDone(), () => this.#finish(ticket));
            return;
        }
        this.counts.maps++;
        this.#after(this.#unlessLost(staging.mapAsync(MAP_READ, 0, bytes)), () => {
            const memory = this.#module?.memory;
            if (memory) new Uint8Array(memory.buffer, to, bytes).set(new Uint8Array(staging.getMappedRange(0, bytes)));
            staging.unmap();
            this.#giveStaging(staging);
            this.counts.bytesIn += bytes;
            this.#view()?.setUint32(state, STATE.READY, true);
            this.#finish(ticket);
        }, () => {
            this.#view()?.setUint32(state, STATE.FAILED, true);
            this.#finish(ticket);
        });
    }
}

/* About how long a compiler takes: its text, and barriers, which are worth a long one in software. */
function weightOf(code: string): number {
    return code.length + 1300 * (code.split("workgroupBarrier").length - 1);
}

/* What the compiler says, with lines; else what the pipeline's error says. */
async function compilerText(shader: GPUShaderModule, otherwise: string): Promise<string> {
    const { messages } = await shader.getCompilationInfo().catch(() => ({ messages: [] as readonly GPUCompilationMessage[] }));
    const errors = messages.filter(({ type }) => type === "error").map(({ lineNum, linePos, message }) => `line ${lineNum}:${linePos}: ${message}`);
    return errors.length ? errors.join("; ") : otherwise;
}

/* Lanes of a subgroup: as the adapter says, or where it has several sizes, as a kernel like ours gets. 0: they do not work. */
async function subgroupSize(device: GPUDevice, info: GPUAdapterInfo): Promise<number> {
    if (info.subgroupMinSize && info.subgroupMinSize === info.subgroupMaxSize) return sane(info.subgroupMinSize);
    device.pushErrorScope("validation");
    const module = device.createShaderModule({ code: `enable subgroups;
        @group(0) @binding(0) var<storage, read_write> size: array<u32>;
        @compute @workgroup_size(64)
        fn main(@builtin(subgroup_size) lanes: u32, @builtin(local_invocation_index) at: u32) { if (at == 0u) { size[0] = lanes; } }` });
    const pipeline = device.createComputePipeline({ layout: "auto", compute: { module, entryPoint: "main" } });
    const buffer = device.createBuffer({ size: 4, usage: USAGE.STORAGE | USAGE.COPY_SRC });
    const staging = device.createBuffer({ size: 4, usage: USAGE.MAP_READ | USAGE.COPY_DST });
    const group = device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries: [{ binding: 0, resource: { buffer } }] });
    const encoder = device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, group);
    pass.dispatchWorkgroups(1);
    pass.end();
    encoder.copyBufferToBuffer(buffer, 0, staging, 0, 4);
    device.queue.submit([encoder.finish()]);
    if (await device.popErrorScope()) return 0;
    await staging.mapAsync(MAP_READ);
    const size = new Uint32Array(staging.getMappedRange())[0] ?? 0;
    staging.destroy();
    buffer.destroy();
    return sane(size);
}

function sane(lanes: number): number {
    return lanes >= 2 && lanes <= 128 && (lanes & (lanes - 1)) === 0 ? lanes : 0;
}
