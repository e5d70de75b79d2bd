/*
 * rpc.ts - calls across a worker's border, and the same calls without one.
 *
 * Owns the messages. A call has arguments, any number of events on the way, and one result or
 * error; it can be cancelled. Events are posted as they come and never wait for the other side.
 * The one idea: `local` and `remote` give the same Caller, so nothing above knows where the engine is.
 */
import { BerylError, type PlainError } from "./error.js";

/** What one call takes, tells on the way, and gives. */
export interface CallShape { args: unknown; event: unknown; result: unknown }
/** One of them. */
export interface Call<A, R, E = never> { args: A; event: E; result: R }
/** All calls of one border, by name: each value has the form of CallShape. */
export type CallTable<T> = { [K in keyof T]: CallShape };

/** What a handler is given beside its arguments. */
export interface CallContext<E> { signal: AbortSignal; emit(event: E): void }

/** The side that answers. */
export type Handlers<T extends CallTable<T>> = {
    [K in keyof T]: (args: T[K]["args"], context: CallContext<T[K]["event"]>) => Promise<T[K]["result"]>;
};

export interface CallOptions<E> { signal?: AbortSignal | undefined; onEvent?: ((event: E) => void) | undefined; transfer?: Transferable[] }

/** The side that asks. Cancelling asks the other side to stop; the result is still what that side gives. */
export interface Caller<T extends CallTable<T>> {
    call<K extends keyof T & string>(name: K, args: T[K]["args"], options?: CallOptions<T[K]["event"]>): Promise<T[K]["result"]>;
    /** Ends the other side; calls under way reject with CANCELLED. */
    close(): void;
}

/** One end of a message channel: a Worker, a MessagePort, or a worker's own global. */
export interface Port {
    postMessage(message: unknown, transfer: Transferable[]): void;
    addEventListener(type: "message", listener: (event: MessageEvent) => void): void;
    /** MessagePorts wait for it. */
    start?(): void;
}

type Request = { id: number; name: string; args: unknown } | { id: number; cancel: true };
type Reply = { id: number; event: unknown } | { id: number; result: unknown } | { id: number; error: PlainError };

/** Calls the handlers in place. */
export function local<T extends CallTable<T>>(handlers: Handlers<T>): Caller<T> {
    const ending = new AbortController();
    return {
        async call(name, args, options = {}) {
            const signal = options.signal ? AbortSignal.any([options.signal, ending.signal]) : ending.signal;
            const emit = options.onEvent ?? (() => undefined);
            try {
                return await handlers[name](args, { signal, emit });
            } catch (thrown) {
                throw BerylError.from(thrown);
            }
        },
        close() {
            ending.abort();
        },
    };
}

/** Calls the handlers at the other end of the channel. */
export function remote<T extends CallTable<T>>(port: Port, end: () => void): Caller<T> & { fail(error: BerylError): void } {
    interface Pending { resolve(value: unknown): void; reject(error: BerylError): void; event(event: unknown): void }
    const pending = new Map<number, Pending>();
    let next = 1;
    let failed: BerylError | null = null;
    const fail = (error: BerylError): void => {
        failed ??= error;
        for (const call of pending.values()) call.reject(error);
        pending.clear();
    };
    port.addEventListener("message", ({ data }) => {
        const reply = data as Reply;
        const call = pending.get(reply.id);
        if (!call) return;
        if ("event" in reply) return call.event(reply.event);
        pending.delete(reply.id);
        if ("error" in reply) call.reject(BerylError.fromPlain(reply.error));
        else call.resolve(reply.result);
    });
    port.start?.();
    return {
        async call(name, args, options = {}) {
            if (failed) throw failed;
            const id = next++;
            const cancel = (): void => port.postMessage({ id, cancel: true } satisfies Request, []);
            try {
                return await new Promise<T[typeof name]["result"]>((resolve, reject) => {
                    const event = (value: unknown): void => options.onEvent?.(value as T[typeof name]["event"]);
                    pending.set(id, { resolve: resolve as (value: unknown) => void, reject, event });
                    try {
                        port.postMessage({ id, name, args } satisfies Request, options.transfer ?? []);
                    } catch (thrown) { // an argument that cannot be cloned
                        pending.delete(id);
                        throw new BerylError("MISUSE", `${name}: ${(thrown as Error).message}`);
                    }
                    if (options.signal?.aborted) cancel();
                    options.signal?.addEventListener("abort", cancel, { once: true });
                });
            } finally {
                options.signal?.removeEventListener("abort", cancel);
            }
        },
        close() {
            fail(new BerylError("CANCELLED", "the model is closed"));
            end();
        },
        fail,
    };
}

/** Answers what comes through the port with the handlers. */
export function serve<T extends CallTable<T>>(port: Port, handlers: Handlers<T>): void {
    const running = new Map<number, AbortController>();
    const post = (reply: Reply, transfer: Transferable[] = []): void => port.postMessage(reply, transfer);
    const answer = async (id: number, name: string, args: unknown): Promise<void> => {
        const controller = new AbortController();
        running.set(id, controller);
        try {
            if (!Object.hasOwn(handlers, name)) throw new BerylError("MISUSE", `there is no call "${name}"`);
            const context = { signal: controller.signal, emit: (event: unknown) => post({ id, event }) };
            const result = await handlers[name as keyof T](args, context);
            post({ id, result }, ArrayBuffer.isView(result) ? [result.buffer as ArrayBuffer] : []);
        } catch (thrown) {
            post({ id, error: BerylError.from(thrown).toPlain() });
        } finally {
            running.delete(id);
        }
    };
    port.addEventListener("message", ({ data }) => {
        const request = data as Request;
        if ("cancel" in request) running.get(request.id)?.abort();
        else void answer(request.id, request.name, request.args);
    });
    port.start?.();
}
