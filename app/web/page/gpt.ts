/**
 * gpt.ts - the page on which a GPT learns: its controls, the curve of the loss, what it writes. The work is gpt_worker.ts's.
 */
import { byId, fill } from "./dom";
import type { Asked, Told } from "./gpt_worker";

const SVG = "http://www.w3.org/2000/svg", WIDTH = 640, HEIGHT = 200, POINTS = 640, LEAST = 34; // characters of a text
const TEXT = "the fox sees the dog. the dog sees the cat. the cat sees the bird. the bird sees the fox. a fox runs. a dog runs. a cat sleeps. a bird sings. ";

const text = byId("text", "textarea"), rate = byId("rate", "input"), start = byId("start", "button"), stop = byId("stop", "button");
const problem = byId("problem", "p"), where = byId("where", "p"), figures = byId("figures", "p"), sample = byId("sample", "pre");
const curve = document.querySelector<SVGElement>("#curve")!;
let worker: Worker | null = null, losses: number[] = [], began = 0, frame = 0;

function draw(): void {
    frame = 0;
    const most = Math.max(...losses.slice(0, 10)), each = Math.ceil(losses.length / POINTS), line = document.createElementNS(SVG, "polyline");
    const means = Array.from({ length: Math.ceil(losses.length / each) }, (_, i) => losses.slice(i * each, (i + 1) * each)).map((part) => part.reduce((a, b) => a + b, 0) / part.length);
    line.setAttribute("points", means.map((loss, i) => `${(WIDTH * i / Math.max(1, means.length - 1)).toFixed(1)},${(HEIGHT - 6 - (HEIGHT - 12) * Math.min(1, loss / most)).toFixed(1)}`).join(" "));
    fill(curve, line);
    const [first = 0] = losses, last = losses.at(-1) ?? 0, seconds = (performance.now() - began) / 1000;
    curve.setAttribute("aria-label", `Loss by steps: from ${first.toFixed(2)} to ${last.toFixed(2)} in ${losses.length}`);
    figures.textContent = `Step ${losses.length} · loss ${last.toFixed(3)} · ${(losses.length / seconds).toFixed(1)} steps/s`;
}

function end(): void {
    worker?.terminate();
    worker = null;
    [start.hidden, stop.hidden, stop.disabled, text.disabled] = [false, true, false, false];
    start.focus();
}

function fail(why: string): void {
    problem.textContent = why;
    problem.hidden = false;
    where.textContent = "";
    end();
}

function hear(told: Told): void {
    if ("device" in told) {
        const software = /swiftshader|llvmpipe|lavapipe|software|basic render/i.test(told.device ?? "software");
        where.textContent = `${told.parameters.toLocaleString("en")} parameters on ${told.device ?? "this processor, without a GPU"}${software ? ": an adapter in software, which is slow" : ""}.`;
        began = performance.now();
    } else if ("step" in told) {
        losses.push(told.loss);
        frame ||= requestAnimationFrame(draw);
    } else if ("sample" in told) {
        if (told.sample) sample.textContent = told.sample;
    } else if ("failed" in told) fail(`The training broke off: ${told.failed}`);
    else {
        where.textContent += " Stopped.";
        end();
    }
}

start.addEventListener("click", () => {
    problem.hidden = true;
    if (text.value.length < LEAST) return fail(`A text of at least ${LEAST} characters is needed.`);
    if (!(Number(rate.value) > 0)) return fail("The learning rate must be more than 0.");
    [start.hidden, stop.hidden, text.disabled, losses] = [true, false, true, []];
    stop.focus();
    fill(curve);
    where.textContent = "Compiling…";
    figures.textContent = "Not begun.";
    sample.textContent = "Nothing yet.";
    worker = new Worker(new URL("./gpt_worker.ts", import.meta.url), { type: "module" });
    worker.addEventListener("message", ({ data }: MessageEvent<Told>) => hear(data));
    worker.addEventListener("error", () => fail("The worker could not be started."));
    worker.postMessage({ text: text.value, rate: Number(rate.value) } satisfies Asked);
});
stop.addEventListener("click", () => {
    stop.disabled = true;
    worker?.postMessage("stop" satisfies Asked);
});
text.value = TEXT;
