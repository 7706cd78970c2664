// Files for tests as an operator would write them: the sample organisation's registry, with changes; what a
// registry with given partners wants of one plane; and a complete private record.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseDocument } from "yaml";
import { type FederationConfig, FederationConfigFile } from "../../src/federation/config.ts";
import type { DesiredPlane, PlaneRender } from "../../src/federation/planes/plane.ts";
import { loadRegistry } from "../../src/federation/registry/load.ts";
import { Organisation } from "../../src/federation/registry/organisation.ts";
import { Partner, type PartnerEntry } from "../../src/federation/registry/partner.ts";
import { RegistryError, type RegistryProblem } from "../../src/federation/registry/problems.ts";
import { writeFile } from "./temporary.ts";

/** The sample organisation: tests/fixtures/federation/harbour. */
export const HARBOUR = fileURLToPath(new URL("../fixtures/federation/harbour/", import.meta.url));

/** Every file below a folder's registry/, by its path in the repository. */
export function registryFiles(directory = HARBOUR): Map<string, string> {
  return new Map(
    readdirSync(`${directory}/registry`, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => {
        const file = `${entry.parentPath}/${entry.name}`;
        return [file.slice(file.indexOf("registry/", directory.length)), readFileSync(file, "utf8")];
      }),
  );
}

/** The sample organisation with some of its files put in place of, or beside, the others. */
export function harbourWith(changes: ReadonlyMap<string, string | null>): Map<string, string> {
  const files = registryFiles();
  for (const [path, text] of changes) {
    if (text === null) files.delete(path);
    else files.set(path, text);
  }
  return files;
}

/** One file of the sample organisation with a line of text put before its line `line`. */
export function withLine(path: string, line: number, text: string): Map<string, string> {
  const lines = (registryFiles().get(path) ?? "").split("\n");
  lines.splice(line - 1, 0, text);
  return new Map([[path, lines.join("\n")]]);
}

/** One file of the sample organisation with a piece of its text replaced; the piece must be there. */
export function withText(path: string, from: string, to: string): Map<string, string> {
  const text = registryFiles().get(path) ?? "";
  if (!text.includes(from)) throw new TypeError(`${path} has no ${JSON.stringify(from)}`);
  return new Map([[path, text.replace(from, () => to)]]);
}

/** Everything wrong with the sample organisation after changes; empty when it loads. */
export function problemsOf(changes: ReadonlyMap<string, string | null>): readonly RegistryProblem[] {
  try {
    loadRegistry(harbourWith(changes));
    return [];
  } catch (error) {
    if (error instanceof RegistryError) return error.problems;
    throw error;
  }
}

export interface DesiredPartner {
  readonly serverName: string;
  readonly contained?: boolean;
  readonly planes?: Readonly<Record<string, "open" | "closed">>;
}

export function partnerEntry(partner: DesiredPartner, index = 0): PartnerEntry {
  const name = `partner-${index}`;
  const value = {
    version: 1,
    classification: "internal",
    azp: name,
    issuer: "https://issuer.test",
    ...partner,
  };
  return { name, file: `registry/partners/${name}.yaml`, partner: Partner.parse(value) };
}

/** A plane as rendered from a registry, or with other text in place of its one file. */
export function desiredPlane(
  render: PlaneRender,
  own: string,
  partners: readonly DesiredPartner[],
  text?: string,
): DesiredPlane {
  const registry = {
    organisation: Organisation.parse({
      version: 1,
      serverName: own,
      quotas: { default: { perMinute: 10, burst: 10 } },
    }),
    partners: partners.map(partnerEntry),
  };
  const files = render.render(registry);
  return {
    revision: "0".repeat(40),
    registry,
    files: text === undefined ? files : new Map([...files.keys()].map((path) => [path, text])),
  };
}

/** A deployment of which the homeserver is at `url`; its secrets are written into `directory`. */
export function deployment(
  directory: string,
  url: string,
  change: Readonly<Record<string, Readonly<Record<string, unknown>>>> = {},
): FederationConfig {
  writeFile(join(directory, "operator-token"), "operator\n", 0o600);
  writeFile(join(directory, "status-token"), "status\n", 0o600);
  const config = FederationConfigFile.parse({
    version: 1,
    repository: { path: "repository" },
    homeserver: { url, operatorToken: { file: "operator-token" }, signingKeyFile: "signing.key" },
    transport: {
      includeFile: "include/transport.yaml",
      restart: { command: ["true"] },
      ...change["transport"],
    },
    border: {
      policyFile: "border/policy.json",
      statusToken: { file: "status-token" },
      violationsFile: "violations.jsonl",
      ...change["border"],
    },
  });
  return { ...config, directory, file: join(directory, "federation.yaml") };
}

export function readOrUndefined(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
}

export const COMPLETE_RECORD = `# Private offboarding record
version: 1
partner:
  legalEntity: Lighthouse Services GmbH
  serverName: matrix.lighthouse.example:8448
revocation:
  kind: full
  trigger: contract_end
security:
  incidentOwner: security-officer
  containmentAuthority: head-of-operations
technical:
  owner: S-1204 # the on-call engineer of that night
  rollbackOwner: S-1377
change:
  reference: https://tickets.example.org/CHG-0012345
  rollback: CHG-0012345#rollback
affected:
  rooms: ["!quay:harbour.example", "!Zk3Wz9Vb2nQ8xR4tY6uP1sD5fG7hJ0kL3aC9eX2mB4q"]
  routes: [/agents/docs-qa]
  agents: [docs-qa]
  oidcClient: lighthouse-bridge
maintenance:
  from: 2026-01-31T03:00:00Z
  until: 2026-01-31T05:00:00Z
  expectedInterruption: 30s
duties:
  retention: { state: kept, until: 2031-12-31 }
  purge:
    remoteMedia: purge
    quarantinedMedia: keep
    rooms:
      - { room: "!quay:harbour.example", how: room }
  backups: { owner: backup-operator, expireBy: 2026-07-31 }
attestation: { own: security-officer, partner: security-officer }
readmission: { possible: true, owner: head-of-operations, conditions: [new-contract, new-keys] }
`;

/** The complete record with one field set. */
export function recordWith(path: string, value: unknown): string {
  const document = parseDocument(COMPLETE_RECORD);
  document.setIn(path.split("."), value);
  return document.toString({ lineWidth: 0 });
}

/** The complete record as JSON, changed. */
export function recordJson(change: (record: Record<string, unknown>) => void = () => undefined): string {
  const record = parseDocument(COMPLETE_RECORD).toJS() as Record<string, unknown>;
  change(record);
  return `${JSON.stringify(record, null, 2)}\n`;
}
