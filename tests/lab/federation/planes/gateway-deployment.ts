// Planes 4 and 5 of one organisation on real parts: Envoy, the one-machine issuer, what the bridge reads
// agents.yaml with. Org B and org C are admitted; B alone may invoke `reports`.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { Registry as MetricsRegistry } from "prom-client";
import { watchAgentsFile } from "../../../../src/bridge/agents/loaded-agents.ts";
import { createObserveServer } from "../../../../src/bridge/health/health-server.ts";
import { systemClock } from "../../../../src/domain/clock.ts";
import type { ServerName } from "../../../../src/domain/identifiers.ts";
import type { FederationConfig } from "../../../../src/federation/config.ts";
import { cardRender } from "../../../../src/federation/planes/card/render.ts";
import { cardRuntime } from "../../../../src/federation/planes/card/runtime.ts";
import { gatewayRender } from "../../../../src/federation/planes/gateway/render.ts";
import { gatewayRuntime } from "../../../../src/federation/planes/gateway/runtime.ts";
import type { DesiredPlane, PlaneRuntime } from "../../../../src/federation/planes/plane.ts";
import { Organisation } from "../../../../src/federation/registry/organisation.ts";
import { Partner, type PartnerEntry } from "../../../../src/federation/registry/partner.ts";
import { testKey } from "../../../support/cards.ts";
import {
  type AgentDouble,
  agentDouble,
  endGateway,
  type TestGateway,
  testGateway,
} from "../../../support/gateway.ts";
import { AUDIENCE, declaredIssuer, type IssuerUnderTest } from "../../../support/issuers.ts";
import { recordedLog } from "../../../support/recorded-log.ts";
import { deployment } from "../../../support/sample-files.ts";
import { temporaryFolder } from "../../../support/temporary.ts";

export const ORG_B = "org-b.test:8448";
export const ORG_C = "org-c.test:8448";
const OWN = "org-a.test:8448";

type Planes = Readonly<Partial<Record<"card" | "gateway", "open" | "closed">>>;

export interface GatewayDeployment {
  readonly folder: string;
  readonly gateway: TestGateway;
  readonly issuer: IssuerUnderTest;
  readonly agent: AgentDouble;
  readonly planes: Readonly<Record<"card" | "gateway", PlaneRuntime>>;
  readonly notes: string[];
  /** What a registry wants in which org B's planes are as given. */
  desired(plane: "card" | "gateway", ofB?: Planes): DesiredPlane;
  apply(plane: "card" | "gateway", ofB?: Planes): ReturnType<PlaneRuntime["apply"]>;
  partner(desired: DesiredPlane, name: "org-b" | "org-c"): PartnerEntry;
  /** A token by the partner's own credentials, or "" with the answer's status. */
  token(name: "org-b" | "org-c"): Promise<{ status: number; error: string | undefined; token: string }>;
  invoke(agent: "docs-qa" | "reports", token: string): Promise<number>;
  card(agent: "docs-qa" | "reports"): Promise<number>;
  /** The bridge's audit says this of an agent's card. */
  audit(agent: string, outcome: "accepted" | "rejected"): void;
}

export async function gatewayDeployment(t: Pick<TestContext, "after">): Promise<GatewayDeployment> {
  const { folder, atEnd } = folderUntilTheEnd(t);
  const at = (path: string) => join(folder, path);
  const issuer = await declaredIssuer(at("issuer"));
  atEnd(() => issuer.close());
  for (const name of ["org-b", "org-c"]) issuer.putSecret(name, `secret-of-${name}`);
  const agent = await agentDouble();
  atEnd(() => agent.close());
  const gateway = await testGateway(at("gateway"), {
    issuer: { url: issuer.url, jwksUrl: issuer.jwksUrl, audience: AUDIENCE },
  });
  atEnd(() => endGateway(gateway));
  const { jwk } = await testKey("b-1");
  const healthUrl = await bridgeHealth(t, at("bridge/agents.yaml"));

  const base = deployment(folder, "http://127.0.0.1:1");
  const config: FederationConfig = {
    ...base,
    card: {
      agentsFile: "bridge/agents.yaml",
      bridgeAuditFile: "bridge/audit.jsonl",
      bridgeHealthUrl: healthUrl,
    },
    gateway: {
      publicationFile: "gateway/publication.yaml",
      invocationFile: "gateway/invocation.yaml",
      stateFile: "gateway/state.json",
      accessLog: "gateway/access.jsonl",
      url: gateway.url,
      issuer: { adapter: "declared_clients", clientsFile: "issuer/clients.yaml" },
    },
  };
  const planes = {
    card: cardRuntime(config, systemClock),
    gateway: gatewayRuntime(config, systemClock),
  };
  const partnerOf = (name: string, serverName: string, invokes: string[], more: object): PartnerEntry => ({
    name,
    file: `registry/partners/${name}.yaml`,
    partner: Partner.parse({
      version: 1,
      serverName,
      classification: "internal",
      azp: `${name}-client`,
      issuer: "https://issuer.test",
      gateway: {
        invokes,
        clientSecret: { file: `client-secrets/${name}` },
        quota: { perMinute: 100_000, burst: 10_000 },
      },
      ...more,
    }),
  });
  const offered = (name: string) => ({
    upstream: agent.url,
    cardPath: `/agents/${name}/card.json`,
    invokePath: `/agents/${name}/rpc`,
  });
  const desired: GatewayDeployment["desired"] = (plane, ofB = {}) => {
    const consumes = {
      "org-b-agent": { cardUrl: "https://org-b.test/card.json", cardIdentity: { keyId: "b-1", jwk } },
    };
    const registry = {
      organisation: Organisation.parse({
        version: 1,
        serverName: OWN,
        agents: { "docs-qa": offered("docs-qa"), reports: offered("reports") },
        quotas: { default: { perMinute: 6_000, burst: 1_000 } },
      }),
      partners: [
        partnerOf("org-b", ORG_B, ["docs-qa", "reports"], { planes: ofB, card: { consumes } }),
        partnerOf("org-c", ORG_C, ["docs-qa"], {}),
      ],
    };
    const render = plane === "card" ? cardRender : gatewayRender;
    return { revision: "0".repeat(40), registry, files: render.render(registry) };
  };
  const notes: string[] = [];
  return {
    folder,
    gateway,
    issuer,
    agent,
    planes,
    notes,
    desired,
    apply: (plane, ofB) => planes[plane].apply(desired(plane, ofB), (text) => notes.push(text)),
    partner: ({ registry }, name) => {
      const found = registry.partners.find((entry) => entry.name === name);
      if (found === undefined) throw new Error(`no partner ${name}`);
      return found;
    },
    token: (name) => issuer.ask(`${name}-client`, `secret-of-${name}`),
    invoke: async (name, token) => {
      const response = await fetch(`${gateway.url}/agents/${name}/rpc`, {
        method: "POST",
        headers: { authorization: `Bearer ${token}` },
        body: "{}",
      });
      await response.body?.cancel();
      return response.status;
    },
    card: async (name) => {
      const response = await fetch(`${gateway.url}/agents/${name}/card.json`);
      await response.body?.cancel();
      return response.status;
    },
    audit: (name, outcome) => {
      const file = at("bridge/audit.jsonl");
      const reason = outcome === "accepted" ? "agent_card_verified" : "agent_card_untrusted";
      const target = { agent: name, fingerprint: `sha256:${"0".repeat(64)}` };
      const line = JSON.stringify({ schema: "svc.agent_card.v1", outcome, reason, target });
      writeFileSync(file, `${readIfThere(file)}${line}\n`);
    },
  };
}

/**
 * A folder that outlives what writes into it: hooks of a test run first to last, and one that fails, because a
 * gateway has just written its state, keeps the others from running.
 */
function folderUntilTheEnd(t: Pick<TestContext, "after">) {
  const ends: (() => unknown)[] = [];
  t.after(async () => {
    for (const end of ends.toReversed()) await end();
  });
  const folder = temporaryFolder({ after: (end) => void ends.push(end as () => unknown) });
  return { folder, atEnd: (end: () => unknown) => void ends.push(end) };
}

function readIfThere(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return "";
  }
}

/** The bridge's own directory and its own /readyz, without the rest of it. */
async function bridgeHealth(t: Pick<TestContext, "after">, file: string): Promise<string> {
  mkdirSync(join(file, ".."), { recursive: true });
  writeFileSync(file, "version: 1\nagents: {}\n");
  const directory = watchAgentsFile({
    file,
    serverName: OWN as ServerName,
    ghostPrefix: "agent_",
    log: recordedLog().log,
  });
  const server = createObserveServer({
    registry: new MetricsRegistry(),
    readiness: async () => [],
    agentsDigest: () => directory.digest(),
    encryption: "refuse",
  });
  const url = await server.listen({ host: "127.0.0.1", port: 0 });
  t.after(() => server.close());
  return `${url}/readyz`;
}
