// Whom an auditor trusts (published as docs/reference/schemas/records-trust.schema.json). Invariants: an organisation
// stands once; every key is a P-256 public key; what is expected of the record may be stated, so that the right record
// of the wrong removal is noticed.
import { dirname, resolve } from "node:path";
import * as z from "zod";
import { loadYaml } from "../../runtime/load-yaml.ts";
import { readInput } from "../../runtime/read-input.ts";
import { readPublicKey } from "./ecdsa-p256.ts";
import { OrganisationName, PARTIES, RunId } from "./fields.ts";

const Text = z.string().min(1);
const KeySource = z.union([z.strictObject({ file: Text }), z.strictObject({ text: Text })]);

export const TrustFile = z.strictObject({
  version: z.literal(1),
  parties: z
    .array(z.strictObject({ organisation: OrganisationName, keys: z.array(KeySource).min(1) }))
    .min(1)
    .refine((parties) => new Set(parties.map(({ organisation }) => organisation)).size === parties.length, {
      error: "an organisation stands twice; list all its keys in one place",
    }),
  /** What the record must be about; a record of anything else does not verify. */
  expect: z.strictObject({ ...PARTIES, run: RunId.optional() }).optional(),
});

export type Trust = Readonly<ReturnType<typeof loadTrust>>;
export type TrustedParty = Readonly<Trust["parties"][number]>;

/** The organisation whose pinned key this is. */
export function ownerOf(keyid: string, parties: readonly TrustedParty[]): string | undefined {
  return parties.find(({ keys }) => keys.some(({ keyId }) => keyId === keyid))?.organisation;
}

/** Reads a trust file and the keys that it names. @throws DrawbridgeError `config_unreadable` or `config_invalid` */
export function loadTrust(file: string) {
  const { parties, expect } = loadYaml(TrustFile, file);
  return {
    parties: parties.map(({ organisation, keys }) => {
      const read = keys.map((source) => {
        if ("text" in source) return readPublicKey(source.text, `a key of ${organisation} in ${file}`);
        const path = resolve(dirname(file), source.file);
        const pem = readInput(path, "Check the path, which is relative to the trust file.");
        return readPublicKey(pem.toString("utf8"), path);
      });
      // A key that is listed twice is one key.
      return { organisation, keys: [...new Map(read.map((key) => [key.keyId, key])).values()] };
    }),
    ...(expect !== undefined && { expect }),
  };
}
