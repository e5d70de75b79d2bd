/*
 * ops.mjs [--check] - writes src/graph/ops.ts: the calls of include/beryl_graph.h and beryl_nn.h that build, as methods with types and as a table
 * of what each takes. With --check it writes nothing, and fails where the file is not current.
 *
 * A call whose first argument is a value is a method of Value, any other one of Graph. What a call takes and gives is a word each
 * in the table, which call.ts understands; a parameter that this script does not know ends it.
 */
import { readFileSync, writeFileSync } from "node:fs";

const header = ["graph", "nn"].map((name) => readFileSync(new URL(`../../include/beryl_${name}.h`, import.meta.url), "utf8")).join("");
const target = new URL("src/graph/ops.ts", import.meta.url);

/* By hand in graph.ts: what has data, an error or a place. */
const OTHERS = /^(open|close|at|shape|weight|constant|output|compile|set|run|wait|read|eval|device|state_set|state_get|extent_value|place|memory|explain|weight_affine|states_\w+)$/;
/* Values that may be left out: null. */
const OPTIONAL = { weight: /norm/, bias: /norm/, window: /^(stft|istft|welch)$/, mask: /^sdpa$/, far: /./ };

const camel = (name) => name.replace(/_(\w)/g, (_, letter) => letter.toUpperCase());
const pascal = (name) => camel(`_${name}`);
const fail = (why) => { throw new Error(`include/beryl_graph.h, beryl_nn.h: ${why}`); };

/* ---- enumerations and structures ---- */

const enums = new Map(), structs = new Map();
for (const [, name, body] of header.matchAll(/typedef enum beryl_(\w+) \{([^}]*)\}/g)) {
    if (name === "type") continue;
    const words = body.replace(/\/\*.*?\*\//gs, "").split(",").map((word) => word.trim()).filter((word) => word && !word.endsWith("_COUNT"));
    const first = words[0].split("_"), common = first.findIndex((part, i) => words.some((word) => word.split("_")[i] !== part || word.split("_").length === i + 1));
    enums.set(name, words.map((word) => word.split("_").slice(common).join("_").toLowerCase()));
}
const LETTERS = { uint32_t: "u", int32_t: "i", float: "f", bool: "b", beryl_value: "v" };
const letterOf = (type) => LETTERS[type] ?? (enums.has(type.replace("beryl_", "")) ? `e:${type.slice(6)}` : fail(`a field of ${type}`));
for (const [, name, body] of header.matchAll(/typedef struct beryl_(window|pool|sdpa|optimiser|selective_scan|gated_delta) \{(.*?)\n\} beryl_\1;/gs)) {
    const fields = [];
    for (const line of body.replace(/\/\*.*?\*\//gs, "").split(";")) {
        const [type, ...names] = line.trim().split(/[\s,]+/);
        for (const field of names) fields.push([camel(field), letterOf(type)]);
    }
    structs.set(name, fields);
}

/* ---- calls ---- */

const TYPES = { v: "Value", n: "Value | null", V: "readonly Value[]", L: "readonly Value[]", D: "readonly (number | Dim)[]", A: "readonly number[]",
    a: "readonly number[]", m: "readonly number[] | null", s: "string", u: "number", i: "number", f: "number", b: "boolean", q: "number | bigint", t: "Type", d: "number | Dim" };
const isLeft = (word) => /^([bam]|e:|S:)/.test(word) || word === "n";

/* Words of the parameters after the graph, with their names. */
function wordsOf(name, parameters) {
    const words = [];
    const all = parameters.map((text) => /^(const )?(\w+) (\*?)(\w+)$/.exec(text.trim()) ?? fail(`${name}: ${text}`));
    for (let i = 0; i < all.length; i++) {
        const [, constant, type, star, id] = all[i], next = all[i + 1], after = `${next?.[1] ?? ""}${next?.[2] ?? ""}${next?.[3] ?? ""}`;
        const put = (word, label = id) => words.push([word, camel(label)]);
        const pair = (word) => { put(word, next[4]); i++; };
        if (type === "uint32_t" && !star) {
            if (after === "const beryl_value*") pair("V");
            else if (after === "const beryl_dim*") pair("D");
            else if (after === "const uint32_t*" && next[4] !== "more") pair("A");
            else if (after === "const beryl_window*") pair("W");
            else put(name === "resize" && id === "how" ? "e:resize" : "u");
        } else if (constant && type === "uint32_t") {
            if (id === "axes") { put("a"); i++; } else put("m");
        } else if (type === "beryl_value" && star) put(constant ? "L" : /^(indices|count|mean|variance|last)$/.test(id) ? "o" : "R");
        else if (type === "beryl_value") put(OPTIONAL[id]?.test(name) ? "n" : "v");
        else if (type === "beryl_dim") put("d");
        else if (type === "beryl_type") put("t");
        else if (type === "uint64_t") put("q");
        else if (type === "char") put("s");
        else if (star && structs.has(type.slice(6))) put(`S:${type.slice(6)}`);
        else if (LETTERS[type]) put(LETTERS[type]);
        else put(`e:${type.slice(6)}`);
    }
    return words;
}

function typeOf(word) {
    const [kind, name = ""] = word.split(":");
    return kind === "e" ? enums.get(name).map((one) => JSON.stringify(one)).join(" | ") : kind === "S" ? pascal(name) : kind === "W" ? "readonly Window[]" : TYPES[kind] ?? fail(`a parameter of ${word}`);
}

const table = [], methods = { Value: [], Graph: [] };
let about = "";
for (const match of header.slice(header.indexOf("/* ---- tensors")).matchAll(/\/\*(.*?)\*\/|BERYL_API (void|bool|beryl_\w+|uint32_t) beryl_graph_(\w+)\(beryl_graph \*g,?([^)]*)\)/gs)) {
    const [, comment, gives, name, parameters] = match;
    if (comment !== undefined) {
        about = comment.replace(/\s*\n \* ?/g, " ").replace(/-{9,}/g, "").trim();
        continue;
    }
    if (OTHERS.test(name)) continue;
    const words = wordsOf(name, parameters.split(",").filter((text) => text.trim()));
    const result = gives === "void" ? "-" : gives === "beryl_value" ? "v" : gives === "beryl_dim" ? "d" : gives === "uint32_t" ? "x" : fail(`${name} gives ${gives}`);
    const own = words[0]?.[0] === "v", outs = words.filter(([word]) => /^[oR]$/.test(word));
    const taken = words.filter(([word]) => !/^[oR]$/.test(word)).slice(own ? 1 : 0);
    let left = taken.length;
    while (left > 0 && isLeft(taken[left - 1][0])) left--;
    const list = taken.map(([word, id], i) => `${id}${i >= left ? "?" : ""}: ${typeOf(word)}`).join(", ");
    const results = [...result === "v" ? ["Value"] : result === "-" ? [] : ["Dim"], ...outs.map(([word]) => word === "R" ? "Value[]" : "Value")];
    const given = results.length === 1 ? results[0] : `[${results.join(", ")}]`;
    const text = about ? `    /** ${about.replace(/\*\//g, "")} */\n` : "";
    methods[own ? "Value" : "Graph"].push(`${text}    ${camel(name)}(${list}): ${given};`);
    about = "";
    table.push(`    ${camel(name)}: "${[result, ...words.map(([word]) => word)].join(" ")}",`);
}
const interfaces = [...structs].map(([name, fields]) => `/** Options; what is left out is 0 or false${name === "window" ? ", of stride and dilation 1" : ""}: beryl_${name} of the header. */
export interface ${pascal(name)} {\n${fields.map(([field, word]) => `    ${field}?: ${typeOf(word)}${word === "v" ? " | null" : ""};`).join("\n")}\n}`);

const made = `/*
 * ops.ts - the calls of beryl_graph.h and beryl_nn.h that build, made from them by ops.mjs: edit neither by hand nor the comments, which are the headers'.
 */
import type { Dim, Type, Value } from "./graph.js";

/** Types of elements, in the header's order. */
export const TYPES = [${[...header.match(/#define BERYL_TYPE_LIST\(X\)(.*?)\n\n/s)[1].matchAll(/X\((\w+)\)/g)].map(([, name]) => `"${name.toLowerCase()}"`).join(", ")}] as const;

/** Words of enumerations, by number. */
export const ENUMS: Record<string, readonly string[]> = {
${[...enums].map(([name, words]) => `    ${name}: [${words.map((word) => `"${word}"`).join(", ")}],`).join("\n")}
};

/** Fields of structures, in order. */
export const STRUCTS: Record<string, readonly (readonly [string, string])[]> = {
${[...structs].map(([name, fields]) => `    ${name}: [${fields.map(([field, word]) => `["${field}", "${word}"]`).join(", ")}],`).join("\n")}
};

${interfaces.join("\n\n")}

/** The operations: what each gives, then what it takes, a word each. */
export const OPS = {
${table.join("\n")}
} as const;

/** Operations on a value. */
export interface ValueOps {
${methods.Value.join("\n")}
}

/** Operations that begin with no value. */
export interface GraphOps {
${methods.Graph.join("\n")}
}
`;
if (!process.argv.includes("--check")) writeFileSync(target, made);
else if (readFileSync(target, "utf8") !== made) {
    console.error("app/web/src/graph/ops.ts is not what beryl_graph.h and beryl_nn.h say: type 'make docs' and commit it");
    process.exit(1);
}
