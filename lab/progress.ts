// What a task reports while it works, on standard error: one line a step; on a terminal also the current
// step.
import type { Clock } from "../src/domain/clock.ts";

export interface Progress {
  /** The step at hand. Shown on a terminal only, and replaced by the next line. */
  doing(what: string): void;
  /** A step that has ended well. */
  done(what: string, tookMs?: number): void;
  /** Something worth knowing that is no step. */
  note(text: string): void;
  /** Milliseconds since the start. */
  elapsedMs(): number;
}

export interface Palette {
  readonly bold: (text: string) => string;
  readonly dim: (text: string) => string;
  readonly green: (text: string) => string;
  readonly red: (text: string) => string;
  readonly cyan: (text: string) => string;
}

const code = (open: number, close: number) => (text: string) => `\u001b[${open}m${text}\u001b[${close}m`;
const plain = (text: string) => text;

const COLOURS: Palette = {
  bold: code(1, 22),
  dim: code(2, 22),
  green: code(32, 39),
  red: code(31, 39),
  cyan: code(36, 39),
};
export const NO_COLOURS: Palette = { bold: plain, dim: plain, green: plain, red: plain, cyan: plain };

/** Colours for a stream: on a terminal, unless NO_COLOR asks for none. */
export function paletteFor(
  stream: { readonly isTTY?: boolean },
  environment: NodeJS.ProcessEnv = process.env,
): Palette {
  const { NO_COLOR: refused } = environment;
  return stream.isTTY === true && (refused === undefined || refused === "") ? COLOURS : NO_COLOURS;
}

/** A duration for people: `84 ms`, `2.1 s`. */
export function formatDuration(ms: number): string {
  return ms < 1_000 ? `${Math.round(ms)} ms` : `${(ms / 1_000).toFixed(1)} s`;
}

export function progressOn(
  stream: NodeJS.WriteStream,
  clock: Clock,
  palette: Palette = paletteFor(stream),
): Progress {
  const startedAt = clock.now();
  const isTerminal = stream.isTTY === true;
  let pending = "";
  const line = (text: string) => {
    stream.write(`${isTerminal && pending !== "" ? "\r\u001b[K" : ""}${text}\n`);
    pending = "";
  };
  const stamp = () => palette.dim(`${((clock.now() - startedAt) / 1_000).toFixed(1).padStart(5)} s`);
  return {
    doing(what) {
      if (!isTerminal || what === pending) return;
      const width = Math.max((stream.columns ?? 80) - 1, 20);
      stream.write(`\r\u001b[K${palette.dim(`        … ${what}`.slice(0, width))}`);
      pending = what;
    },
    done(what, tookMs) {
      const took = tookMs === undefined ? "" : palette.dim(` (${formatDuration(tookMs)})`);
      line(`${stamp()} ${palette.green("✓")} ${what}${took}`);
    },
    note(text) {
      line(`${stamp()}   ${text}`);
    },
    elapsedMs: () => clock.now() - startedAt,
  };
}
