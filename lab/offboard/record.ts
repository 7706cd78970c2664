// The contents of a signed removal record that the lab reports: its stages, its signers, and the waived
// entries.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import * as z from "zod";
import { readPublicKey } from "../../src/records/format/ecdsa-p256.ts";
import { OutOfReachEntry, RecordFile } from "../../src/records/format/statements.ts";
import type { Lab } from "../lab.ts";
import type { LabPaths } from "../layout.ts";
import { COMPLETE_ORGANISATIONS, type CompleteOrganisation } from "../organisations.ts";
import type { ClosedStage } from "./workflow.ts";

/** The signed records of a lab, sorted; a removal that was not completed has none. */
export function signedRecords(paths: Pick<LabPaths, "organisation">): readonly string[] {
  return COMPLETE_ORGANISATIONS.flatMap((name) => {
    const runs = join(paths.organisation(name).federationState, "offboarding");
    if (!existsSync(runs)) return [];
    return readdirSync(runs)
      .sort()
      .map((run) => join(runs, run, "record.json"))
      .filter((file) => existsSync(file));
  });
}

function readRecord(file: string): z.output<typeof RecordFile> {
  return RecordFile.parse(JSON.parse(readFileSync(file, "utf8")));
}

export interface Signer {
  /** Server name, as the record has it. */
  readonly organisation: string;
  readonly name: CompleteOrganisation;
  /** SHA-256 of the public key's DER form. */
  readonly keyId: string;
  readonly publicKeyFile: string;
}

/** The organisations whose signatures stand on the completion, with their public keys. */
export function signersOf(lab: Lab, recordFile: string): readonly Signer[] {
  const signed = new Set(readRecord(recordFile).completion.signatures.map(({ keyid }) => keyid));
  return COMPLETE_ORGANISATIONS.map((name): Signer => {
    const publicKeyFile = lab.paths.organisation(name).recordsPublicKey(name);
    const { keyId } = readPublicKey(readFileSync(publicKeyFile, "utf8"), publicKeyFile);
    return { organisation: lab.serverNames[name], name, keyId, publicKeyFile };
  }).filter(({ keyId }) => signed.has(keyId));
}

const Statement = z.object({
  predicate: z.object({
    out_of_reach: z.array(OutOfReachEntry),
    organisation: z.string(),
    stage: z.string(),
    opened_at: z.string(),
    closed_at: z.string(),
  }),
});

export interface RecordedStage extends Omit<ClosedStage, "planeNumber"> {
  readonly outOfReach: readonly z.output<typeof OutOfReachEntry>[];
}

/** The stages in the order of the record. */
export function stagesIn(recordFile: string, lab: Lab): readonly RecordedStage[] {
  return readRecord(recordFile).stages.map(({ payload }) => {
    const { predicate } = Statement.parse(JSON.parse(Buffer.from(payload, "base64").toString("utf8")));
    const organisation = COMPLETE_ORGANISATIONS.find(
      (name) => lab.serverNames[name] === predicate.organisation,
    );
    if (organisation === undefined) throw new TypeError("the record is about another organisation");
    return {
      ...{ organisation, stage: predicate.stage, outOfReach: predicate.out_of_reach },
      openedAt: Date.parse(predicate.opened_at),
      closedAt: Date.parse(predicate.closed_at),
    };
  });
}

export interface Waived {
  readonly organisation: CompleteOrganisation;
  readonly subject: string;
  /** Why it was out of reach. */
  readonly found: string;
  /** The role that waives it, and its reason. */
  readonly by: string;
  readonly reason: string;
}

/** What the stages list as out of reach and waived; each entry once for each organisation. */
export function waivedIn(
  stages: readonly Pick<RecordedStage, "organisation" | "outOfReach">[],
): readonly Waived[] {
  const found = new Map<string, Waived>();
  for (const { organisation, outOfReach } of stages) {
    for (const { subject, reason, waived_by: by, waiver } of outOfReach) {
      if (by === null) continue;
      const entry = { organisation, subject, found: reason, by, reason: waiver ?? "no reason" };
      found.set(JSON.stringify(entry), entry);
    }
  }
  return [...found.values()];
}
