/*
 * upload.test.ts - the ring of buffers by which weights go to the GPU, on a device that says itself when it is done.
 */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { Uploads } from "../src/upload.js";

const MIB = 1 << 20;

/* A device whose copies are done when `finish` is called. */
class Device {
    readonly done: (() => void)[] = [];
    readonly copies: number[] = [];
    made = 0;
    submits = 0;
    readonly queue = { submit: (): void => { this.submits++; } };

    createBuffer({ size }: { size: number }): object {
        this.made++;
        return {
            getMappedRange: () => new ArrayBuffer(size), unmap: () => undefined, destroy: () => undefined,
            mapAsync: () => new Promise<void>((resolve) => this.done.push(resolve)),
        };
    }
    createCommandEncoder(): object {
        return { copyBufferToBuffer: (...[, , , , size]: number[]) => this.copies.push(size!), finish: () => null };
    }
    pushErrorScope(): void { /* nothing fails */ }
    popErrorScope(): Promise<null> { return Promise.resolve(null); }
    finish(): void { this.done.shift()?.(); }
}

const turn = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 0));

describe("uploads", () => {
    test("what C may have under way finds a buffer each time, in pieces as a weight's planes have them", async () => {
        const device = new Device(), to = {} as GPUBuffer, most = 16 * MIB; // UPLOAD_MAX of src/device/web/web.c
        let sent = 0, wrote = 0, refused = 0;
        const uploads = new Uploads(device as unknown as GPUDevice, (done, bytes) => void done.then(() => { wrote += bytes; }));
        for (let i = 0; i < 400; i++) {
            const piece = new Uint8Array(i % 2 ? 932_064 : 116_508);
            while (sent - wrote > most) {
                uploads.flush();
                device.finish();
                await turn();
            }
            sent += piece.length;
            if (uploads.write(to, 0, piece)) continue;
            refused++; // the ring grows; what it has not taken is written at once
            wrote += piece.length;
            await turn();
        }
        assert.equal(refused, device.made);
        assert.ok(device.made <= 6, `${device.made} buffers`);
        uploads.flush();
        while (device.done.length) device.finish();
        await turn();
        assert.equal(wrote, sent);
        assert.ok(device.submits <= sent / MIB / 2, `${device.submits} submits for ${Math.round(sent / MIB)} MiB`); // buffers go nearly full
        uploads.close();
    });

    test("nothing is submitted before it is asked for, and then all", () => {
        const device = new Device(), to = {} as GPUBuffer, told: number[] = [];
        const uploads = new Uploads(device as unknown as GPUDevice, (_, bytes) => told.push(bytes));
        uploads.flush();
        assert.equal(device.submits, 0);
        assert.equal(uploads.write(to, 0, new Uint8Array(8 * MIB)), false); // more than a buffer has
        assert.equal(device.made, 0);
        uploads.close();
        assert.deepEqual(told, []);
    });
});
