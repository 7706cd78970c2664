// What an organisation needs to sign a removal, as its operator would have got it ready: a key of its own, the
// counterparty's public key as it was handed over, and a trust file that names both.
// Invariants: a key is made once and never leaves its folder; nothing of it is under version control.
import { copyFileSync, existsSync, mkdirSync } from "node:fs";
import { join, relative } from "node:path";
import type { z } from "zod";
import type { TrustFile } from "../../src/records/format/trust.ts";
import { createKeyPair } from "../../src/records/sign/key-pair.ts";
import type { Lab } from "../lab.ts";
import { COMPLETE_ORGANISATIONS, type CompleteOrganisation } from "../organisations.ts";

/** Of every organisation's key folder. */
export const RECORDS_PRIVATE_KEY = "records-key.pem";
const RECORDS_PUBLIC_KEY = "records-key.pub.pem";

/** Makes the keys that are missing, and hands the public halves over. */
export function provisionRecordsKeys(lab: Lab): void {
  for (const organisation of COMPLETE_ORGANISATIONS) {
    const { recordsKeys } = lab.paths.organisation(organisation);
    mkdirSync(recordsKeys, { recursive: true, mode: 0o700 });
    if (!existsSync(join(recordsKeys, RECORDS_PRIVATE_KEY))) createKeyPair(recordsKeys);
  }
  for (const organisation of COMPLETE_ORGANISATIONS) {
    const { recordsPublicKey } = lab.paths.organisation(organisation);
    for (const of of COMPLETE_ORGANISATIONS) {
      copyFileSync(join(lab.paths.organisation(of).recordsKeys, RECORDS_PUBLIC_KEY), recordsPublicKey(of));
    }
  }
}

/** Both parties' keys, as an organisation pins them. Pure. */
export function trustFile(lab: Lab, organisation: CompleteOrganisation): z.input<typeof TrustFile> {
  const { recordsKeys, recordsPublicKey } = lab.paths.organisation(organisation);
  return {
    version: 1,
    parties: COMPLETE_ORGANISATIONS.map((of) => ({
      organisation: lab.serverNames[of],
      keys: [{ file: relative(recordsKeys, recordsPublicKey(of)) }],
    })),
  };
}
