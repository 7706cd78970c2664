// Where a run keeps each statement that it signs: made once, signed once (src/records/sign/sign-once.ts).

import type { StageName } from "../../../records/format/stages.ts";
import type { Kept } from "../../../records/sign/sign-once.ts";
import { type Run, runFile } from "./run.ts";

/** @param place one's own stage, the other organisation's, or the completion */
export function keptStatement(
  run: Run,
  place: `own-${StageName}` | `other-${StageName}` | "completion",
): Kept {
  const name = runFile(run.run, `statements/${place}.json`);
  return { read: () => run.state.readText(name), write: (text) => run.state.writeText(name, text) };
}
