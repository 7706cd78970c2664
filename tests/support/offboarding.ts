// Two organisations that remove each other's access: each with a repository, a state, a key and scripted planes
// (offboarding-planes.ts). What is made here once is opened as often as needed.

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { type Clock, systemClock, systemRandom } from "../../src/domain/clock.ts";
import { abuseReportSchema } from "../../src/federation/abuse/report.ts";
import type { FederationConfig } from "../../src/federation/config.ts";
import type { OffboardingContext, RecordFacts } from "../../src/federation/offboarding/run/context.ts";
import type { Run } from "../../src/federation/offboarding/run/run-file.ts";
import { openRun } from "../../src/federation/offboarding/run/run-file.ts";
import type { OutOfReach } from "../../src/federation/planes/plane.ts";
import { type Federation, openFederation, type Reporter } from "../../src/federation/reconcile/context.ts";
import type { Kind, Trigger } from "../../src/records/format/removal-stages.ts";
import { createKeyPair } from "../../src/records/sign/signer.ts";
import { controlConfig, makeBareRepository, rendered } from "./control-repository.ts";
import { A, B, fromOutsideOf, scriptedPlanes, type World } from "./offboarding-planes.ts";
import { writeFile } from "./temporary.ts";

const CURVE_POINT = {
  x: "2UNDKGmCLS_fbrtafEP3pkRTUhppoOIHI9S9Ne_WTOU",
  y: "LQ-WSL4W6OKCtF4C9Z_u1hCcXEebXK8pDgT1Uxy08Ls",
};

function keyYaml(keyId: string, indent: string): string {
  const { x, y } = CURVE_POINT;
  return ["keyId: ".concat(keyId), "jwk:", "  kty: EC", "  crv: P-256", `  x: ${x}`, `  y: ${y}`]
    .map((line, index) => (index === 0 ? line : `${indent}${line}`))
    .join("\n");
}

function organisationYaml(own: string): string {
  const name = own[0] ?? "";
  return `version: 1
serverName: ${own}
agents:
  docs-qa:
    upstream: http://127.0.0.1:8080
    cardPath: /agents/docs-qa/.well-known/agent-card.json
    invokePath: /agents/docs-qa/rpc
    cardKeys:
      - ${keyYaml(`${name}-card`, "        ")}
quotas:
  default:
    perMinute: 60
    burst: 20
`;
}

function partnerYaml(own: string, other: string, lacks: readonly string[]): string {
  const [mine, theirs] = [own[0] ?? "", other[0] ?? ""];
  const consumes = `card:
  consumes:
    ${theirs}-docs-qa:
      cardUrl: https://${other}/agents/docs-qa/.well-known/agent-card.json
      cardIdentity:
        ${keyYaml(`${theirs}-card`, "        ")}
      credentials:
        tokenEndpoint: https://${other}/token
        clientId: ${mine}-bridge
        clientSecret: {env: DRAWBRIDGE_SECRET_UNUSED}
        resource: https://${other}
`;
  const gateway = `gateway:
  invokes: [docs-qa]
  clientSecret: {file: client-secrets/${theirs}}
`;
  return `# Who comes in from ${other}.
version: 1
serverName: ${other}
classification: internal # agreed
azp: ${theirs}-bridge
issuer: https://${other}/issuer
${lacks.includes("card") ? "" : consumes}${lacks.includes("gateway") ? "" : gateway}`;
}

/** The deployment as a file, for its commands; what its real parts are is scripted there too. */
function deploymentYaml(): string {
  return `version: 1
repository: {path: control}
homeserver: {url: "http://127.0.0.1:9", operatorToken: {env: UNUSED}, signingKeyFile: unused}
transport: {includeFile: unused, restart: {command: ["false"]}}
border: {policyFile: unused, statusToken: {env: UNUSED}, violationsFile: parts/violations.jsonl}
card: {agentsFile: unused, bridgeAuditFile: unused, bridgeHealthUrl: "http://127.0.0.1:9"}
gateway:
  publicationFile: unused
  invocationFile: unused
  stateFile: unused
  accessLog: unused
  url: http://127.0.0.1:9
  issuer: {adapter: declared_clients, clientsFile: unused}
offboarding: {signingKey: {file: records-key.pem}, trustFile: trust.yaml}
`;
}

function probeYaml(own: string, other: string): string {
  return `version: 1\ntarget: {serverName: ${own}}\nas: {serverName: ${other}}\n`;
}

/** What stands at an organisation: its repository, its state, its keys. Made once, opened as often as needed. */
export async function makeParties(
  directory: string,
  options: { readonly lacks?: Readonly<Record<string, readonly string[]>> } = {},
): Promise<void> {
  const keys = [A, B].map((own) => {
    const folder = join(directory, own);
    mkdirSync(folder, { recursive: true });
    return { own, ...createKeyPair(folder) };
  });
  const parties = keys.map(
    ({ own, publicKeyFile }) => `  - organisation: ${own}\n    keys: [{file: '${publicKeyFile}'}]`,
  );
  for (const { own } of keys) {
    const other = own === A ? B : A;
    const folder = join(directory, own);
    writeFile(join(folder, "trust.yaml"), `version: 1\nparties:\n${parties.join("\n")}\n`);
    const registry = new Map([
      ["registry/organisation.yaml", organisationYaml(own)],
      ["registry/abuse-report.schema.json", abuseReportSchema()],
      [`registry/partners/${other[0]}.yaml`, partnerYaml(own, other, options.lacks?.[own] ?? [])],
    ]);
    writeFile(join(folder, "federation.yaml"), deploymentYaml());
    writeFile(join(folder, "probe.yaml"), probeYaml(own, other));
    await makeBareRepository(join(folder, "control"), Object.fromEntries(rendered(registry)));
  }
}

export interface Side {
  readonly own: string;
  readonly other: string;
  readonly folder: string;
  readonly context: OffboardingContext;
  readonly federation: Federation;
  /** Where the planes put their files. */
  readonly parts: string;
  /** Answers in the place of those that the files give, by probe. */
  readonly answers: World["answers"];
  /** What the rooms plane says it could not reach. */
  readonly outOfReach: OutOfReach[];
  readonly facts: { -readonly [Name in keyof RecordFacts]: RecordFacts[Name] };
  /** When the homeserver was started. */
  startedAt: string;
}

export interface SideOptions {
  readonly clock?: Clock;
  /** Whether somebody looks from outside. */
  readonly fromOutside?: boolean;
}

export async function openSide(directory: string, own: string, options: SideOptions = {}): Promise<Side> {
  const { clock = systemClock, fromOutside = true } = options;
  const other = own === A ? B : A;
  const folder = join(directory, own);
  const parts = join(folder, "parts");
  mkdirSync(parts, { recursive: true });
  const base = controlConfig(folder, { path: "control" });
  const unused = "http://127.0.0.1:9";
  const config: FederationConfig = {
    ...base,
    border: { ...base.border, violationsFile: "parts/violations.jsonl" },
    card: { agentsFile: "unused", bridgeAuditFile: "unused", bridgeHealthUrl: unused },
    gateway: {
      publicationFile: "unused",
      invocationFile: "unused",
      stateFile: "unused",
      accessLog: "unused",
      url: unused,
      issuer: { adapter: "declared_clients", clientsFile: "unused" },
    },
    offboarding: { signingKey: { file: "records-key.pem" }, trustFile: "trust.yaml" },
  };
  const reporter: Reporter = { event: () => undefined, note: () => undefined };
  const world: World = {
    ...{ own, other, parts, clock, answers: new Map(), outOfReach: [] },
    startedAt: "2026-01-01T00:00:00.000Z",
  };
  const planes = scriptedPlanes(world);
  const federation = await openFederation(config, { clock, random: systemRandom, reporter, planes });
  const facts: Side["facts"] = {
    owner: `${own[0]}-change-owner`,
    references: { change: "CHG-2026-118", rollback: "CHG-2026-118/rollback" },
    retention: { state: "ended", until: null },
    backupsExpireBy: "2027-02-21",
    purgeWaiver: "no_data_kept",
    readmission: { possible: false, owner: null, conditions: [] },
    agents: ["docs-qa", `${other[0]}-docs-qa`],
  };
  const context: OffboardingContext = {
    ...federation,
    facts: () => facts,
    residual: async () => ({ rooms: [], device_keys: null, tokens_live_until: null, third_servers: [] }),
    outside: fromOutside
      ? async (_own, entry, wanted) => fromOutsideOf(world, entry.partner, wanted)
      : undefined,
    say: () => undefined,
  };
  return Object.assign(world, { folder, context, federation: context, facts });
}

/** Opens a run at one side, or joins it. */
export function openRunAt(
  side: Side,
  options: { readonly kind?: Kind; readonly trigger?: Trigger; readonly run?: string } = {},
): Promise<Run> {
  const {
    kind = "full",
    trigger = kind === "emergency" ? "suspected_compromise" : "contract_end",
    run,
  } = options;
  return openRun(side.context, {
    ...{ partner: side.other, kind, trigger, privateRecordFile: join(side.folder, "private.yaml") },
    ...(run !== undefined && { run }),
  });
}
