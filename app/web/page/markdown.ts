/**
 * markdown.ts - a model's text as elements. What the model writes is a stranger's text: Markdown is parsed by marked, the
 * result cleaned by DOMPurify to a short list of elements, so that it can neither run anything nor load anything.
 */
import DOMPurify from "dompurify";
import { Marked } from "marked";
import { button, el } from "./dom";

const marked = new Marked({ gfm: true, breaks: true, async: false });

const ALLOWED_TAGS = [
    "a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "strong",
    "table", "tbody", "td", "th", "thead", "tr", "ul", "sub", "sup",
];
const ALLOWED_ATTR = ["href", "title", "start", "align", "class"];

function copyText(text: string, from: HTMLButtonElement): void {
    navigator.clipboard.writeText(text).then(
        () => {
            from.textContent = "Copied";
            setTimeout(() => (from.textContent = "Copy"), 1500);
        },
        () => (from.textContent = "Not allowed"),
    );
}

/** Elements for Markdown text. Pictures are left out: fetching one would tell its server what was said. */
export function render(text: string): DocumentFragment {
    const html = marked.parse(text) as string;
    const fragment = DOMPurify.sanitize(html, {
        ALLOWED_TAGS,
        ALLOWED_ATTR,
        ALLOWED_URI_REGEXP: /^(?:https?:|mailto:)/i,
        RETURN_DOM_FRAGMENT: true,
    });
    for (const link of fragment.querySelectorAll("a")) {
        link.target = "_blank";
        link.rel = "noopener noreferrer nofollow";
    }
    for (const node of fragment.querySelectorAll("[class]"))
        if (!/^language-[\w+#.-]{1,20}$/.test(node.className)) node.removeAttribute("class");
    let level = 2; // of the heading above the message; none below may be skipped
    for (const heading of fragment.querySelectorAll("h1, h2, h3, h4, h5, h6")) {
        level = Math.min(Math.max(Number(heading.localName[1]), 3), level + 1);
        const lower = el(`h${level as 3 | 4 | 5 | 6}`);
        lower.append(...heading.childNodes);
        heading.replaceWith(lower);
    }
    for (const table of fragment.querySelectorAll("table")) {
        const wide = el("div", { className: "wide", tabIndex: 0, attributes: { role: "region", "aria-label": "Table" } });
        table.replaceWith(wide);
        wide.append(table);
    }
    for (const block of fragment.querySelectorAll("pre")) {
        const language = /language-(\S+)/.exec(block.querySelector("code")?.className ?? "")?.[1] ?? "text";
        const copy = button("Copy", () => copyText(block.textContent ?? "", copy), "quiet small");
        block.tabIndex = 0;
        const frame = el("div", { className: "code" }, el("div", { className: "code-head" }, language, copy));
        block.replaceWith(frame);
        frame.append(block);
    }
    return fragment;
}
