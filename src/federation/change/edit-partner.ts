// Edits a partner's file: sets `contained`, or one plane. Invariants: nothing else of the file's meaning
// changes, and nothing else of its text: comments, order, quotes and line ends stay as somebody wrote them.
import { isDeepStrictEqual } from "node:util";
import { type Document, isMap, isScalar, parseDocument, type YAMLMap } from "yaml";
import { DrawbridgeError } from "../../domain/errors.ts";
import type { PlaneName } from "../plane-order.ts";
import type { PlaneState } from "../registry/partner.ts";

/**
 * @param text a valid partner file
 * @throws DrawbridgeError `internal` when the text is no such file
 */
export function setContained(text: string, contained: boolean): string {
  const isMeant = (after: string) => saysOnly(text, after, contained);
  return firstMeant(isMeant, [
    () => withContained(text, contained),
    () => {
      // An unusual layout: the document is written anew, with its comments.
      const document = parseDocument(text);
      document.set("contained", contained);
      return String(document);
    },
  ]);
}

/**
 * Opens or closes one plane in `planes`.
 * @param text a valid partner file
 * @throws DrawbridgeError `internal` when the text is no such file
 */
export function setPlane(text: string, plane: PlaneName, state: PlaneState): string {
  const isMeant = (after: string) => saysPlane(text, after, plane, state);
  return firstMeant(isMeant, [
    () => withPlane(text, plane, state),
    () => {
      const document = parseDocument(text);
      document.setIn(["planes", plane], state);
      return String(document);
    },
  ]);
}

function firstMeant(isMeant: (text: string) => boolean, ways: readonly (() => string | undefined)[]): string {
  for (const way of ways) {
    const text = way();
    if (text !== undefined && isMeant(text)) return text;
  }
  throw new DrawbridgeError("internal", "a partner's file could not be edited");
}

function withContained(text: string, contained: boolean): string | undefined {
  const document: Document.Parsed = parseDocument(text);
  const { contents } = document;
  if (!isMap(contents)) return undefined;
  const present = rangeOf(contents, "contained");
  if (present !== undefined) return `${text.slice(0, present[0])}${contained}${text.slice(present[1])}`;
  const after = rangeOf(contents, "classification");
  if (after === undefined) return undefined;
  if (contents.flow === true) {
    return `${text.slice(0, after[1])}, contained: ${contained}${text.slice(after[1])}`;
  }
  return withLinesAfter(text, after[1], [`contained: ${contained}`]);
}

function withPlane(text: string, plane: PlaneName, state: PlaneState): string | undefined {
  const { contents }: Document.Parsed = parseDocument(text);
  if (!isMap(contents) || contents.flow === true) return undefined;
  const planes = contents.items.find((item) => isScalar(item.key) && item.key.value === "planes")?.value;
  if (planes === undefined) {
    const after = rangeOf(contents, "contained") ?? rangeOf(contents, "classification");
    return after === undefined
      ? undefined
      : withLinesAfter(text, after[1], ["planes:", `  ${plane}: ${state}`]);
  }
  if (!isMap(planes)) return undefined;
  const present = rangeOf(planes, plane);
  if (present !== undefined) return `${text.slice(0, present[0])}${state}${text.slice(present[1])}`;
  const last = planes.items.findLast((item) => isScalar(item.key) && isScalar(item.value));
  const end = isScalar(last?.value) ? last.value.range?.[1] : undefined;
  if (end === undefined) return undefined;
  if (planes.flow === true) return `${text.slice(0, end)}, ${plane}: ${state}${text.slice(end)}`;
  const key = isScalar(last?.key) ? (last.key.range?.[0] ?? 0) : 0;
  const indent = text.slice(text.lastIndexOf("\n", key - 1) + 1, key);
  return /^ +$/.test(indent) ? withLinesAfter(text, end, [`${indent}${plane}: ${state}`]) : undefined;
}

function rangeOf(map: YAMLMap, name: string): readonly [number, number, number] | undefined {
  const found = map.items.find((item) => isScalar(item.key) && item.key.value === name);
  return isScalar(found?.value) ? (found.value.range ?? undefined) : undefined;
}

/** The text with lines after the one that `offset` is in. */
function withLinesAfter(text: string, offset: number, lines: readonly string[]): string {
  const newline = text.indexOf("\n", offset);
  const lineEnd = text.includes("\r\n") ? "\r\n" : "\n";
  const added = lines.map((line) => `${line}${lineEnd}`).join("");
  if (newline < 0) return `${text}${lineEnd}${added}`;
  return `${text.slice(0, newline + 1)}${added}${text.slice(newline + 1)}`;
}

/** Whether two texts differ in `contained` alone, and the second says what is wanted. */
function saysOnly(before: string, after: string, contained: boolean): boolean {
  const { contained: _, ...kept } = readMap(before) ?? {};
  const { contained: said, ...now } = readMap(after) ?? {};
  return said === contained && isDeepStrictEqual(kept, now);
}

/** Whether two texts differ in one plane alone, and the second says what is wanted. */
function saysPlane(before: string, after: string, plane: PlaneName, state: PlaneState): boolean {
  const { planes: planesBefore, ...kept } = readMap(before) ?? {};
  const { planes: planesAfter, ...now } = readMap(after) ?? {};
  const wanted = { ...(planesBefore ?? {}), [plane]: state };
  return isDeepStrictEqual(planesAfter, wanted) && isDeepStrictEqual(kept, now);
}

function readMap(text: string): Record<string, unknown> | undefined {
  const document = parseDocument(text, { uniqueKeys: true, strict: true });
  if (document.errors.length > 0) return undefined;
  const value: unknown = document.toJS({ maxAliasCount: 0 });
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : undefined;
}
