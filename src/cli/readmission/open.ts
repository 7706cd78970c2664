// drawbridge readmission open: a removed partner is to come back, as a new one.
import { resolve } from "node:path";
import { NewIdentities } from "../../federation/readmission/new-identities.ts";
import { openReadmission as open } from "../../federation/readmission/open.ts";
import { readmissionStatus } from "../../federation/readmission/status.ts";
import { loadYaml } from "../../runtime/load-yaml.ts";
import { defineCommand } from "../lib/command.ts";
import { CONFIG, JSON_OPTION, PARTNER } from "../lib/options.ts";
import { print } from "../lib/output.ts";
import { nextCommand, nextLine, openReadmission, textOf } from "../lib/readmission.ts";

export const command = defineCommand({
  arguments: [PARTNER],
  options: [
    ["--approval <reference>", "where the contractual approval is filed", { required: true }],
    ["--new-identities <file>", "what the partner brings anew: its client, its keys", { required: true }],
    CONFIG.federation,
    JSON_OPTION,
  ],
  help: `
The partnership is new: everything that the partner's file pinned goes on its retired list and is refused from now
on, the new identities come in its place, and one record with the approval is committed. No plane is opened. The
file of new identities:
  version: 1
  azp: org-b-bridge-2
  clientSecret: {file: client-secrets/org-b-bridge-2}
  serverKeys: ["ed25519:a_9z8Y"]
  agents: {org-b-docs-qa: {cardIdentity: {keyId: org-b-card-2, jwk: {kty: EC, crv: P-256, x: …, y: …}}}}

Exit codes:
  0  opened, or open already with this approval and these identities
  2  unknown partner, or a file that is wrong or not the one it was opened with; nothing was changed
  4  a guard refused, named in brackets (not_removed, removal_open, retired_key, retired_client, fresh_secret,
     unknown_agent), or the head is refused; nothing was changed`,
  async run([partner], options) {
    const identities = loadYaml(NewIdentities, resolve(options.newIdentities));
    const context = await openReadmission(options);
    const { readmission, isNew } = await open(context, { partner, approval: options.approval, identities });
    const next = nextCommand(readmission, partner, options.config);
    print(
      options,
      { isNew, status: readmissionStatus(readmission), next: next ?? null },
      () => `${isNew ? "" : "It was open already.\n"}${textOf(readmission)}${nextLine(next)}`,
    );
  },
});
