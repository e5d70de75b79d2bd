/*
 * onnx.ts - `loadOnnx`: an ONNX file as a graph, run by the names of its inputs and outputs.
 *
 * Owns the file's bytes in the module's memory, which the graph borrows. Shapes are constants while it is built: of the file, or
 * given here; what is not supported is refused with its node's name. Files are not trusted: C checks every length.
 */
import { BerylError } from "../error.js";
import { hasDisk, readDisk } from "../source/disk.js";
import { Graph, noNumbers, type GraphOptions, type Numbers, type Type } from "./graph.js";

/** An input or output of a model. */
export interface Port {
    name: string;
    type: Type;
    dims: number[];
    /** Of an input: whether runs read it. They do not if nothing depends on it, or if its numbers were among the constants.
     *  Of an output: whether it has elements. */
    live: boolean;
}

/** How a model is read. All is optional. */
export interface OnnxOptions extends GraphOptions {
    /** Shapes of inputs that the file leaves open, by name. */
    shapes?: Readonly<Record<string, readonly number[]>>;
    /** Numbers of inputs, with their shapes in `shapes` or the file, where they have to be known while the model is built. */
    constants?: Readonly<Record<string, ArrayBufferView>>;
}

/** A model of an ONNX file. */
export class OnnxModel {
    readonly inputs: readonly Port[];
    readonly outputs: readonly Port[];
    /** The graph behind it: its device. */
    readonly graph: Graph;

    /** @internal */
    constructor(graph: Graph, inputs: readonly Port[], outputs: readonly Port[]) {
        this.graph = graph;
        this.inputs = inputs;
        this.outputs = outputs;
    }

    /** A run: all inputs by name, 64-bit integers as BigInt64Array or, where they fit, Int32Array. Gives the outputs by name. */
    async run(inputs: Readonly<Record<string, ArrayBufferView>> = {}): Promise<Record<string, Numbers>> {
        const unread = new Set(this.inputs.filter(({ live }) => !live).map(({ name }) => name)), empty = this.outputs.filter(({ live }) => !live);
        const found = empty.length < this.outputs.length ? await this.graph.run(Object.fromEntries(Object.entries(inputs).filter(([name]) => !unread.has(name)))) : {};
        return { ...found, ...Object.fromEntries(empty.map(({ name, type }) => [name, noNumbers(type)])) };
    }

    close(): void {
        this.graph.close();
    }
}

async function bytesOf(source: string | URL | Blob | BufferSource): Promise<Uint8Array> {
    if (source instanceof Blob) return new Uint8Array(await source.arrayBuffer());
    if (ArrayBuffer.isView(source)) return new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
    if (typeof source !== "string" && !(source instanceof URL)) {
        if (source instanceof ArrayBuffer) return new Uint8Array(source);
        throw new BerylError("MISUSE", "the source of loadOnnx must be an address, a Blob or bytes", "");
    }
    const host = globalThis as { process?: { cwd(): string } }, page = (globalThis.location as Location | undefined)?.href;
    const url = new URL(source, page?.startsWith("http") || !hasDisk() ? page : `file://${host.process?.cwd() ?? ""}/`);
    if (url.protocol === "file:" && hasDisk()) return readDisk(url);
    const response = await fetch(url).catch((thrown: unknown) => { throw new BerylError("IO", `${url.href}: ${(thrown as Error).message}`); });
    if (!response.ok) throw new BerylError(response.status === 404 ? "NOT_FOUND" : "IO", `${url.href}: the server answers ${response.status}`);
    return new Uint8Array(await response.arrayBuffer());
}

/** Reads an ONNX file, and opens a device for it. Rejects with a BerylError. */
export async function loadOnnx(source: string | URL | Blob | BufferSource, options: OnnxOptions = {}): Promise<OnnxModel> {
    const { shapes = {}, constants = {}, ...rest } = options;
    let graph: Graph | null = null;
    try {
        const bytes = await bytesOf(source);
        graph = await Graph.open(rest);
        const { inputs, outputs } = graph.readOnnx(bytes, shapes, constants);
        if (outputs.some(({ live }) => live)) await graph.compile();
        return new OnnxModel(graph, inputs, outputs);
    } catch (thrown) {
        graph?.close();
        throw BerylError.from(thrown, "IO");
    }
}
