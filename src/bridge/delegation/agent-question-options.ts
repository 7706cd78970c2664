// The options that an agent offers with a question: a data part with a list `options`, of texts or of objects with
// `label` and, if it wants, `key` or `id`. Pure.
// Invariants: their number and their lengths are bounded; keys are unique; what is not such a list stays a part of the
// question.
import type { QuestionOption } from "../ledger/admission-types.ts";
import type { ContentPart } from "./a2a/protocol.ts";

const OPTIONS_MAX = 10;
const LABEL_CHARACTERS_MAX = 200;
const KEY_CHARACTERS_MAX = 16;

/** The keys of options that bring none: keycaps, which people can react with. */
const keycap = (index: number) => (index === 9 ? "🔟" : `${index + 1}\u{fe0f}\u{20e3}`);

/** Takes the options out of a question's parts. */
export function optionsOf(parts: readonly ContentPart[]): {
  readonly options: readonly QuestionOption[];
  readonly rest: readonly ContentPart[];
} {
  for (const [index, part] of parts.entries()) {
    const options = part.kind === "data" ? readOptions(part.json) : undefined;
    if (options !== undefined) return { options, rest: parts.toSpliced(index, 1) };
  }
  return { options: [], rest: parts };
}

function readOptions(json: string): readonly QuestionOption[] | undefined {
  const data = JSON.parse(json) as { options?: unknown } | null;
  const listed = typeof data === "object" && data !== null ? data.options : undefined;
  if (!Array.isArray(listed) || listed.length === 0 || listed.length > OPTIONS_MAX) return undefined;
  const options = listed.map(readOption);
  if (!options.every((option) => option !== undefined)) return undefined;
  return new Set(options.map(({ key }) => key)).size === options.length ? options : undefined;
}

function readOption(listed: unknown, index: number): QuestionOption | undefined {
  const {
    id,
    label,
    key = id,
  } = (typeof listed === "string" ? { label: listed } : (listed ?? {})) as {
    id?: unknown;
    key?: unknown;
    label?: unknown;
  };
  if (!isText(label, LABEL_CHARACTERS_MAX)) return undefined;
  if (key !== undefined && !isText(key, KEY_CHARACTERS_MAX)) return undefined;
  // A number of the agent's own is shown as the keycap that people react with.
  const number = /^[1-9]$/.test(key ?? "") ? Number(key) - 1 : undefined;
  return { key: number === undefined ? (key ?? keycap(index)).trim() : keycap(number), value: label.trim() };
}

/** One line that says something. */
function isText(value: unknown, charactersMax: number): value is string {
  return (
    typeof value === "string" &&
    value.trim() !== "" &&
    value.length <= charactersMax &&
    !/[\p{Cc}]/u.test(value)
  );
}
