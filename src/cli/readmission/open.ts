// drawbridge readmission open: retires all that was pinned of a removed partner, and takes in its new keys.
import { resolve } from "node:path";
import { NewIdentities, openReadmission as open } from "../../federation/readmission/readmission.ts";
import { loadYaml } from "../../runtime/load-yaml.ts";
import { defineCommand, OPTION, PARTNER, required } from "../lib/command.ts";
import { openReadmission, printDone } from "../lib/readmission.ts";

export const openCommand = defineCommand({
  arguments: [PARTNER],
  options: [
    required("--approval <reference>", "where the contractual approval is filed"),
    required("--new-identities <file>", "what the partner brings anew: its client, its keys"),
    OPTION.federation,
    OPTION.json,
  ],
  help: `
The partnership is new: everything that the partner's file pinned goes on its retired list and is refused from now
on, the new identities come in its place, and one record with the approval is committed. No plane is opened. Guards:
not_removed, removal_open, retired_key, retired_client, fresh_secret, unknown_agent. The file of new identities:
  version: 1
  azp: org-b-bridge-2
  clientSecret: {file: client-secrets/org-b-bridge-2}
  serverKeys: ["ed25519:a_9z8Y"]
  agents: {org-b-docs-qa: {cardIdentity: {keyId: org-b-card-2, jwk: {kty: EC, crv: P-256, x: …, y: …}}}}`,
  async run([partner], options) {
    const identities = loadYaml(NewIdentities, resolve(options.newIdentities));
    const context = await openReadmission(options);
    const { readmission, isNew } = await open(context, { partner, approval: options.approval, identities });
    const before = isNew ? "" : "It was open already.\n";
    printDone(options, readmission, partner, { isNew }, (status) => `${before}${status}`);
  },
});
