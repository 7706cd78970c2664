// An agent's answer as text, assembled from the updates of its task. Invariants: artifacts and parts keep their order;
// the chunks of one artifact are joined as they came; no more than the allowed bytes are kept, where each artifact and
// each part has a cost besides its text, so that their number is bounded too; nothing is logged.
import type { Answer } from "../matrix/answer-events.ts";
import { type AnswerFile, fileName } from "../matrix/files.ts";
import { plainLine } from "../matrix/markdown.ts";
import { A2aFailure } from "./a2a/classify-failure.ts";
import type { ArtifactView, ContentPart, Phase, TaskUpdate } from "./a2a/protocol.ts";

const PART_SEPARATOR = "\n\n";
/** Bytes that a part or an artifact counts besides its text, about what it takes in memory. */
const PART_BYTES = 64;
const MEDIA_TYPE_CHARACTERS_MAX = 100;

function rendered(part: Exclude<ContentPart, { kind: "file" }>): string {
  switch (part.kind) {
    case "text":
      return part.text;
    case "data":
      return `\`\`\`json\n${part.json}\n\`\`\``;
    case "link":
      return `${label(part)}: ${part.url}`;
  }
}

function label(part: { name: string; mediaType: string }): string {
  const name = part.name === "" ? "Attachment" : part.name;
  return part.mediaType === "" ? name : `${name} (${part.mediaType})`;
}

const shownIn = (parts: readonly ContentPart[]) => parts.filter((part) => part.kind !== "file");
const filesIn = (parts: readonly ContentPart[]) => parts.filter((part) => part.kind === "file");
const textOf = (parts: readonly ContentPart[]) => clean(shownIn(parts).map(rendered).join(PART_SEPARATOR));

export function missingFile({ name, mediaType, content }: AnswerFile): string {
  const shown = label({
    name: name === "" ? "" : fileName(name),
    mediaType: plainLine(mediaType, MEDIA_TYPE_CHARACTERS_MAX),
  });
  return clean(`${shown}, ${content.length} bytes: sent as a file, which is not shown here.`);
}

/** Bytes of what is kept of a part. Data may be many times as long as it came, by its indentation. */
function bytesOf(part: ContentPart): number {
  if (part.kind !== "file") return Buffer.byteLength(rendered(part));
  return part.content.length + Buffer.byteLength(part.name) + Buffer.byteLength(part.mediaType);
}

/** The answer that parts beside each other make, such as a message's. @throws A2aFailure `too_large` */
export function answerOf(parts: readonly ContentPart[], bytesMax: number): Answer {
  if (parts.reduce((sum, part) => sum + bytesOf(part), 0) > bytesMax) throw new A2aFailure("too_large");
  return { text: textOf(parts), mediaType: commonMediaType(parts), files: filesIn(parts) };
}

/** The media type that all parts agree on; undefined when one is something else than text. */
function commonMediaType(parts: readonly ContentPart[]): string | undefined {
  const types = new Set(shownIn(parts).map((part) => (part.kind === "text" ? part.mediaType : "")));
  const [only] = types;
  return types.size === 1 && only !== "" ? only : undefined;
}

// A homeserver refuses NUL and lone surrogates in an event.
function clean(text: string): string {
  return text.toWellFormed().replaceAll("\0", "\u{fffd}");
}

/** One artifact as it grows. Counted as it grows too: an agent may send it in very many chunks. */
interface GrowingArtifact {
  readonly parts: ContentPart[];
  bytes: number;
}

export class AnswerAssembly {
  readonly #bytesMax: number;
  readonly #artifacts = new Map<string, GrowingArtifact>();
  #statusParts: readonly ContentPart[] = [];
  #bytes = 0;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  /**
   * Returns the phase of the task, as far as the update says. @throws A2aFailure `too_large`
   * @param streams the agent streams, so a whole task's text parts are the chunks it has appended
   */
  take(update: TaskUpdate, streams: boolean): Phase {
    if (update.kind === "artifact") {
      this.#add(update.artifact, update.append, update.append);
      return "open";
    }
    if (update.kind === "task") {
      this.#artifacts.clear();
      this.#bytes = 0;
      for (const artifact of update.artifacts) this.#add(artifact, false, streams);
    }
    this.#statusParts = update.parts;
    return update.phase;
  }

  /** The artifacts, else what the agent said with its last status; it may be empty. @throws A2aFailure `too_large` */
  answer(): Answer {
    const artifacts = [...this.#artifacts.values()].map(({ parts }) => parts);
    const texts = artifacts.map(textOf).filter((text) => text.trim() !== "");
    const files = filesIn(artifacts.flat());
    if (texts.length === 0 && files.length === 0) return answerOf(this.#statusParts, this.#bytesMax);
    return { text: texts.join(PART_SEPARATOR), mediaType: commonMediaType(artifacts.flat()), files };
  }

  /** @param chunked a text goes on where the last one ended */
  #add({ artifactId, parts }: ArtifactView, appends: boolean, chunked: boolean): void {
    const known = this.#artifacts.get(artifactId);
    const begun: GrowingArtifact = { parts: [], bytes: PART_BYTES + Buffer.byteLength(artifactId) };
    const artifact = (appends ? known : undefined) ?? begun;
    this.#artifacts.set(artifactId, artifact);
    this.#bytes -= known?.bytes ?? 0;
    for (const part of parts) {
      artifact.bytes += bytesOf(part);
      const last = artifact.parts.at(-1);
      if (chunked && last?.kind === "text" && part.kind === "text") {
        artifact.parts[artifact.parts.length - 1] = { ...last, text: last.text + part.text };
      } else {
        artifact.parts.push(part);
        artifact.bytes += PART_BYTES;
      }
    }
    this.#bytes += artifact.bytes;
    if (this.#bytes > this.#bytesMax) throw new A2aFailure("too_large");
  }
}
