// What org C holds: a client that no issuer knows, and a key of its own that no gateway trusts.
import { join } from "node:path";
import { generateCardKey } from "../../src/cards/signing-keys.ts";
import { PRIVATE, writeWhole } from "../../src/runtime/write-file.ts";
import { keepSecret, randomSecret } from "../files.ts";
import type { Lab } from "../lab.ts";
import { COMPLETE_ORGANISATIONS, type CompleteOrganisation, clientIds } from "../organisations.ts";
import type { ProvisionSources } from "./provision.ts";

export function outsiderFiles(lab: Lab) {
  const directory = lab.paths.organisation("org-c").outsider;
  return {
    /** Secret of a client that nobody ever registered. */
    unknownClientSecret: join(directory, "secrets", `${clientIds.bridgeOf("org-c")}.secret`),
    /** Secret of the client that an issuer knows and no gateway admits. */
    applicantSecret: (issuer: CompleteOrganisation) =>
      join(directory, "secrets", `${clientIds.applicant}-${issuer}.secret`),
    tokenKey: join(directory, "secrets", "token-signing-key.json"),
  };
}

export async function provisionOutsider(lab: Lab, { random }: ProvisionSources): Promise<void> {
  const files = outsiderFiles(lab);
  await keepSecret(files.unknownClientSecret, () => randomSecret(random));
  await keepSecret(files.tokenKey, async () => (await generateCardKey("org-c-tokens-1")).privateJwk);
  for (const issuer of COMPLETE_ORGANISATIONS) {
    const issued = await keepSecret(lab.paths.organisation(issuer).clientSecret(clientIds.applicant), () =>
      randomSecret(random),
    );
    writeWhole(files.applicantSecret(issuer), `${issued}\n`, PRIVATE);
  }
}
