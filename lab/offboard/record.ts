// The signed records of removals that a lab keeps: where each side's deployment has put them.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { OutOfReachEntry } from "../../src/records/format/predicate-fields.ts";
import { readPublicKey } from "../../src/records/format/public-key.ts";
import { RecordFile } from "../../src/records/format/record-file.ts";
import type { Lab } from "../lab.ts";
import type { LabPaths } from "../layout.ts";
import { COMPLETE_ORGANISATIONS, type CompleteOrganisation } from "../organisations.ts";

/** Files, sorted; those of removals that were not completed have none. */
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

// Who signed a record, and where an auditor of the lab gets the public keys.

export interface Signer {
  /** Server name, as the record has it. */
  readonly organisation: string;
  readonly name: CompleteOrganisation;
  /** SHA-256 of the public key's DER form. */
  readonly keyId: string;
  readonly publicKeyFile: string;
}

/** Those of both organisations whose signatures stand on the completion. */
export function signersOf(lab: Lab, recordFile: string): readonly Signer[] {
  const { completion } = RecordFile.parse(JSON.parse(readFileSync(recordFile, "utf8")));
  const signed = new Set(completion.signatures.map(({ keyid }) => keyid));
  return COMPLETE_ORGANISATIONS.map((name): Signer => {
    const publicKeyFile = lab.paths.organisation(name).recordsPublicKey(name);
    const { keyId } = readPublicKey(readFileSync(publicKeyFile, "utf8"), publicKeyFile);
    return { organisation: lab.serverNames[name], name, keyId, publicKeyFile };
  }).filter(({ keyId }) => signed.has(keyId));
}

// What no operator could reach, and somebody answers for, as the stages of a record have it. Pure.

export interface Waived {
  readonly organisation: CompleteOrganisation;
  readonly subject: string;
  /** Why it was out of reach. */
  readonly found: string;
  /** The role that answers for it, and why it may. */
  readonly by: string;
  readonly reason: string;
}

/** Of a stage's predicate, what is read here. */
export const OutOfReach = z.object({ outOfReach: z.array(OutOfReachEntry) });

/** Each thing once for each organisation, however many stages name it. */
export function waivedIn(
  stages: readonly (z.output<typeof OutOfReach> & { readonly organisation: CompleteOrganisation })[],
): readonly Waived[] {
  const found = new Map<string, Waived>();
  for (const { organisation, outOfReach } of stages) {
    for (const { subject, reason, waivedBy, waiver } of outOfReach) {
      if (waivedBy === null) continue;
      const one: Waived = {
        organisation,
        subject,
        found: reason,
        by: waivedBy,
        reason: waiver ?? "no reason",
      };
      found.set(JSON.stringify(one), one);
    }
  }
  return [...found.values()];
}
