// What one revision wants of a plane, for tests of what applies it: a registry with the given partners.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { type FederationConfig, FederationConfigFile } from "../../src/federation/config.ts";
import type { DesiredPlane, PlaneRender } from "../../src/federation/planes/plane.ts";
import { Organisation } from "../../src/federation/registry/organisation.ts";
import { Partner, type PartnerEntry } from "../../src/federation/registry/partner.ts";
import { writeFile } from "./temporary.ts";

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
