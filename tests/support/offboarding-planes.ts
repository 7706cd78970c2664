// The planes of one of two organisations, scripted: their real parts are plain files, and what probes find, from inside and
// from outside, is what stands in those files, so that a plane can be opened by hand; every answer can be put in the place
// of another. The last three functions stand in for the real parts when commands are run as programs (offboarding-cli.ts).
import { appendFileSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { type Clock, systemClock } from "../../src/domain/clock.ts";
import type * as residual from "../../src/federation/offboarding/duties/residual.ts";
import { PLANE_NAMES, type PlaneName } from "../../src/federation/plane-order.ts";
import { applyFile, fileDrift } from "../../src/federation/planes/file-target.ts";
import type { OutOfReach, PlaneRuntime } from "../../src/federation/planes/plane.ts";
import type * as runtimes from "../../src/federation/planes/runtimes.ts";
import type * as fromOutside from "../../src/federation/probes/from-outside.ts";
import type { Partner } from "../../src/federation/registry/partner.ts";
import {
  type EvidenceItem,
  type EvidenceItemBody,
  evidenceItem,
} from "../../src/records/format/evidence-item.ts";
import { PolicyFile, policyDigest } from "../../src/rendered-files/border-policy.ts";

export const A = "a.test";
export const B = "b.test";
export interface World {
  readonly own: string;
  readonly other: string;
  readonly parts: string;
  readonly clock: Clock;
  /** Answers in the place of those that the files give, by probe. */
  readonly answers: Map<string, Partial<EvidenceItemBody>>;
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
export function scriptedPlanes(world: World): runtimes.PlaneRuntimes {
  const plane = (name: PlaneName): PlaneRuntime => ({
    async apply(desired) {
      appendFileSync(join(world.parts, "order"), `${name} ${desired.revision}\n`);
      const changes = [...desired.files].map(([path, text]) => applyFile(join(world.parts, path), text));
      const changed = changes.includes(true);
      if (name === "rooms" && world.outOfReach.length > 0) {
        return { state: "incomplete", changed, outOfReach: [...world.outOfReach] };
      }
      return { state: "in_force", changed };
    },
    drift: async (desired) =>
      [...desired.files].flatMap(([path, text]) => fileDrift(join(world.parts, path), text) ?? []),
    probe: async (_desired, { partner }, covering = []) => inside(world, name, partner, covering),
  });
  return Object.fromEntries(PLANE_NAMES.map((name) => [name, plane(name)])) as runtimes.PlaneRuntimes;
}

function inside(
  world: World,
  plane: PlaneName,
  partner: Partner,
  covering: readonly string[],
): EvidenceItem[] {
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
        ...[...new Set([...Object.keys(partner.card.consumes), ...covering])].map((agent) =>
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
): EvidenceItem[] {
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

function worldOf(directory: string): World {
  const own = basename(directory);
  const startedAt = "2026-01-01T00:00:00.000Z";
  return {
    ...{ own, other: own === A ? B : A, parts: join(directory, "parts"), clock: systemClock, startedAt },
    ...{ answers: new Map(), outOfReach: [] },
  };
}

// Typed by what they replace, so that the compiler tells when that is renamed.
export const planeRuntimes: typeof runtimes.planeRuntimes = ({ directory }) =>
  scriptedPlanes(worldOf(directory));

export const probeFromOutside: typeof fromOutside.probeFromOutside = async (
  { directory },
  _sources,
  { planes = new Set(PLANE_NAMES) } = {},
) => {
  const world = worldOf(directory);
  return [...fromOutsideOf(world, { azp: `${world.other[0]}-bridge` as never }, [...planes])];
};

export const residualReport: typeof residual.residualReport = async () => ({
  statement: { rooms: [], device_keys: null, tokens_live_until: null, third_servers: [] },
  unknown: {},
});
