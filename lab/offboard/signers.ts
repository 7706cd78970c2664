// Who signed a record, and where an auditor of the lab gets the public keys.
import { readFileSync } from "node:fs";
import { readPublicKey } from "../../src/records/format/public-key.ts";
import { RecordFile } from "../../src/records/format/record-file.ts";
import type { Lab } from "../lab.ts";
import { COMPLETE_ORGANISATIONS, type CompleteOrganisation } from "../organisations.ts";

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
