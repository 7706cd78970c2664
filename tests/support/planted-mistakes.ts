// Mistakes that operators make, planted in the sample organisation, and the check that must catch each.
// Invariant: every mistake changes one thing in a repository that is right in all else.

import { renderAll } from "../../src/federation/planes/render.ts";
import { loadRegistry } from "../../src/federation/registry/load.ts";
import { checkRepository } from "../../src/federation/work-tree/check.ts";
import { registryFiles } from "./sample-files.ts";

/** The two halves of a repository, free to be spoiled. */
export interface SampleTree {
  readonly registry: Map<string, string>;
  readonly rendered: Map<string, string>;
}

interface PlantedMistake {
  readonly what: string;
  plant(tree: SampleTree): void;
  /** Name of the check that must fail. */
  readonly caughtBy: string;
  /** What it must say. */
  readonly says: RegExp;
}

export function sampleTree(): SampleTree {
  const registry = registryFiles();
  return { registry, rendered: new Map(renderAll(loadRegistry(registry))) };
}

/** Whether a mistake is caught by its check, and what was said instead if not. */
export function outcomeOf({ plant, caughtBy, says }: PlantedMistake): string | undefined {
  const tree = sampleTree();
  plant(tree);
  const check = checkRepository(tree.registry, tree.rendered).find(({ name }) => name === caughtBy);
  if (check?.result === "failed" && check.found.some((line) => says.test(line))) return undefined;
  return `${caughtBy}: ${check?.result ?? "no such check"} ${check?.found.join("; ") ?? ""}`;
}

function edit(files: Map<string, string>, path: string, from: string | RegExp, to: string): void {
  const text = files.get(path);
  const edited = text?.replace(from, () => to);
  if (edited === undefined || edited === text) throw new TypeError(`${path} has no ${from}`);
  files.set(path, edited);
}

const ORGANISATION = "registry/organisation.yaml";
const DREDGER = "registry/partners/dredger.yaml";
const PILOTS = "registry/partners/pilot-station.yaml";
const WHITELIST = "rendered/transport/homeserver.yaml";
const ROOMS = "rendered/rooms/rooms.json";
const POLICY = "rendered/border/policy.json";
const AGENTS = "rendered/card/agents.yaml";
const INVOCATION = "rendered/gateway/invocation.yaml";
const CLIENTS = "rendered/gateway/clients.yaml";
const ROUTES = "kubernetes/gateway/routes.yaml";

export const PLANTED_MISTAKES: readonly PlantedMistake[] = [
  {
    what: "an ACL that locks the own server out",
    plant: ({ rendered }) => edit(rendered, ROOMS, /"allow": \[\s+"matrix\.harbour\.example",/, '"allow": ['),
    caughtBy: "room ACL is safe",
    says: /deny 1 that must stay: matrix\.harbour\.example/,
  },
  {
    what: "an ACL with a retained server's name in the form with its port alone",
    plant: ({ rendered }) => edit(rendered, ROOMS, /\s+"matrix\.lighthouse\.example",/, ""),
    caughtBy: "room ACL is safe",
    says: /deny 1 that must stay: matrix\.lighthouse\.example:8448/,
  },
  {
    what: "an ACL that admits a contained partner",
    plant: ({ rendered }) =>
      edit(rendered, ROOMS, '"pilots.example"', '"pilots.example", "chat.dredger.example"'),
    caughtBy: "room ACL is safe",
    says: /would admit chat\.dredger\.example/,
  },
  {
    what: "a rooms intent that leaves a closed partner in its rooms",
    plant: ({ rendered }) => edit(rendered, ROOMS, /,\s+\{\s+"serverName": "salvage[^}]+\}/, ""),
    caughtBy: "room ACL is safe",
    says: /does not close salvage\.example:443/,
  },
  {
    what: "a removed partner that is open again with a new client and no record of a re-admission",
    plant: ({ registry }) => registry.set(PILOTS, `${registry.get(PILOTS)}retired: {clients: [before]}\n`),
    caughtBy: "re-admissions are recorded",
    says: /pilot-station\.yaml opens a plane to a partner that was removed/,
  },
  {
    what: "a policy without the local server",
    plant: ({ rendered }) => edit(rendered, POLICY, '"matrix.harbour.example",', ""),
    caughtBy: "policy admits the own server",
    says: /leaves out matrix\.harbour\.example/,
  },
  {
    what: "an empty policy",
    plant: ({ rendered }) => rendered.set(POLICY, '{"allowed_servers": []}\n'),
    caughtBy: "policy admits the own server",
    says: /leaves out matrix\.harbour\.example/,
  },
  {
    what: "a policy that still has the contained partner",
    plant: ({ rendered }) =>
      edit(rendered, POLICY, '"pilots.example"', '"pilots.example", "chat.dredger.example"'),
    caughtBy: "policy admits the own server",
    says: /admits "chat\.dredger\.example"/,
  },
  {
    what: "a whitelist that cuts another partner",
    plant: ({ rendered }) => edit(rendered, WHITELIST, "  - pilots.example\n", ""),
    caughtBy: "whitelist cuts only the closed",
    says: /cuts off pilots\.example/,
  },
  {
    what: "a whitelist entry without its port",
    plant: ({ rendered }) => edit(rendered, WHITELIST, "lighthouse.example:8448", "lighthouse.example"),
    caughtBy: "whitelist cuts only the closed",
    says: /cuts off matrix\.lighthouse\.example:8448/,
  },
  {
    what: "a whitelist that admits who was never admitted",
    plant: ({ rendered }) =>
      edit(rendered, WHITELIST, "  - pilots.example\n", "  - pilots.example\n  - matrix.gull.example\n"),
    caughtBy: "whitelist cuts only the closed",
    says: /admits "matrix\.gull\.example"/,
  },
  {
    what: "a removed partner that is still a key server",
    plant: ({ rendered }) =>
      edit(
        rendered,
        WHITELIST,
        "trusted_key_servers:\n",
        'trusted_key_servers:\n  - server_name: "salvage.example:443"\n',
      ),
    caughtBy: "whitelist cuts only the closed",
    says: /names salvage\.example:443 as a key server/,
  },
  {
    what: "a pin that a contained partner may still use",
    plant: ({ rendered }) =>
      edit(
        rendered,
        AGENTS,
        '      - "*:pilots.example"\n',
        '      - "*:pilots.example"\n      - "*:chat.dredger.example"\n',
      ),
    caughtBy: "cards and pins",
    says: /may be asked from chat\.dredger\.example/,
  },
  {
    what: "a contained partner's client among an agent's callers",
    plant: ({ rendered }) => edit(rendered, INVOCATION, "- lighthouse-bridge", "- dredger-agents"),
    caughtBy: "callers and clients",
    says: /dredger-agents may invoke berth_planner/,
  },
  {
    what: "a contained partner's client that is enabled",
    plant: ({ rendered }) =>
      edit(rendered, CLIENTS, "dredger-agents\n    enabled: false", "dredger-agents\n    enabled: true"),
    caughtBy: "callers and clients",
    says: /dredger-agents is enabled/,
  },
  {
    what: "a render that is older than the registry",
    plant: ({ registry }) =>
      edit(registry, PILOTS, "classification: internal", "classification: internal\ncontained: true"),
    caughtBy: "renders equal the registry",
    says: /^rendered\/border\/policy\.json would be changed/,
  },
  {
    what: "a rendered file edited by hand where no other check looks",
    plant: ({ rendered }) => edit(rendered, INVOCATION, "perMinute: 120", "perMinute: 100000"),
    caughtBy: "renders equal the registry",
    says: /^rendered\/gateway\/invocation\.yaml would be changed/,
  },
  {
    what: "a file of a partner who is gone",
    plant: ({ rendered }) => rendered.set("kubernetes/gateway/gull.yaml", "kind: ConfigMap\n"),
    caughtBy: "renders equal the registry",
    says: /gull\.yaml would be removed/,
  },
  {
    what: "a rendered file that is missing",
    plant: ({ rendered }) => rendered.delete(POLICY),
    caughtBy: "policy admits the own server",
    says: /is missing/,
  },
  {
    what: "a token that is optional on Kubernetes",
    plant: ({ rendered }) => edit(rendered, ROUTES, "mode: Strict", "mode: Optional"),
    caughtBy: "renders equal the registry",
    says: /routes\.yaml would be changed/,
  },
  {
    what: "a limiter that fails open on Kubernetes",
    plant: ({ rendered }) => edit(rendered, ROUTES, "failureMode: FailClosed", "failureMode: FailOpen"),
    caughtBy: "renders equal the registry",
    says: /routes\.yaml would be changed/,
  },
  {
    what: "an authorization that allows besides others on Kubernetes",
    plant: ({ rendered }) => edit(rendered, ROUTES, "action: Require", "action: Allow"),
    caughtBy: "renders equal the registry",
    says: /routes\.yaml would be changed/,
  },
  {
    what: "a ConfigMap that is larger than a cluster takes",
    plant: ({ rendered }) => rendered.set("kubernetes/border/policy.yaml", "a: b\n".repeat(300_000)),
    caughtBy: "Kubernetes sizes",
    says: /larger than a ConfigMap may be \(1 MiB\)/,
  },
  {
    what: "an expression that is longer than a cluster takes",
    plant: ({ rendered }) => rendered.set(ROUTES, `- "${"x".repeat(16_384)}"\n`),
    caughtBy: "Kubernetes sizes",
    says: /longer than an expression may be/,
  },
  {
    what: "a client's secret in the registry",
    plant: ({ registry }) =>
      edit(
        registry,
        DREDGER,
        "clientSecret:\n    file: client-secrets/dredger-agents",
        "clientSecret: hunter2hunter2",
      ),
    caughtBy: "no secrets",
    says: /dredger\.yaml:25: .*\[secret\.named_value\]/,
  },
  {
    what: "a private key in a card's pin",
    plant: ({ registry }) =>
      edit(registry, DREDGER, "          kty: EC", `          kty: EC\n          d: ${"A7f9".repeat(10)}xyz`),
    caughtBy: "no secrets",
    says: /\[secret\.private_jwk_member\]/,
  },
  {
    what: "a misspelt flag, which would contain nobody",
    plant: ({ registry }) => edit(registry, DREDGER, "contained: true", "containd: true"),
    caughtBy: "registry is valid",
    says: /dredger\.yaml:5: containd: unknown key/,
  },
  {
    what: "a partner's file that nobody would read",
    plant: ({ registry }) => registry.set("registry/partners/Gull.yaml", "version: 1\n"),
    caughtBy: "registry is valid",
    says: /\[file_name\]/,
  },
  {
    what: "a closing partner on the host of a retained one",
    plant: ({ registry }) =>
      edit(registry, PILOTS, "serverName: pilots.example", "serverName: chat.dredger.example:8448"),
    caughtBy: "registry is valid",
    says: /\[server_host\]/,
  },
  {
    what: "the own server as a partner",
    plant: ({ registry }) =>
      edit(registry, PILOTS, "serverName: pilots.example", "serverName: matrix.harbour.example"),
    caughtBy: "registry is valid",
    says: /\[own_server\]/,
  },
  {
    what: "a partner that invokes what is not offered",
    plant: ({ registry }) =>
      edit(registry, ORGANISATION, "  docs-qa:\n    upstream", "  docs:\n    upstream"),
    caughtBy: "registry is valid",
    says: /\[agent_not_offered\]/,
  },
  {
    what: "a registry without the schema of abuse reports",
    plant: ({ registry }) => registry.delete("registry/abuse-report.schema.json"),
    caughtBy: "abuse-report schema",
    says: /is missing/,
  },
];
