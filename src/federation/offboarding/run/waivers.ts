// What could not be reached and is waived by somebody who answers for it. Invariant: a waiver names its
// subject exactly and has a reason; it counts only once it stands in a signed statement.
import { z } from "zod";
import { Identifier, Instant, Word } from "../../../records/format/fields.ts";
import { type Run, runFile } from "./run.ts";

const FILE = "waivers.json";

const Waiver = z.strictObject({ subject: Identifier, by: Identifier, reason: Word, at: Instant });
export type Waiver = z.output<typeof Waiver>;
const WaiversFile = z.strictObject({ version: z.literal(1), waivers: z.array(Waiver) });

export function readWaivers(run: Run): ReadonlyMap<string, Waiver> {
  const waivers = run.state.read(WaiversFile, runFile(run.run, FILE))?.waivers ?? [];
  return new Map(waivers.map((waiver) => [waiver.subject, waiver]));
}

export function keepWaiver(run: Run, waiver: Waiver): void {
  const waivers = new Map([...readWaivers(run), [waiver.subject, waiver]]);
  run.state.write(runFile(run.run, FILE), { version: 1, waivers: [...waivers.values()] });
}
