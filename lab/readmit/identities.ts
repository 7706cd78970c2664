// The new identities with which a partner is readmitted: a card key and a client that were never used before, and the
// file that names them at the organisation that readmits it.
// Invariants: every name is new; a secret is made once and handed over through the file system alone; an organisation's
// pin of its own agent follows the agent's new key.
import { join, relative } from "node:path";
import { stringify } from "yaml";
import * as z from "zod";
import { generateCardKey } from "../../src/cards/sign.ts";
import type { NewIdentities } from "../../src/federation/readmission/readmission.ts";
import { editYaml } from "../../src/runtime/edit-yaml.ts";
import { PRIVATE, PUBLIC, writeWhole } from "../../src/runtime/write-file.ts";
import { changeRegistry } from "../configuration/control-repository.ts";
import { agentName } from "../endpoints.ts";
import { changeConfiguration, keepSecret } from "../files.ts";
import type { Lab } from "../lab.ts";
import {
  AGENT,
  COMPLETE_ORGANISATIONS,
  type CompleteOrganisation,
  clientIds,
  partnerOf,
  unitName,
} from "../organisations.ts";
import { supervisorClient } from "../supervisor/client.ts";

/** The public half of an agent's new card key. */
export interface NewCardKey {
  readonly keyId: string;
  readonly jwk: { readonly kty: "EC"; readonly crv: "P-256"; readonly x: string; readonly y: string };
}

const CardPoint = z.object({ x: z.string(), y: z.string() });

/** The client ID of an organisation's bridge at its partner, in its n-th partnership. */
export function clientIn(organisation: CompleteOrganisation, generation: number): string {
  return `${clientIds.bridgeOf(organisation)}-${generation}`;
}

/** Gives an agent a new card key, publishes it, and pins it at home. The agent restarts. */
export async function rotateCardKey(
  lab: Lab,
  organisation: CompleteOrganisation,
  generation: number,
): Promise<NewCardKey> {
  const { agentConfig, agentKey } = lab.paths.organisation(organisation);
  const keyId = `${organisation}-card-${generation}`;
  const made = await keepSecret(
    `${agentKey}-${generation}`,
    async () => (await generateCardKey(keyId)).privateJwk,
  );
  const { x, y } = CardPoint.parse(JSON.parse(made));
  const fresh: NewCardKey = { keyId, jwk: { kty: "EC", crv: "P-256", x, y } };
  await changeRegistry(
    lab,
    organisation,
    `Publish and pin ${keyId}, our own agent's new card key`,
    (registry) => {
      const file = "registry/organisation.yaml";
      const edits = [
        { path: ["agents", AGENT, "cardKeys"], value: [fresh] },
        { path: ["consumes", AGENT, "cardIdentity"], value: fresh },
      ];
      return new Map([...registry, [file, editYaml(registry.get(file) ?? "", edits)]]);
    },
  );
  writeWhole(agentKey, `${made}\n`, PRIVATE);
  changeConfiguration(agentConfig, ["signing", "keyId"], keyId, lab.paths.manifest);
  await supervisorClient(lab).execute({ action: "restart", unit: unitName(organisation, "agent") });
  return fresh;
}

/**
 * Makes the new clients' secrets, hands them over, and writes the file with the new identities.
 * @returns the file for `drawbridge readmission open`
 */
export async function writeNewIdentities(
  lab: Lab,
  organisation: CompleteOrganisation,
  generation: number,
  keys: Readonly<Record<CompleteOrganisation, NewCardKey>>,
): Promise<string> {
  const partner = partnerOf(organisation);
  const own = lab.paths.organisation(organisation);
  const client = clientIn(partner, generation);
  const ourClient = clientIn(organisation, generation);
  const secretName = `at-${partner}-${generation}.secret`;
  for (const issuer of COMPLETE_ORGANISATIONS) {
    const holder = partnerOf(issuer);
    const id = clientIn(holder, generation);
    const issued = await keepSecret(lab.paths.organisation(issuer).clientSecret(id));
    const held = lab.paths.organisation(holder).bridgeClientSecret(`at-${issuer}-${generation}.secret`);
    writeWhole(held, `${issued}\n`, PRIVATE);
  }
  const fresh: z.input<typeof NewIdentities> = {
    version: 1,
    azp: client,
    clientSecret: { file: relative(own.issuer, own.clientSecret(client)) },
    agents: {
      [agentName(organisation, partner)]: {
        cardIdentity: keys[partner],
        clientId: ourClient,
        clientSecret: { file: relative(own.bridge, own.bridgeClientSecret(secretName)) },
      },
    },
  };
  const file = join(own.federation, `fresh-${partner}-${generation}.yaml`);
  writeWhole(
    file,
    `# The new identities of ${partner}\n${stringify(fresh, { lineWidth: 0, aliasDuplicateObjects: false })}`,
    PUBLIC,
  );
  // Probes as the partner use its new client from now on.
  const probe = own.probeFile(partner);
  const as = { clientId: client, "clientSecret.file": relative(own.federation, own.clientSecret(client)) };
  for (const [member, value] of Object.entries(as)) {
    changeConfiguration(probe, ["as", "client", ...member.split(".")], value, lab.paths.manifest);
  }
  return file;
}
