// Forged and odd cards, made place by place from one correct card whose content is changed.
import { canonicalize } from "../../../src/domain/canonical-json.ts";
import type { Json, JsonObject } from "../../../src/domain/json.ts";
import { bytesOf, fullCard, signedCard, signText, testKey } from "../../support/cards.ts";

/** What is wrong with it, and its bytes. */
export type Forgery = readonly [what: string, card: Uint8Array];

export const ours = await testKey("ours-2026");
/** Another key, that claims the same key ID. */
export const attacker = await testKey("ours-2026");
export const CARD = fullCard();
export const PAYLOAD = canonicalize(CARD);
export const SIGNED = signedCard(ours, CARD);
export const SIGNATURE = signText(ours, PAYLOAD);

/** The correct card with these signatures instead. */
export const withSignatures = (signatures: unknown): Uint8Array => bytesOf({ ...CARD, signatures });

type Path = readonly (string | number)[];

const isObject = (value: Json): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Every place in a value, the root first; not inside params, where anything is allowed. */
function places(value: Json, path: Path = []): { path: Path; value: Json }[] {
  const own = { path, value };
  if (path.at(-1) === "params") return [own];
  if (Array.isArray(value)) {
    return [own, ...value.flatMap((element: Json, index) => places(element, [...path, index]))];
  }
  if (!isObject(value)) return [own];
  return [own, ...Object.entries(value).flatMap(([name, member]) => places(member, [...path, name]))];
}

/** A copy with one place changed; `undefined` removes it. */
function changed(value: Json, path: Path, change: (old: Json) => Json | undefined): Json {
  const [step, ...rest] = path;
  if (step === undefined) return change(value) ?? null;
  if (Array.isArray(value)) {
    return value.flatMap((element: Json, index) => {
      if (index !== step) return [element];
      if (rest.length > 0) return [changed(element, rest, change)];
      const made = change(element);
      return made === undefined ? [] : [made];
    });
  }
  if (!isObject(value)) throw new TypeError("no such place");
  const entries = Object.entries(value).flatMap(([name, member]): [string, Json][] => {
    if (name !== step) return [[name, member]];
    if (rest.length > 0) return [[name, changed(member, rest, change)]];
    const made = change(member);
    return made === undefined ? [] : [[name, made]];
  });
  return Object.fromEntries(entries);
}

const show = (path: Path) => `/${path.join("/")}`;
const isMap = (path: Path) =>
  path.at(-1) === "scopes" || path.at(-1) === "schemes" || path.at(-1) === "securitySchemes";
const messages = places(CARD).filter(
  ({ path, value }) => isObject(value) && !isMap(path) && path.at(-1) !== "params",
);

/** Both ways to serve an odd card: under the good signature, and signed as odd as it is by the pinned key. */
function served(what: string, card: Json): Forgery[] {
  const signatures = SIGNED["signatures"] ?? null;
  const resigned = signedCard(ours, card as JsonObject);
  return [
    [`${what}, under the old signature`, bytesOf({ ...(card as JsonObject), signatures })],
    [`${what}, signed`, bytesOf(resigned)],
  ];
}

export function wrongTypes(): Forgery[] {
  return places(CARD)
    .filter(({ path }) => path.length > 0 && path.at(-1) !== "params")
    .flatMap(({ path, value }) => {
      const wrong: Json[] = [null, [value], { value }, 7];
      if (typeof value !== "string") wrong.push("text");
      if (typeof value !== "boolean") wrong.push(true);
      // An array of the same is no other type where an array of arrays' elements is looked at.
      return wrong
        .filter((replacement) => !(isMap(path) && isObject(replacement)))
        .flatMap((replacement) =>
          served(
            `${show(path)} is ${JSON.stringify(replacement).slice(0, 20)}`,
            changed(CARD, path, () => replacement),
          ),
        );
    });
}

export function unknownFields(): Forgery[] {
  const names = ["extra", "Name", "name ", "$schema", "@type", "__proto__", "constructor", "toString", ""];
  return messages.flatMap(({ path, value }) =>
    names.flatMap((name) => {
      const entries: [string, Json][] = [...Object.entries(value as JsonObject), [name, "x"]];
      return served(
        `${show(path)} has ${JSON.stringify(name)}`,
        changed(CARD, path, () => Object.fromEntries(entries)),
      );
    }),
  );
}

export function snakeCase(): Forgery[] {
  return messages.flatMap(({ path, value }) =>
    Object.entries(value as JsonObject)
      .map(([name, member]) => ({
        name,
        member,
        snake: name.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`),
      }))
      .filter(({ name, snake }) => name !== snake)
      .flatMap(({ name, member, snake }) => {
        const { [name]: _, ...rest } = value as Record<string, Json>;
        return [
          ...served(
            `${show(path)} says ${snake}`,
            changed(CARD, path, () => ({ ...rest, [snake]: member })),
          ),
          ...served(
            `${show(path)} says ${snake} too`,
            changed(CARD, path, () => ({ ...rest, [name]: member, [snake]: member })),
          ),
        ];
      }),
  );
}

const REQUIRED =
  /(?:^\/(?:name|description|version|capabilities|supportedInterfaces|defaultInputModes|defaultOutputModes|skills)|\/(?:url|protocolBinding|protocolVersion|organization|id|tags|location|scheme|flows|openIdConnectUrl|deviceAuthorizationUrl))$|(?:skills\/0|provider|apiKeySecurityScheme)\/name$|skills\/0\/description$|(?:authorizationCode|clientCredentials|deviceCode)\/(?:tokenUrl|scopes)$|authorizationCode\/authorizationUrl$/;

export function missingFields(): Forgery[] {
  const all = places(CARD).filter(({ path }) => path.length > 0 && typeof path.at(-1) === "string");
  return all.flatMap(({ path }) => {
    const variants = served(
      `${show(path)} is gone`,
      changed(CARD, path, () => undefined),
    );
    // Without an optional field it is another card, which the pinned key may well sign.
    return REQUIRED.test(show(path)) ? variants : variants.slice(0, 1);
  });
}

export function changedText(): Forgery[] {
  const { signatures } = SIGNED;
  return places(CARD).flatMap(({ path, value }): Forgery[] => {
    if (typeof value === "boolean") {
      const card = changed(CARD, path, () => !value) as JsonObject;
      return [[`${show(path)} is turned`, bytesOf({ ...card, signatures })]];
    }
    if (typeof value !== "string") return [];
    const made = (change: (old: string) => string) => ({
      ...(changed(CARD, path, () => change(value)) as JsonObject),
      signatures,
    });
    return [
      [`${show(path)} is emptied`, bytesOf(made(() => ""))],
      [`${show(path)} ends in NUL`, bytesOf(made((old) => `${old}\0`))],
      [`${show(path)} ends in a space`, bytesOf(made((old) => `${old} `))],
      [`${show(path)} ends in a zero-width space`, bytesOf(made((old) => `${old}\u200b`))],
      [`${show(path)} is decomposed`, bytesOf(made((old) => `${old}e\u0301`.normalize("NFD")))],
    ];
  });
}

/** Repeats one member inside one object of the text, first or last, with its own or another value. */
export function duplicateKeys(): Forgery[] {
  const marker = "@@duplicate@@";
  return messages.flatMap(({ path, value }) =>
    Object.entries(value as JsonObject).flatMap(([name, member]) =>
      [member, "other"].flatMap((second): Forgery[] => {
        const marked = changed(CARD, path, () => ({ ...(value as JsonObject), [marker]: 0 })) as JsonObject;
        const text = JSON.stringify({ ...marked, signatures: SIGNED["signatures"] });
        const again = `${JSON.stringify(name)}:${JSON.stringify(second)}`;
        return [[`${show(path)} repeats ${name}`, Buffer.from(text.replace(`"${marker}":0`, () => again))]];
      }),
    ),
  );
}

export function oddEncodings(): Forgery[] {
  const text = JSON.stringify(SIGNED);
  const bytes = Buffer.from(text);
  return [
    ["byte order mark", Buffer.from(`\ufeff${text}`)],
    ["UTF-16LE", Buffer.from(text, "utf16le")],
    ["UTF-16LE with mark", Buffer.from(`\ufeff${text}`, "utf16le")],
    ["UTF-16BE", Buffer.from(text, "utf16le").swap16()],
    ["UTF-16BE with mark", Buffer.from(`\ufeff${text}`, "utf16le").swap16()],
    ["Latin-1", Buffer.from(text, "latin1")],
    ["NUL after it", Buffer.concat([bytes, Buffer.from([0])])],
    ["NUL before it", Buffer.concat([Buffer.from([0]), bytes])],
    ["twice", Buffer.concat([bytes, bytes])],
    ["in an array", Buffer.from(`[${text}]`)],
    ["as a string", Buffer.from(JSON.stringify(text))],
    ["with a comment", Buffer.from(`/* */${text}`)],
    ["trailing comma", Buffer.from(text.replace(/\}$/, ",}"))],
    ["cut short", bytes.subarray(0, -1)],
    ["lone surrogate", Buffer.from(text.replace('"Find"', '"Find\\ud800"'))],
    ["surrogate in UTF-8", Buffer.from(bytes.toString("latin1").replace("Find", "\xed\xa0\x80"), "latin1")],
    ["too large", Buffer.concat([bytes, Buffer.alloc(256 * 1024, " ")])],
    ["empty", Buffer.alloc(0)],
    ["null", Buffer.from("null")],
    ["empty object", Buffer.from("{}")],
  ];
}

/** Two variants of a oneof at once, signed by the pinned key. */
export function ambiguousVariants(): Forgery[] {
  const both = (what: string, path: Path, second: JsonObject): Forgery[] =>
    served(
      what,
      changed(CARD, path, (old) => ({ ...(old as JsonObject), ...second })),
    );
  const description = "x";
  return [
    ...both("two schemes", ["securitySchemes", "mtls"], {
      openIdConnectSecurityScheme: { description, openIdConnectUrl: "https://id.example.org/oidc" },
    }),
    ...both("two flows", ["securitySchemes", "implicit", "oauth2SecurityScheme", "flows"], { password: {} }),
  ];
}
