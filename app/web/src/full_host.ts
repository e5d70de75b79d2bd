/*
 * full_host.ts - what a host of the full module answers beside host.ts: adapters, which sessions have which, trainings.
 *
 * An adapter here is its file: an engine that follows a lost one opens it again. That of a training is the training's, until
 * that ends and leaves its file. What sessions have is looked at before each answer: so one that was held up by a step begins
 * with the adapter as that step left it.
 */
import type { RgbPicture } from "./chat.js";
import type { Engine, EngineSession } from "./engine.js";
import { BerylError } from "./error.js";
import type { FullCalls, PlainAdapter } from "./full_calls.js";
import { closeAdapter, closeTraining, openAdapter, openTraining, runTraining, saveTraining, sessionAdapters, trainingAdapter, trainingReport } from "./full_engine.js";
import { pixelsOf } from "./pixels.js";
import type { Queue } from "./queue.js";
import type { Handlers } from "./rpc.js";

/** A session's part that this file has. */
export interface AdaptedSlot { engine: EngineSession | null; prepare?: (engine: Engine, session: EngineSession) => Promise<void> }

/** What it needs of the host. */
export interface HostInside {
    readonly queue: Queue;
    /** The engine, which another may follow. */
    readonly ready: Promise<Engine>;
    slot(session: number): AdaptedSlot;
}

interface Training { engine: Engine; number: number; adapter: number; changed: boolean }

const bytesOf = async (blob: Blob): Promise<Uint8Array<ArrayBuffer>> => new Uint8Array(await blob.arrayBuffer());

/** The handlers. */
export function fullHandlers(host: HostInside): Handlers<FullCalls> {
    const files = new Map<number, PlainAdapter>(), trainings = new Map<number, Training>();
    const adapted = new Map<AdaptedSlot, (engine: Engine) => void>(); // takes its adapters from a session until its next answer
    const open = new WeakMap<Engine, Map<number, Promise<number>>>(); // adapters of an engine
    let next = 1;

    const openIn = (engine: Engine): Map<number, Promise<number>> => {
        let all = open.get(engine);
        if (!all) open.set(engine, all = new Map());
        return all;
    };
    const adapterIn = (engine: Engine, adapter: number): Promise<number> => {
        const all = openIn(engine), file = files.get(adapter);
        let found = all.get(adapter);
        if (found) return found;
        if (!file) throw new BerylError("MISUSE", "the adapter is closed");
        found = bytesOf(file.file).then((bytes) => openAdapter(engine, bytes, file.config));
        all.set(adapter, found);
        found.catch(() => all.delete(adapter));
        return found;
    };
    const trainingOf = async (number: number): Promise<Training> => {
        const training = trainings.get(number);
        if (!training) throw new BerylError("MISUSE", "the training is closed");
        if (training.engine !== await host.ready) throw new BerylError("DEVICE_LOST", "the GPU was lost, and the training with it", "Train again, from the adapter that was saved last.");
        return training;
    };
    /* A live adapter as it is now, unless another answer with it is under way: then as it was. */
    const refresh = async (training: Training): Promise<void> => {
        if (!training.changed) return;
        training.changed = false;
        await runTraining(training.engine, training.number, "show").catch((thrown: unknown) => {
            training.changed = true;
            if (!(thrown instanceof BerylError && thrown.status === "MISUSE")) throw thrown;
        });
    };
    const alone = <T>(number: number, signal: AbortSignal, work: (training: Training) => Promise<T>): Promise<T> =>
        host.queue.run(null, signal, async () => work(await trainingOf(number)));

    return {
        openAdapter: (file, { signal }) => host.queue.run(null, signal, async () => {
            const adapter = next++;
            files.set(adapter, file);
            try {
                await adapterIn(await host.ready, adapter);
                return adapter;
            } catch (thrown) {
                files.delete(adapter);
                throw thrown;
            }
        }),
        closeAdapter: ({ adapter }, { signal }) => host.queue.run(null, signal, async () => {
            const engine = await host.ready, all = openIn(engine), found = all.get(adapter);
            files.delete(adapter);
            all.delete(adapter);
            if (found) closeAdapter(engine, await found);
            return null;
        }),
        setAdapters: ({ session, adapters }, { signal }) => host.queue.run(session, signal, async () => {
            const slot = host.slot(session), before = slot.prepare;
            let last: EngineSession | null = null, was = "";
            slot.prepare = async (engine, own) => {
                for (const training of trainings.values())
                    if (training.engine === engine && adapters.some(({ adapter }) => adapter === training.adapter)) await refresh(training);
                const numbers = await Promise.all(adapters.map(({ adapter }) => adapterIn(engine, adapter))), now = numbers.join();
                if (own === last && now === was) return;
                sessionAdapters(engine, own, numbers, adapters.map(({ scale }) => scale));
                last = own;
                was = now;
            };
            try {
                if (slot.engine) await slot.prepare(await host.ready, slot.engine);
                adapted.set(slot, (engine) => {
                    if (slot.engine && slot.engine === last) sessionAdapters(engine, slot.engine, [], []);
                    last = null;
                });
            } catch (thrown) {
                if (before) slot.prepare = before;
                else delete slot.prepare;
                throw thrown;
            }
            return null;
        }),
        train: ({ data, valid, pictures, from, options }, { signal }) => host.queue.run(null, signal, async () => {
            const engine = await host.ready, initial = from ? await adapterIn(engine, from) : 0;
            const [learned, measured] = await Promise.all([bytesOf(data), valid ? bytesOf(valid) : new Uint8Array(0)]);
            const seen = await Promise.all(pictures.map(async ([name, picture]) => [name, await pixelsOf(picture)] as [string, RgbPicture]));
            const number = await openTraining(engine, options, learned, measured, seen, initial);
            const training = next++, adapter = next++;
            trainings.set(training, { engine, number, adapter, changed: true });
            openIn(engine).set(adapter, Promise.resolve(trainingAdapter(engine, number)));
            return { training, adapter, report: trainingReport(engine, number) };
        }),
        trainStep: ({ training }, { signal }) => alone(training, signal, async (one) => {
            await runTraining(one.engine, one.number, "step", signal);
            one.changed = true;
            return trainingReport(one.engine, one.number);
        }),
        trainMeasure: ({ training }, { signal }) => alone(training, signal, async ({ engine, number }) => {
            await runTraining(engine, number, "measure", signal);
            return trainingReport(engine, number);
        }),
        trainSave: ({ training, form }, { signal }) => alone(training, signal, async ({ engine, number }) =>
            (await saveTraining(engine, number, form, signal)).map((bytes) => new Blob([bytes]))),
        trainClose: ({ training }, { signal }) => host.queue.run(null, signal, async () => {
            const { engine, number, adapter } = trainings.get(training) ?? { engine: null, number: 0, adapter: 0 };
            if (engine !== await host.ready) { // lost, or closed before
                trainings.delete(training);
                return null;
            }
            const [file, config] = await saveTraining(engine, number, "peft");
            trainings.delete(training);
            files.set(adapter, { file: new Blob([file!]), config: new TextDecoder().decode(config) });
            openIn(engine).delete(adapter); // opened from its file when next asked for, in the room that it leaves
            closeTraining(engine, number);
            for (const [slot, release] of adapted) {
                if (slot.engine) release(engine);
                else adapted.delete(slot);
            }
            return null;
        }),
    };
}
