/**
 * dom.ts - making elements. Owns nothing; text always becomes text nodes, never HTML.
 */

export type Child = Node | string | null | undefined | false;

type Handlers = { [K in keyof HTMLElementEventMap]?: (event: HTMLElementEventMap[K]) => void };

/** Properties of an element by their DOM names; attributes that have no property stand in `attributes`. */
export type Props<K extends keyof HTMLElementTagNameMap> = Partial<Omit<HTMLElementTagNameMap[K], "style" | "children" | "attributes">> & {
    on?: Handlers;
    attributes?: Record<string, string>;
};

/** An element with its properties, handlers and children. */
export function el<K extends keyof HTMLElementTagNameMap>(
    tag: K,
    props: Props<K> = {},
    ...children: Child[]
): HTMLElementTagNameMap[K] {
    const node = document.createElement(tag);
    const { on, attributes, ...rest } = props;
    Object.assign(node, rest);
    for (const [name, value] of Object.entries(attributes ?? {})) node.setAttribute(name, value);
    for (const [name, handler] of Object.entries(on ?? {})) node.addEventListener(name, handler as EventListener);
    fill(node, ...children);
    return node;
}

/** Replaces what an element holds. */
export function fill(node: Element, ...children: Child[]): void {
    node.replaceChildren(...children.filter((child): child is Node | string => child !== null && child !== undefined && child !== false));
}

/** The element of the page with this id; the page's own HTML promises that it is there. */
export function byId<K extends keyof HTMLElementTagNameMap>(id: string, tag: K): HTMLElementTagNameMap[K] {
    const node = document.getElementById(id);
    if (!node || node.localName !== tag) throw new Error(`index.html has no <${tag} id="${id}">`);
    return node as HTMLElementTagNameMap[K];
}

/** A button with words on it. */
export function button(label: string, click: () => void, className = "", title = ""): HTMLButtonElement {
    return el("button", { type: "button", className, title, on: { click } }, label);
}

/** A number that a panel asks for. */
export interface NumberField<Key extends string> {
    key: Key;
    label: string;
    hint: string;
    min: number;
    max: number;
}

/** An input under its label, with a hint that tells what it is for. id: the input's own from now on. */
export function field(id: string, label: string, hint: string, input: HTMLElement): HTMLElement {
    input.id = id;
    input.setAttribute("aria-describedby", `${id}-hint`);
    return el("div", { className: "field" }, el("label", { htmlFor: id }, label), input, el("span", { id: `${id}-hint`, className: "dim small" }, hint));
}

/** An input for a number between the field's minimum and maximum. */
export function numberInput<Key extends string>({ min, max }: NumberField<Key>, value: string, whenEmpty = ""): HTMLInputElement {
    return el("input", { type: "number", min: String(min), max: String(max), step: "any", inputMode: "decimal", value, placeholder: whenEmpty });
}
