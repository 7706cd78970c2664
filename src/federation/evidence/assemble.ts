// Puts an evidence pack together: the registry's facts, the containment records, what was probed, and the three
// record streams. Invariant: what does not fit the pack's schema is left out and counted, never bent to fit.
import { resolve } from "node:path";
import type { Clock } from "../../domain/clock.ts";
import { sha256Tagged } from "../../domain/digest.ts";
import type { EvidenceItem } from "../../records/format/evidence-item.ts";
import { TOKEN_LIFE_S } from "../../rendered-files/token-life.ts";
import type { FederationConfig } from "../config.ts";
import { ContainmentRecord } from "../containment/record.ts";
import type { CurrentState } from "../current.ts";
import { closedPlanes, type PartnerEntry } from "../registry/partner.ts";
import { collectStream, type Window } from "./collect-stream.ts";
import { type EvidencePack, type EvidencePackBody, LIMITS, sealPack } from "./pack.ts";
import { STREAM_NAMES, type StreamName } from "./stream-lines.ts";

const RECORDS = "records/containment";

export interface PackInput {
  readonly config: FederationConfig;
  readonly current: CurrentState;
  readonly partner: PartnerEntry;
  readonly window: Window;
  readonly inside: readonly EvidenceItem[];
  readonly outside: readonly EvidenceItem[];
  readonly clock: Clock;
}

/** @throws DrawbridgeError `repository_unusable` */
export async function assemblePack(input: PackInput): Promise<EvidencePack> {
  const { current, partner: entry, window, inside, outside, clock } = input;
  const { partner } = entry;
  const streams = await collectStreams(input);
  return sealPack({
    schema: "svc.federation.evidence.v1",
    made_at: new Date(clock.now()).toISOString(),
    window: { since: window.since, until: window.until },
    partner: {
      name: entry.name,
      server_name: partner.serverName,
      azp: partner.azp,
      issuer: partner.issuer,
      key_ids: { server: partner.keyIds.server, card: partner.keyIds.card },
      classification: partner.classification,
      contained: partner.contained,
    },
    revision: current.desired.revision,
    closed_planes: [...closedPlanes(partner)],
    containment_records: await containmentRecords(current, partner.serverName),
    inside: [...inside],
    outside: [...outside],
    streams: streams.map(({ summary }) => summary),
    stream_items: streams.flatMap(({ items }) => items),
    limits: {
      ...LIMITS,
      live_tokens: { longest_life_seconds: TOKEN_LIFE_S, dead_by: deadBy([...inside, ...outside]) },
    },
  });
}

async function collectStreams({ config, partner: entry, window }: PackInput) {
  const { partner } = entry;
  const about = {
    serverName: partner.serverName,
    azp: partner.azp,
    agents: new Set(Object.keys(partner.card.consumes)),
  };
  const files: Readonly<Record<StreamName, string | undefined>> = {
    border_violations: config.border.violationsFile,
    gateway_decisions: config.gateway?.accessLog,
    bridge_audit: config.card?.bridgeAuditFile,
  };
  return Promise.all(
    STREAM_NAMES.map((stream) => {
      const file = files[stream];
      const path = file === undefined ? undefined : resolve(config.directory, file);
      return collectStream(stream, path, about, window);
    }),
  );
}

async function containmentRecords(
  { repository, desired }: CurrentState,
  serverName: string,
): Promise<EvidencePackBody["containment_records"]> {
  const texts = await repository.read(desired.revision, [RECORDS]);
  return [...texts].flatMap(([path, text]) => {
    const record = recordOf(text);
    return record?.server_name === serverName ? [{ path, record, digest: sha256Tagged(text) }] : [];
  });
}

function recordOf(text: string): ContainmentRecord | undefined {
  try {
    return ContainmentRecord.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}

/** No token is given after the client was first seen refused, so none lives longer than a token's life from then. */
function deadBy(items: readonly EvidenceItem[]): string | null {
  const refused = items
    .filter(
      ({ probe, verdict }) =>
        (probe === "token_request" || probe === "issuer_client") && verdict === "closed",
    )
    .map(({ at }) => Date.parse(at));
  if (refused.length === 0) return null;
  return new Date(Math.min(...refused) + TOKEN_LIFE_S * 1_000).toISOString();
}
