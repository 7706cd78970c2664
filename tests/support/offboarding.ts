// Two organisations that remove each other's access: each with a repository, a state, a key and planes whose
// real parts are plain files. What probes find is what stands in those files, so that a plane can be opened by
// hand; every answer can be put in the place of another.
import { appendFileSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { type Clock, systemClock, systemRandom } from "../../src/domain/clock.ts";
import { abuseReportSchema } from "../../src/federation/abuse/report.ts";
import type { FederationConfig } from "../../src/federation/config.ts";
import type { RecordFacts } from "../../src/federation/offboarding/private-record/consistency.ts";
import type { OffboardingContext } from "../../src/federation/offboarding/run/context.ts";
import { openRun } from "../../src/federation/offboarding/run/open.ts";
import type { Run } from "../../src/federation/offboarding/run/run.ts";
import { PLANE_NAMES, type PlaneName } from "../../src/federation/plane-order.ts";
import { applyFile, fileDrift } from "../../src/federation/planes/file-target.ts";
import type { OutOfReach, PlaneRuntime } from "../../src/federation/planes/plane.ts";
import type { PlaneRuntimes } from "../../src/federation/planes/runtimes.ts";
import { type Federation, openFederation } from "../../src/federation/reconcile/context.ts";
import type { Reporter } from "../../src/federation/reconcile/events.ts";
import type { Partner } from "../../src/federation/registry/partner.ts";
import { Repository } from "../../src/federation/repository/repository.ts";
import {
  type EvidenceItem,
  type EvidenceItemBody,
  evidenceItem,
} from "../../src/records/format/evidence-item.ts";
import type { Kind, Trigger } from "../../src/records/format/stages.ts";
import { createKeyPair } from "../../src/records/sign/key-pair.ts";
import { PolicyFile, policyDigest } from "../../src/rendered-files/border-policy.ts";
import { controlConfig, rendered } from "./control-repository.ts";
import { bareRepository } from "./repository.ts";
import { writeFile } from "./temporary.ts";

export const A = "a.test";
export const B = "b.test";
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
    await bareRepository(join(folder, "control"), Object.fromEntries(rendered(registry)));
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
  readonly answers: Map<string, Partial<EvidenceItemBody>>;
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
  const repository = await Repository.open(join(folder, "control"), "main");
  const parts = join(folder, "parts");
  mkdirSync(parts, { recursive: true });
  const base = controlConfig(folder, { path: repository.path });
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
    federation,
    config,
    random: systemRandom,
    facts: () => facts,
    residual: async () => ({ rooms: [], device_keys: null, tokens_live_until: null, third_servers: [] }),
    outside: fromOutside
      ? async (_own, entry, wanted) => fromOutsideOf(world, entry.partner, wanted)
      : undefined,
    say: () => undefined,
  };
  return Object.assign(world, { folder, context, federation, facts });
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

export interface World {
  readonly own: string;
  readonly other: string;
  readonly parts: string;
  readonly clock: Clock;
  readonly answers: Side["answers"];
  readonly outOfReach: OutOfReach[];
  startedAt: string;
}

type Found = Pick<EvidenceItemBody, "probe" | "layer"> & Partial<EvidenceItemBody>;

function itemOf(world: World, plane: PlaneName, found: Found, admits: boolean): EvidenceItem {
  return evidenceItem({
    schema: "svc.federation.evidence_item.v1",
    plane,
    partner: world.other,
    vantage: "operator",
    subject: null,
    verdict: admits ? "open" : "closed",
    status: null,
    reason: null,
    references: [],
    at: new Date(world.clock.now()).toISOString(),
    duration_ms: 1,
    ...found,
    ...world.answers.get(found.probe),
  });
}

function textOf({ parts }: World, path: string): string {
  try {
    return readFileSync(join(parts, path), "utf8");
  } catch {
    return "";
  }
}

/** What the files of a plane's real part say of the counterparty. */
function admits(world: World, plane: PlaneName, { azp }: Pick<Partner, "azp">): boolean {
  const { other } = world;
  switch (plane) {
    case "gateway":
      return textOf(world, "gateway/invocation.yaml").includes(`- ${azp}`);
    case "card":
      return textOf(world, "card/agents.yaml").includes(`${other[0]}-docs-qa:`);
    case "rooms":
      return (JSON.parse(textOf(world, "rooms/rooms.json")) as { allow: string[] }).allow.includes(other);
    case "border":
      return policyOf(world).allowed_servers.includes(other);
    case "transport":
      return textOf(world, "transport/homeserver.yaml").includes(`- ${other}`);
  }
}

function policyOf(world: World): PolicyFile {
  return PolicyFile.parse(JSON.parse(textOf(world, "border/policy.json")));
}

/** Planes whose real parts are files below `parts`. */
export function scriptedPlanes(world: World): PlaneRuntimes {
  const plane = (name: PlaneName): PlaneRuntime => ({
    name,
    async apply(desired) {
      appendFileSync(join(world.parts, "order"), `${name} ${desired.revision}\n`);
      const changes = [...desired.files].map(([path, text]) =>
        applyFile(join(world.parts, path), text, 0o644),
      );
      const changed = changes.includes(true);
      if (name === "rooms" && world.outOfReach.length > 0) {
        return { state: "incomplete", changed, outOfReach: [...world.outOfReach] };
      }
      return { state: "in_force", changed };
    },
    drift: async (desired) =>
      [...desired.files].flatMap(([path, text]) => {
        const drift = fileDrift(join(world.parts, path), text);
        return drift === undefined ? [] : [{ plane: name, ...drift }];
      }),
    probe: async (_desired, { partner }) => inside(world, name, partner),
  });
  return Object.fromEntries(PLANE_NAMES.map((name) => [name, plane(name)])) as PlaneRuntimes;
}

function inside(world: World, plane: PlaneName, partner: Partner): readonly EvidenceItem[] {
  const isOpen = admits(world, plane, partner);
  const item = (found: Found, open = isOpen) => itemOf(world, plane, found, open);
  const reason = (open: string | null, closed: string | null, is = isOpen) => ({
    reason: is ? open : closed,
  });
  const room = `!room:${world.own}`;
  const { azp } = partner;
  switch (plane) {
    case "gateway":
      return [
        item({
          probe: "callers_in_force",
          layer: "gateway",
          subject: azp,
          ...reason("azp_admitted", "azp_not_admitted"),
        }),
        item({
          probe: "issuer_client",
          layer: "issuer",
          subject: azp,
          ...reason("client_enabled", "client_disabled"),
        }),
      ];
    case "card": {
      const isPublic = textOf(world, "card/publication.yaml").includes("docs-qa:");
      const card = {
        ...{ probe: "card_fetch", layer: "gateway", subject: "docs-qa", status: isPublic ? 200 : 404 },
        ...reason("card_public", "card_withdrawn", isPublic),
      };
      return [
        ...(partner.gateway === undefined ? [] : [item(card, isPublic)]),
        ...Object.keys(partner.card.consumes).map((agent) =>
          item({
            ...{ probe: "card_trust", layer: "bridge", subject: agent },
            ...reason("agent_card_verified", "agent_card_untrusted"),
          }),
        ),
        item({
          ...{ probe: "may_ask", layer: "bridge", subject: world.other },
          ...reason("in_agents_file", "not_in_agents_file"),
        }),
      ];
    }
    case "rooms": {
      const about = { subject: room, status: 200 };
      const references = isOpen ? ["present=1"] : ["present=0"];
      return [
        item({ probe: "room_acl", layer: "room_acl", ...about }),
        item({ probe: "room_enforcement", layer: "homeserver", ...about }),
        item({ probe: "room_members", layer: "homeserver", ...about, references }),
      ];
    }
    case "border": {
      const references = [policyDigest(policyOf(world)), `started_at=${world.startedAt}`];
      const about = { layer: "border", status: 200, references } as const;
      return [
        item({
          probe: "policy_check",
          ...about,
          subject: world.other,
          ...reason(null, "server_not_allowed"),
        }),
        item({ probe: "policy_in_force", ...about }),
      ];
    }
    case "transport": {
      const about = { layer: "homeserver", subject: world.other, status: 200 } as const;
      return [item({ probe: "whitelist", ...about, ...reason(null, "not_in_whitelist") })];
    }
  }
}

/** What the counterparty would find. */
export function fromOutsideOf(
  world: World,
  partner: Pick<Partner, "azp">,
  planes: readonly PlaneName[],
): readonly EvidenceItem[] {
  return planes.flatMap((plane) => {
    const isOpen = admits(world, plane, partner);
    const item = (found: Found, refused: Pick<EvidenceItemBody, "status" | "reason">) =>
      itemOf(
        world,
        plane,
        { vantage: "partner", ...(isOpen ? { status: 200, reason: "accepted" } : refused), ...found },
        isOpen,
      );
    switch (plane) {
      case "gateway":
        return [
          item(
            { probe: "token_request", layer: "issuer", subject: partner.azp },
            { status: 401, reason: "invalid_client" },
          ),
          item(
            { probe: "invoke", layer: "gateway", subject: "docs-qa" },
            { status: 401, reason: "jwt_missing" },
          ),
        ];
      case "card":
        return [];
      case "rooms":
        return [
          item(
            { probe: "make_join", layer: "room_acl", subject: `!room:${world.own}` },
            { status: 403, reason: "server_banned" },
          ),
        ];
      case "border":
        if (!isOpen) appendFileSync(join(world.parts, "violations.jsonl"), violationLine(world));
        return [item({ probe: "invite", layer: "border" }, { status: 403, reason: "dropped" })];
      default:
        return [
          item(
            { probe: "federation_send", layer: "transport", subject: world.own },
            { status: 403, reason: "federation_denied" },
          ),
        ];
    }
  });
}

function violationLine(world: World): string {
  const line = {
    schema: "svc_federation_policy_violation",
    reason: "server_not_allowed",
    server: world.other,
    room: "!other:b.test",
    event: null,
    policy_digest: policyDigest(policyOf(world)),
    at: new Date(world.clock.now()).toISOString(),
  };
  return `${JSON.stringify(line)}\n`;
}
