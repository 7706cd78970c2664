// Brings the folders of all organisations up to date: secrets, keys, certificates, configuration, and the
// control repositories. Invariants: secrets and keys are made once and kept; running it again changes
// nothing; what somebody edited is left as it is, and reported; what admits somebody comes from the
// repository alone, by the reconciler's own code.
import { cpSync, existsSync, mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { stringify } from "yaml";
import { BridgeConfigFile } from "../../src/bridge/config.ts";
import { renderRegistration } from "../../src/bridge/setup/registration.ts";
import { generateCardKey } from "../../src/cards/signing-keys.ts";
import type { Clock, Random } from "../../src/domain/clock.ts";
import { generateSigningKeys } from "../../src/issuer/signing-keys.ts";
import { PRIVATE, PUBLIC, readIfPresent, writeWhole } from "../../src/runtime/write-file.ts";
import { type ConfigurationFile, keepSecret, randomSecret, writeConfiguration } from "../files.ts";
import type { Lab } from "../lab.ts";
import { CLONE } from "../layout.ts";
import {
  COMPLETE_ORGANISATIONS,
  type CompleteOrganisation,
  clientIds,
  partnerOf,
  WITNESS,
} from "../organisations.ts";
import type { LabPrograms } from "../programs.ts";
import { openAuthority } from "./certificates.ts";
import { editedRendered, placeRendered, provisionRepository } from "./control-repository.ts";
import { bridgeDatabaseUrl, readerDatabaseUrl } from "./databases.ts";
import { federationConfig, probeConfig, provisionRecordsKeys, trustFile, vantagesOf } from "./federation.ts";
import { provisionHomeserver } from "./homeserver.ts";
import { provisionOutsider } from "./outsider.ts";
import type { Identities, IdentityFacts } from "./registry.ts";
import { agentConfig, BRIDGE_SECRETS, bridgeConfig, gatewayConfig, issuerConfig } from "./services.ts";
import { HOMESERVER_FILES } from "./synapse-config.ts";

/** No anchors: configuration is refused when it has any. */
const YAML_STYLE = { lineWidth: 0, aliasDuplicateObjects: false } as const;

export interface ProvisionSources {
  readonly clock: Clock;
  readonly random: Random;
}

/** Files that somebody had edited by hand. */
export interface EditedFiles {
  readonly kept: readonly string[];
  /** Of those that the control repository says: they are now as it says again. */
  readonly putRight: readonly string[];
}

export async function provision(
  lab: Lab,
  programs: LabPrograms,
  sources: ProvisionSources,
): Promise<EditedFiles> {
  const { paths } = lab;
  const authority = await openAuthority(
    { certificate: paths.caCertificate, privateKey: paths.caKey },
    sources,
  );
  const files: ConfigurationFile[] = [];
  for (const organisation of lab.organisations) {
    files.push(...(await provisionHomeserver(lab, organisation, authority, sources)));
  }
  const identities = { "org-a": await identityOf(lab, "org-a"), "org-b": await identityOf(lab, "org-b") };
  for (const organisation of COMPLETE_ORGANISATIONS) {
    await provisionIssuer(lab, organisation, sources);
    await provisionReader(lab, organisation, sources);
    files.push(...(await provisionBridge(lab, organisation, sources)));
    files.push(...serviceFiles(lab, organisation, programs, identities));
    files.push(...federationFiles(lab, organisation, programs));
    provisionDocuments(lab, organisation);
  }
  await provisionOutsider(lab, sources);
  provisionRecordsKeys(lab);
  const kept = writeConfiguration(files, paths.manifest);
  const putRight: string[] = [];
  for (const organisation of COMPLETE_ORGANISATIONS) {
    const { federationConfig: configFile } = paths.organisation(organisation);
    putRight.push(...(await editedRendered(configFile)));
    await provisionRepository(lab, organisation, identities, sources);
    await placeRendered(configFile);
  }
  return { kept, putRight };
}

/** Makes the folder of the witness alone, while the others run. */
export async function provisionWitness(lab: Lab, sources: ProvisionSources): Promise<void> {
  const { paths } = lab;
  const authorityFiles = { certificate: paths.caCertificate, privateKey: paths.caKey };
  const authority = await openAuthority(authorityFiles, sources);
  const files = await provisionHomeserver(lab, WITNESS, authority, sources);
  for (const organisation of COMPLETE_ORGANISATIONS) files.push(...probeFiles(lab, organisation));
  writeConfiguration(files, paths.manifest);
}

/** A configuration file in YAML under a line that says whose it is. */
export function yamlFile(
  file: string,
  title: string,
  value: unknown,
  mode: number = PUBLIC,
): ConfigurationFile {
  return { file, text: `# ${title}\n${stringify(value, YAML_STYLE)}`, mode };
}

/** What partners are told of an organisation: the public half of its card key, and its server key's name. */
async function identityOf(lab: Lab, organisation: CompleteOrganisation): Promise<IdentityFacts> {
  const keyId = `${organisation}-card-1`;
  const text = await keepSecret(lab.paths.organisation(organisation).agentKey, async () => {
    const { privateJwk } = await generateCardKey(keyId);
    return privateJwk;
  });
  const { d: _private, ...jwk } = JSON.parse(text);
  const serverKey = readIfPresent(
    join(lab.paths.organisation(organisation).homeserver, HOMESERVER_FILES.signingKey),
  );
  const [algorithm, version] = (serverKey ?? "").split(" ");
  return { cardKey: { keyId, jwk }, serverKeyId: `${algorithm}:${version}` };
}

async function provisionIssuer(
  lab: Lab,
  organisation: CompleteOrganisation,
  { random }: ProvisionSources,
): Promise<void> {
  const paths = lab.paths.organisation(organisation);
  await keepSecret(paths.issuerKeys, async () => JSON.stringify(await generateSigningKeys(), null, 2));
  const clients = [
    clientIds.bridgeOf(organisation),
    clientIds.bridgeOf(partnerOf(organisation)),
    clientIds.applicant,
  ];
  for (const clientId of clients) {
    await keepSecret(paths.clientSecret(clientId), () => randomSecret(random));
  }
}

/** How federation control counts what a removal leaves in the homeserver's database. */
async function provisionReader(
  lab: Lab,
  organisation: CompleteOrganisation,
  { random }: ProvisionSources,
): Promise<void> {
  const { databaseUrl } = lab.paths.organisation(organisation);
  writeWhole(databaseUrl, `${await readerDatabaseUrl(lab, organisation, random)}\n`, PRIVATE);
}

async function provisionBridge(
  lab: Lab,
  organisation: CompleteOrganisation,
  { random }: ProvisionSources,
): Promise<ConfigurationFile[]> {
  const paths = lab.paths.organisation(organisation);
  const asToken = await keepSecret(paths.bridgeSecret(BRIDGE_SECRETS.asToken), () => randomSecret(random));
  const hsToken = await keepSecret(paths.bridgeSecret(BRIDGE_SECRETS.hsToken), () => randomSecret(random));
  for (const name of [BRIDGE_SECRETS.contentKeys, BRIDGE_SECRETS.storeKeys]) {
    await keepSecret(paths.bridgeSecret(name), () => random.bytes(32).toString("base64"));
  }
  writeWhole(
    paths.bridgeSecret(BRIDGE_SECRETS.databaseUrl),
    `${await bridgeDatabaseUrl(lab, organisation, random)}\n`,
    PRIVATE,
  );
  // The issuers' operators handed these over.
  for (const publisher of COMPLETE_ORGANISATIONS) {
    const issued = await keepSecret(
      lab.paths.organisation(publisher).clientSecret(clientIds.bridgeOf(organisation)),
      () => randomSecret(random),
    );
    writeWhole(paths.bridgeSecret(BRIDGE_SECRETS.clientSecretFor(publisher)), `${issued}\n`, PRIVATE);
  }
  const config = bridgeConfig(lab, organisation);
  return [
    yamlFile(paths.bridgeConfig, `The bridge of ${organisation}`, config),
    {
      file: paths.registration,
      text: renderRegistration(BridgeConfigFile.parse(config), { asToken, hsToken }),
      mode: PRIVATE,
    },
  ];
}

function serviceFiles(
  lab: Lab,
  organisation: CompleteOrganisation,
  programs: LabPrograms,
  identities: Identities,
): ConfigurationFile[] {
  const paths = lab.paths.organisation(organisation);
  return [
    yamlFile(
      paths.gatewayConfig,
      `The A2A gateway of ${organisation}`,
      gatewayConfig(lab, organisation, programs.envoy),
    ),
    yamlFile(paths.issuerConfig, `The token issuer of ${organisation}`, issuerConfig(lab, organisation)),
    yamlFile(
      paths.agentConfig,
      `The agent of ${organisation}`,
      agentConfig(lab, organisation, identities[organisation].cardKey.keyId),
    ),
  ];
}

function federationFiles(
  lab: Lab,
  organisation: CompleteOrganisation,
  programs: LabPrograms,
): ConfigurationFile[] {
  const { federationConfig: file, trustFile: trust } = lab.paths.organisation(organisation);
  const title = `Where the parts of ${organisation} stand that its registry's planes are applied to`;
  return [
    yamlFile(file, title, federationConfig(lab, organisation, programs)),
    yamlFile(
      trust,
      `Whose signatures ${organisation} takes, by the keys that were handed over`,
      trustFile(lab, organisation),
    ),
    ...probeFiles(lab, organisation),
  ];
}

function probeFiles(lab: Lab, organisation: CompleteOrganisation): ConfigurationFile[] {
  return vantagesOf(lab, organisation).map((as) =>
    yamlFile(
      lab.paths.organisation(organisation).probeFile(as),
      `How ${organisation} is looked at from outside, as ${as}`,
      probeConfig(lab, organisation, as),
    ),
  );
}

/** A copy of what the agent answers from: the project's own documents for org A, a handbook for org B. */
function provisionDocuments(lab: Lab, organisation: CompleteOrganisation): void {
  const target = lab.paths.organisation(organisation).agentDocuments;
  rmSync(target, { recursive: true, force: true });
  mkdirSync(target, { recursive: true });
  const isWanted = (source: string) => !source.endsWith(".json");
  if (organisation === "org-b") {
    cpSync(join(CLONE, "lab", "documents", organisation), target, { recursive: true });
    return;
  }
  cpSync(join(CLONE, "docs"), join(target, "docs"), { recursive: true, filter: isWanted });
  for (const name of ["README.md", "ARCHITECTURE.md"]) {
    if (existsSync(join(CLONE, name))) cpSync(join(CLONE, name), join(target, name));
  }
}
