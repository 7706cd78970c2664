// Brings the folders of all organisations up to date: secrets, keys, certificates, configuration, and the control
// repositories. Invariants: running it again changes nothing; a file that was edited by hand is left as it is and
// reported; files that admit somebody come from the control repository alone, by the reconciler's own code.
import { cpSync, existsSync, mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { stringify } from "yaml";
import { BridgeConfigFile } from "../../src/bridge/config.ts";
import { renderRegistration } from "../../src/bridge/setup/registration.ts";
import { PRIVATE, PUBLIC } from "../../src/runtime/write-file.ts";
import { type ConfigurationFile, keepSecret, writeConfiguration } from "../files.ts";
import { type Lab, SOURCES } from "../lab.ts";
import { CLONE } from "../layout.ts";
import { COMPLETE_ORGANISATIONS, type CompleteOrganisation, WITNESS } from "../organisations.ts";
import type { LabPrograms } from "../programs.ts";
import { openAuthority } from "./certificates.ts";
import { editedRendered, placeRendered, provisionRepository } from "./control-repository.ts";
import { BRIDGE_SECRETS, identityOf, provisionCredentials } from "./credentials.ts";
import { federationConfig, probeConfig, trustFile, vantagesOf } from "./federation.ts";
import { provisionHomeserver } from "./homeserver.ts";
import { agentConfig, bridgeConfig, gatewayConfig, issuerConfig } from "./services.ts";

/** Configuration that has anchors is refused. */
const YAML_STYLE = { lineWidth: 0, aliasDuplicateObjects: false } as const;

/** Files that were edited by hand. */
export interface EditedFiles {
  readonly kept: readonly string[];
  /** Those that the control repository renders: they are as it says again. */
  readonly restored: readonly string[];
}

export async function provision(lab: Lab, programs: LabPrograms): Promise<EditedFiles> {
  const { paths } = lab;
  const authority = await openLabAuthority(lab);
  const files: ConfigurationFile[] = [];
  for (const organisation of lab.organisations) {
    files.push(...(await provisionHomeserver(lab, organisation, authority)));
  }
  await provisionCredentials(lab);
  const identities = { "org-a": await identityOf(lab, "org-a"), "org-b": await identityOf(lab, "org-b") };
  for (const organisation of COMPLETE_ORGANISATIONS) {
    files.push(...(await bridgeFiles(lab, organisation)));
    files.push(...serviceFiles(lab, organisation, programs, identities[organisation].cardKey.keyId));
    files.push(...probeFiles(lab, organisation));
    provisionDocuments(lab, organisation);
  }
  const kept = writeConfiguration(files, paths.manifest);
  const restored: string[] = [];
  for (const organisation of COMPLETE_ORGANISATIONS) {
    const { federationConfig: configFile } = paths.organisation(organisation);
    restored.push(...(await editedRendered(configFile)));
    await provisionRepository(lab, organisation, identities);
    await placeRendered(configFile);
  }
  return { kept, restored };
}

/** Makes the folder of the witness alone, while the others run. */
export async function provisionWitness(lab: Lab): Promise<void> {
  const files = await provisionHomeserver(lab, WITNESS, await openLabAuthority(lab));
  for (const organisation of COMPLETE_ORGANISATIONS) files.push(...probeFiles(lab, organisation));
  writeConfiguration(files, lab.paths.manifest);
}

function openLabAuthority({ paths }: Lab) {
  return openAuthority({ certificate: paths.caCertificate, privateKey: paths.caKey }, SOURCES);
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

async function bridgeFiles(lab: Lab, organisation: CompleteOrganisation): Promise<ConfigurationFile[]> {
  const paths = lab.paths.organisation(organisation);
  const config = bridgeConfig(lab, organisation);
  const tokens = {
    asToken: await keepSecret(paths.bridgeSecret(BRIDGE_SECRETS.asToken)),
    hsToken: await keepSecret(paths.bridgeSecret(BRIDGE_SECRETS.hsToken)),
  };
  const registration = renderRegistration(BridgeConfigFile.parse(config), tokens);
  return [
    yamlFile(paths.bridgeConfig, `The bridge of ${organisation}`, config),
    { file: paths.registration, text: registration, mode: PRIVATE },
  ];
}

function serviceFiles(
  lab: Lab,
  organisation: CompleteOrganisation,
  programs: LabPrograms,
  cardKeyId: string,
): ConfigurationFile[] {
  const paths = lab.paths.organisation(organisation);
  const federationTitle = `Where the parts of ${organisation} stand that its registry's planes are applied to`;
  return [
    yamlFile(
      paths.gatewayConfig,
      `The A2A gateway of ${organisation}`,
      gatewayConfig(lab, organisation, programs.envoy),
    ),
    yamlFile(paths.issuerConfig, `The token issuer of ${organisation}`, issuerConfig(lab, organisation)),
    yamlFile(paths.agentConfig, `The agent of ${organisation}`, agentConfig(lab, organisation, cardKeyId)),
    yamlFile(paths.federationConfig, federationTitle, federationConfig(lab, organisation, programs)),
    yamlFile(
      paths.trustFile,
      `Whose signatures ${organisation} takes, by the keys that were handed over`,
      trustFile(lab, organisation),
    ),
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

/** Copies the documents that the agent answers from, the project's own for org A, a handbook for org B, and its icon. */
function provisionDocuments(lab: Lab, organisation: CompleteOrganisation): void {
  const { agentDocuments: target, agentIcon } = lab.paths.organisation(organisation);
  rmSync(target, { recursive: true, force: true });
  mkdirSync(target, { recursive: true });
  cpSync(join(CLONE, "lab", "icons", `${organisation}.png`), agentIcon);
  if (organisation === "org-b") {
    cpSync(join(CLONE, "lab", "documents", organisation), target, { recursive: true });
    return;
  }
  const filter = (source: string) => !/\.(?:json|png)$/.test(source);
  cpSync(join(CLONE, "docs"), join(target, "docs"), { recursive: true, filter });
  for (const name of ["README.md", "ARCHITECTURE.md"]) {
    if (existsSync(join(CLONE, name))) cpSync(join(CLONE, name), join(target, name));
  }
}
