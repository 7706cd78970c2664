// An evidence pack as one page that a person reads. Pure. Invariant: it says nothing that the pack does not.

import { hexOfDigest } from "../../domain/digest.ts";
import type { EvidenceItem } from "../../records/format/evidence-item.ts";
import { CLOSING_ORDER, PLANE_NUMBERS, type PlaneName, planeLabel } from "../plane-order.ts";
import { LEAK_TITLES, type LeakCell, type LeakColumn, leakRows, leakSummary } from "./leak-rows.ts";
import type { EvidencePack } from "./pack.ts";

const NOT_TRIED = "none";
const SHOWN_ITEMS_MAX = 12;

const STREAM_TITLES: Readonly<Record<EvidencePack["streams"][number]["stream"], string>> = {
  border_violations: "Border: events and invitations that the homeserver dropped",
  gateway_decisions: "Gateway: requests under the partner's client ID, and what it decided",
  bridge_audit: "Bridge: questions of the partner's people and answers of its agents",
};

const CELLS: Readonly<Record<LeakCell, string>> = { yes: "**yes**", no: "no", unknown: "?", not_tried: "–" };

function table(header: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) =>
    `| ${cells.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`;
  return [line(header), line(header.map(() => "---")), ...rows.map(line)].join("\n");
}

function tried(items: readonly EvidenceItem[]): readonly EvidenceItem[] {
  return items.filter(({ layer }) => layer !== NOT_TRIED);
}

function tally(items: readonly EvidenceItem[]): string {
  const count = (verdict: EvidenceItem["verdict"]) => items.filter((item) => item.verdict === verdict).length;
  const parts = (["closed", "open", "unknown"] as const)
    .map((verdict) => [count(verdict), verdict] as const)
    .filter(([number]) => number > 0);
  return parts.length === 0
    ? "not looked at"
    : parts.map(([number, verdict]) => `${number} ${verdict}`).join(", ");
}

function planes(pack: EvidencePack): string {
  const rows = CLOSING_ORDER.map((plane: PlaneName) => {
    const of = (items: readonly EvidenceItem[]) => tally(tried(items).filter((item) => item.plane === plane));
    const declared = pack.closed_planes.includes(plane) ? "closed" : "open";
    return [planeLabel(plane), declared, of(pack.inside), of(pack.outside)];
  });
  return table(["plane", "declared", "seen from inside", "seen from outside"], rows);
}

function items(found: readonly EvidenceItem[]): string {
  const rows = tried(found).map((item) => [
    `${PLANE_NUMBERS[item.plane]}`,
    item.probe,
    item.subject === null ? "" : `\`${item.subject}\``,
    item.verdict,
    [item.layer, item.status, item.reason].filter((part) => part !== null).join(" "),
    item.at.slice(11, 23),
    `\`${hexOfDigest(item.digest).slice(0, 12)}\``,
  ]);
  if (rows.length === 0) return "Nobody probed.";
  return table(["plane", "probe", "on", "verdict", "what answered", "UTC", "digest"], rows);
}

function streams(pack: EvidencePack): string {
  const parts = pack.streams.map((stream) => {
    const title = `### ${STREAM_TITLES[stream.stream]}`;
    if (stream.state !== "read") return `${title}\n\nNot read: ${stream.state.replaceAll("_", " ")}.`;
    const summary = `${stream.lines} lines, ${stream.matching} of this partner in the window, ${stream.included} in the pack, ${stream.refused_lines} outside the schema and therefore left out. File digest \`${stream.digest}\`.`;
    const own = pack.stream_items.filter(({ facts }) => facts.stream === stream.stream);
    const counts = new Map<string, number>();
    for (const { facts } of own) {
      const what =
        facts.stream === "gateway_decisions" ? `${facts.code} ${facts.details ?? ""}`.trim() : facts.reason;
      counts.set(what, (counts.get(what) ?? 0) + 1);
    }
    const sorted = [...counts].sort(([, one], [, other]) => other - one).slice(0, SHOWN_ITEMS_MAX);
    const lines = sorted.map(([what, number]) => `- ${number} × \`${what}\``);
    return [title, "", summary, ...(lines.length > 0 ? ["", ...lines] : [])].join("\n");
  });
  return parts.join("\n\n");
}

function leaks(pack: EvidencePack): string {
  const rows = leakRows(pack.outside);
  if (rows.length === 0) {
    return "No room was probed from outside. What a third server relays is unknown.";
  }
  const columns = Object.keys(LEAK_TITLES) as LeakColumn[];
  return [
    leakSummary(rows),
    "",
    table(
      ["room", ...columns.map((column) => LEAK_TITLES[column])],
      rows.map(({ room, cells }) => [`\`${room}\``, ...columns.map((column) => CELLS[cells[column]])]),
    ),
    "",
    "A is this organisation, B the partner, D the witness's server. A dash was not tried; a question mark is unknown.",
  ].join("\n");
}

function facts({ partner, revision, window, containment_records }: EvidencePack): string {
  const keys = (ids: readonly string[]) =>
    ids.length === 0 ? "none declared" : ids.map((id) => `\`${id}\``).join(", ");
  return table(
    ["fact", "value"],
    [
      ["server name", `\`${partner.server_name}\``],
      ["client (`azp`)", `\`${partner.azp}\``],
      ["issuer (verify-only)", `\`${partner.issuer}\``],
      ["server key IDs (verify-only)", keys(partner.key_ids.server)],
      ["card key IDs (verify-only)", keys(partner.key_ids.card)],
      ["classification", partner.classification],
      ["contained", partner.contained ? "yes" : "no"],
      ["registry revision", `\`${revision}\``],
      ["window", `${window.since} to ${window.until}`],
      ...containment_records.map(({ record, digest }) => [
        `${record.act} record`,
        `${record.timestamp}, at \`${record.git_revision.slice(0, 12)}\`, \`${digest}\``,
      ]),
    ],
  );
}

function liveTokens({ live_tokens }: EvidencePack["limits"]): string {
  const bound = `An access token lives for at most ${live_tokens.longest_life_seconds} seconds.`;
  return live_tokens.dead_by === null
    ? `${bound} The client was not observed to be refused, so tokens may still be issued.`
    : `${bound} The client was observed to be refused, so no token that was issued before lives after ${live_tokens.dead_by}; the gateway decides by \`azp\` whatever a token's age.`;
}

/** The page. */
export function renderPage(pack: EvidencePack): string {
  return `# Evidence on ${pack.partner.name}

Made ${pack.made_at}. Pack digest \`${pack.digest}\`.

${facts(pack)}

## Planes

${planes(pack)}

## What a third server still relays

${leaks(pack)}

## Record streams

${streams(pack)}

## What this does not undo

- ${pack.limits.replicated_history}
- ${pack.limits.user_attribution}
- ${liveTokens(pack.limits)}

## Seen from inside

${items(pack.inside)}

## Seen from outside

${items(pack.outside)}

Check every digest of the JSON beside this page: \`drawbridge federation evidence --verify FILE\`.
`;
}
