// The statements that an organisation holds of a run, its own and the other's, with their signatures and
// evidence, in one file. Invariants: a signature and what it signs are written together; none is ever made
// anew or taken away; when each came is remembered beside it.
import { z } from "zod";
import { Envelope } from "../../../records/format/envelope.ts";
import { EvidenceItem } from "../../../records/format/evidence-item.ts";
import { Instant } from "../../../records/format/fields.ts";
import type { StageName } from "../../../records/format/stages.ts";
import type { TrustedParty } from "../../../records/format/trust.ts";
import { type HeldStatements, placeOfStatement, statementIn } from "../../../records/sign/removal-files.ts";
import type { Kept } from "../../../records/sign/sign-once.ts";
import { type Run, runFile } from "./run.ts";

const FILE = "held.json";

const HeldFile = z.strictObject({
  version: z.literal(1),
  envelopes: z.array(Envelope),
  evidence: z.array(EvidenceItem),
  /** By place and key ID: when that signature was made or came in. */
  since: z.record(z.string(), Instant),
});
export type Held = z.output<typeof HeldFile>;

export function readHeld(run: Run): Held {
  return (
    run.state.read(HeldFile, runFile(run.run, FILE)) ?? { version: 1, envelopes: [], evidence: [], since: {} }
  );
}

/** Keeps what is held now. */
export function writeHeld(run: Run, before: Held, { envelopes, evidence }: HeldStatements, at: string): Held {
  const since = { ...before.since };
  for (const envelope of envelopes) {
    const place = placeIn(envelope);
    for (const { keyid } of envelope.signatures) since[`${place} ${keyid}`] ??= at;
  }
  const held: Held = { version: 1, envelopes: [...envelopes], evidence: [...evidence], since };
  run.state.write(runFile(run.run, FILE), held);
  return held;
}

/** Adds an envelope, or puts it in the place of the same with fewer signatures. */
export function withEnvelope(held: HeldStatements, envelope: Envelope): HeldStatements {
  const others = held.envelopes.filter((one) => one.payload !== envelope.payload);
  return { ...held, envelopes: [...others, envelope] };
}

function placeIn(envelope: Envelope): string {
  const statement = statementIn(envelope);
  return statement === undefined ? "" : placeOfStatement(statement);
}

/** The envelope of a place, such as `a.test/room` or `completion`. */
export function envelopeAt({ envelopes }: HeldStatements, place: string): Envelope | undefined {
  return envelopes.find((envelope) => placeIn(envelope) === place);
}

/** Whether an organisation has signed an envelope. */
export function isSignedBy(
  envelope: Envelope | undefined,
  organisation: string,
  parties: readonly TrustedParty[],
): boolean {
  const keys = parties.find((party) => party.organisation === organisation)?.keys ?? [];
  return envelope?.signatures.some(({ keyid }) => keys.some(({ keyId }) => keyId === keyid)) === true;
}

/** When an organisation's signature on a place was made or came in. */
export function signedSince(
  { since }: Held,
  place: string,
  organisation: string,
  parties: readonly TrustedParty[],
): string | undefined {
  const keys = parties.find((party) => party.organisation === organisation)?.keys ?? [];
  return keys.map(({ keyId }) => since[`${place} ${keyId}`]).find((at) => at !== undefined);
}

// Where a run keeps each statement that it signs: made once, signed once (src/records/sign/sign-once.ts).

/** @param place one's own stage, the other organisation's, or the completion */
export function keptStatement(
  run: Run,
  place: `own-${StageName}` | `other-${StageName}` | "completion",
): Kept {
  const name = runFile(run.run, `statements/${place}.json`);
  return { read: () => run.state.readText(name), write: (text) => run.state.writeText(name, text) };
}
