/*
 * upload.ts - large writes to the GPU by way of buffers that stay mapped to the script.
 *
 * Owns a ring of them. The one idea: writeBuffer takes new memory between the processes for each call, which costs more than
 * the copy itself; a buffer that is mapped, filled, copied from and mapped again costs the copy alone (two to three times as
 * fast in Chromium). The ring grows while bytes flow and goes when none have for a while. Where no buffer is free, the
 * caller writes as ever; the order of writes is the caller's, who says when they are to be submitted, and hears when they are done.
 */

const MOST = 6; // buffers
const SIZE = 4 << 20; // bytes of one
const REST = 1000; // milliseconds
const USAGE = { MAP_WRITE: 0x2, COPY_SRC: 0x4 } as const;
const MAP_WRITE = 0x2;

interface Filling { buffer: GPUBuffer; range: ArrayBuffer; used: number; bytes: number; encoder: GPUCommandEncoder }

/** Takes writes to buffers of one device. */
export class Uploads {
    readonly #device: GPUDevice;
    readonly #submitted: (done: Promise<void>, bytes: number) => void;
    readonly #all = new Set<GPUBuffer>();
    readonly #free: GPUBuffer[] = []; // mapped
    #making = 0;
    #filling: Filling | null = null;
    #idle: ReturnType<typeof setTimeout> | undefined;

    constructor(device: GPUDevice, submitted: (done: Promise<void>, bytes: number) => void) {
        this.#device = device;
        this.#submitted = submitted;
    }

    /** Takes a copy of the bytes, for `flush` to submit. False: there is no room just now. */
    write(to: GPUBuffer, offset: number, from: Uint8Array): boolean {
        if (this.#filling && this.#filling.used + from.length > SIZE) this.flush();
        if (!this.#filling) {
            const buffer = from.length <= SIZE ? this.#free.shift() : undefined;
            if (!buffer) {
                if (from.length <= SIZE) this.#grow();
                return false;
            }
            this.#filling = { buffer, range: buffer.getMappedRange(), used: 0, bytes: 0, encoder: this.#device.createCommandEncoder() };
        }
        const { buffer, range, used, encoder } = this.#filling;
        new Uint8Array(range, used, from.length).set(from);
        encoder.copyBufferToBuffer(buffer, used, to, offset, from.length);
        this.#filling.used += (from.length + 15) & ~15;
        this.#filling.bytes += from.length;
        return true;
    }

    /** Submits what was written. */
    flush(): void {
        if (!this.#filling) return;
        const { buffer, bytes, encoder } = this.#filling;
        this.#filling = null;
        buffer.unmap();
        this.#device.queue.submit([encoder.finish()]);
        this.#submitted(buffer.mapAsync(MAP_WRITE).then(() => { if (this.#all.has(buffer)) this.#free.push(buffer); }, () => this.#drop(buffer)), bytes);
        clearTimeout(this.#idle);
        this.#idle = setTimeout(() => this.close(), REST);
    }

    /** Gives the ring's memory back; the next write begins another. */
    close(): void {
        this.flush();
        clearTimeout(this.#idle);
        this.#free.length = 0;
        for (const buffer of this.#all) this.#drop(buffer);
    }

    #drop(buffer: GPUBuffer): void {
        this.#all.delete(buffer);
        buffer.destroy();
    }

    /* For later: of a buffer without memory it is not known at once. */
    #grow(): void {
        if (this.#all.size + this.#making >= MOST) return;
        this.#device.pushErrorScope("out-of-memory");
        let buffer: GPUBuffer | null = null;
        try {
            buffer = this.#device.createBuffer({ size: SIZE, usage: USAGE.MAP_WRITE | USAGE.COPY_SRC, mappedAtCreation: true });
        } catch { /* no memory on this side */ }
        this.#making++;
        this.#device.popErrorScope().then((error) => {
            this.#making--;
            if (!buffer) return;
            if (error) return buffer.destroy();
            this.#all.add(buffer);
            this.#free.push(buffer);
        }, () => { this.#making--; });
    }
}
