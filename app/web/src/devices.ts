/*
 * devices.ts - what this browser has to compute on, and what would help where that is nothing.
 */
import type { WebGpu } from "./gpu.js";
import { ARGUMENTS } from "./options.js";

/** An adapter, or the reason why there is none. */
export interface AdapterInfo {
    /** The adapter's name as the browser gives it; empty where it gives none. */
    name: string;
    vendor: string;
    architecture: string;
    /** A software adapter: right, but slow. */
    software: boolean;
    usable: boolean;
    /** Why it is not usable, in one sentence; empty if it is. */
    whyNot: string;
    /** Which browser or switch would help; empty where nothing need be done. */
    hint: string;
    features: string[];
    limits: Record<string, number>;
    /** 0: no subgroups, or not told. */
    subgroupSize: number;
}

/* What every kernel's plainest form needs. Any adapter of WebGPU's core level has it. */
const NEEDED = {
    maxComputeInvocationsPerWorkgroup: 256,
    maxComputeWorkgroupStorageSize: 16_384,
    maxStorageBuffersPerShaderStage: 8,
    maxStorageBufferBindingSize: 128 * 1024 * 1024,
} as const;

const UNTOLD = { name: "", vendor: "", architecture: "", software: false, features: [], limits: {}, subgroupSize: 0 };

/** All adapters that the browser offers, the fast one first; if none, one entry that says why. */
export async function devices(gpu?: WebGpu): Promise<AdapterInfo[]> {
    if (gpu !== undefined) ARGUMENTS.webgpu.check(gpu, "gpu");
    const host = globalThis as { isSecureContext?: boolean; navigator?: { gpu?: GPU; userAgent?: string } };
    const api = gpu as GPU | undefined ?? host.navigator?.gpu;
    const agent = host.navigator?.userAgent ?? "";
    if (!api) {
        const secure = host.isSecureContext !== false;
        return [{ ...UNTOLD, usable: false, whyNot: secure ? "This browser has no WebGPU, or it is switched off."
            : "WebGPU is given to secure pages alone.", hint: webgpuHint(agent, secure) }];
    }
    const found: AdapterInfo[] = [];
    for (const powerPreference of ["high-performance", "low-power"] as const) {
        const adapter = await Promise.resolve().then(() => api.requestAdapter({ powerPreference })).catch(() => null);
        if (!adapter) continue;
        const info = describe(adapter);
        if (!found.some((other) => JSON.stringify(other) === JSON.stringify(info))) found.push(info);
    }
    if (found.length === 0)
        found.push({ ...UNTOLD, usable: false, whyNot: "WebGPU is here, but it offers no adapter.", hint: adapterHint(agent) });
    return found;
}

function describe(adapter: GPUAdapter): AdapterInfo {
    const { info } = adapter;
    const limits: Record<string, number> = {};
    for (const key in adapter.limits) {
        const value: unknown = adapter.limits[key as keyof GPUSupportedLimits];
        if (typeof value === "number") limits[key] = value;
    }
    const lacks = Object.entries(NEEDED).filter(([key, least]) => (limits[key] ?? least) < least).map(([key]) => key);
    const named = info as GPUAdapterInfo & { isFallbackAdapter?: boolean; subgroupMaxSize?: number };
    return {
        name: info.description || info.device || [info.vendor, info.architecture].filter(Boolean).join(" "),
        vendor: info.vendor,
        architecture: info.architecture,
        software: named.isFallbackAdapter === true || /swiftshader|llvmpipe|lavapipe|basic render/i.test(`${info.description} ${info.architecture}`),
        usable: lacks.length === 0,
        whyNot: lacks.length ? `The adapter's ${lacks.join(", ")} is too small.` : "",
        hint: lacks.length ? "Update the graphics driver, or use another device." : "",
        features: [...adapter.features].sort(),
        limits,
        subgroupSize: adapter.features.has("subgroups") ? named.subgroupMaxSize ?? 0 : 0,
    };
}

/** What to do where navigator.gpu is missing. */
export function webgpuHint(userAgent: string, secure: boolean): string {
    if (!secure) return "Open the page over https, or from localhost.";
    const version = (name: string): number => Number(new RegExp(`${name}/(\\d+)`).exec(userAgent)?.[1] ?? 0);
    const linux = /Linux/.test(userAgent) && !/Android/.test(userAgent);
    if (/Deno/.test(userAgent)) return "Start Deno with --unstable-webgpu.";
    if (/Node/.test(userAgent)) return "Node has no WebGPU of its own: npm install webgpu, then `import { create } from \"webgpu\"` and `Beryl.load(source, { gpu: create([]) })`.";
    if (/Firefox/.test(userAgent))
        return "Firefox has WebGPU from version 141 (Windows) and 147 (Macs with Apple silicon): update it. "
            + "On Linux set dom.webgpu.enabled in about:config, or use Chrome or Edge.";
    if (/Chrom(e|ium)/.test(userAgent)) {
        if (linux) return "On Linux, Chrome has WebGPU from version 144 (Intel) and 147 (NVIDIA): update it. "
            + "With another GPU, switch on chrome://flags/#enable-unsafe-webgpu and #enable-vulkan.";
        return version("Chrome") < 121 ? "Update the browser: Chrome and Edge have WebGPU from version 113, on Android from 121."
            : "Switch on \"Use graphics acceleration when available\" in the browser's settings (System), then start it again.";
    }
    if (/Safari|iPhone|iPad/.test(userAgent))
        return "Safari has WebGPU from version 26 (macOS 26, iOS 26): update the system, or use Chrome or Edge.";
    return "Use a current Chrome, Edge, Firefox or Safari.";
}

/** What to do where WebGPU is there without an adapter. */
export function adapterHint(userAgent: string): string {
    if (/Chrom(e|ium)/.test(userAgent))
        return "Update the graphics driver, look at chrome://gpu for what is blocked (chrome://flags/#ignore-gpu-blocklist), "
            + "on Linux switch on chrome://flags/#enable-unsafe-webgpu and #enable-vulkan.";
    return "Update the graphics driver and the browser; virtual machines and remote desktops often have no GPU.";
}
