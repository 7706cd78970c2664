// The proof at the end of fed:up, for people. Pure.
import { PLANE_NAMES, PLANE_NUMBERS, type PlaneName } from "../../src/federation/plane-order.ts";
import type { EvidenceItem } from "../../src/records/format/evidence-item.ts";
import type { AskResult } from "../ask/ask.ts";
import { gatewayLine, quote, renderQuestion, renderTimeline, renderViews, verdict } from "../ask/render.ts";
import type { Lab } from "../lab.ts";
import { COMPLETE_ORGANISATIONS } from "../organisations.ts";
import { formatDuration, type Palette } from "../progress.ts";
import { ATTEMPT_PLANES, ATTEMPT_TITLES, ATTEMPTS, isRefused, type Refusal } from "./outsider-attempts.ts";
import type { Proof } from "./proof.ts";

/** Lines of an answer in the proof, where it only has to be recognised. */
const ANSWER_LINES_MAX = 9;

export interface Opening {
  readonly headline: string;
  readonly tookMs: number;
}

export function renderProof(lab: Lab, proof: Proof, opening: Opening, palette: Palette): string {
  const { bold, dim } = palette;
  const main = proof.asked["org-b"];
  const other = proof.asked["org-a"];
  const { encrypted } = proof;
  return [
    "",
    `${bold(opening.headline)} ${dim(`(${formatDuration(opening.tookMs)})`)}`,
    "",
    ...renderQuestion(main, palette),
    "",
    ...renderViews(main, "org-b", palette, ANSWER_LINES_MAX),
    "",
    ...renderTimeline(main, "org-b", "org-a", palette),
    "",
    `${bold("And the other way round")}`,
    `  ${other.asker} asked ${other.ghost} in ${other.room.alias}`,
    ...quote(other.question, palette),
    `  ${verdict(other)}; ${gatewayLine(other, "org-b")}`,
    "",
    bold("And in the encrypted form of the room"),
    `  ${encrypted.asker} asked ${encrypted.ghost} in ${encrypted.room.alias}`,
    ...quote(encrypted.question, palette),
    `  ${verdict(encrypted)}; ${gatewayLine(encrypted, "org-a")}`,
    `  ${sealLine(encrypted)}`,
    "",
    bold("The five planes of org-a and org-b: answers to the partner, and what refuses org-c"),
    ...PLANE_NAMES.flatMap((plane) => renderPlane(plane, proof, palette)),
    "",
    ...(proof.failures.length === 0
      ? [palette.green("Everything holds.")]
      : [
          palette.red("These do not hold:"),
          ...proof.failures.map((failure) => palette.red(`  ✗ ${failure}`)),
        ]),
    "",
    bold("Next"),
    ...nextCommands(lab),
    "",
  ].join("\n");
}

/** Whether the answer is encrypted on the homeservers. */
function sealLine({ views }: AskResult): string {
  const isSealed = COMPLETE_ORGANISATIONS.every((name) => views[name].encrypted);
  return isSealed
    ? "encrypted on both homeservers, decrypted by both people's clients"
    : "not encrypted for both";
}

function renderPlane(plane: PlaneName, proof: Proof, palette: Palette): string[] {
  const attempts = ATTEMPTS.filter((attempt) => ATTEMPT_PLANES[attempt] === plane);
  return [
    `  ${palette.bold(`${PLANE_NUMBERS[plane]} ${plane}`)}`,
    ...renderPassages(
      COMPLETE_ORGANISATIONS.flatMap((at) => proof.passages[at].filter((item) => item.plane === plane)),
      palette,
    ),
    ...attempts.map((attempt) =>
      renderRefusal(
        proof.refusals.filter((refusal) => refusal.attempt === attempt),
        palette,
      ),
    ),
  ];
}

/** One line a probe, for both organisations where they answered alike. */
function renderPassages(items: readonly EvidenceItem[], palette: Palette): string[] {
  return [...new Set(items.map(({ probe }) => probe))].map((probe) => {
    const same = items.filter((item) => item.probe === probe);
    const mark = same.every(({ verdict }) => verdict === "open") ? palette.green("✓") : palette.red("✗");
    const answers = [...new Set(same.map(({ status, layer }) => `${status ?? "no answer"} by ${layer}`))];
    const what = PROBE_TITLES[probe] ?? probe;
    return `    ${mark} partner  ${answers.join(", ")}  ${palette.dim(what)}`;
  });
}

/** The probes as the partner, for people. */
const PROBE_TITLES: Readonly<Record<string, string>> = {
  federation_send: "sends by federation",
  make_join: "is offered a join to a shared room",
  invite: "invites a person",
  card_fetch: "fetches the agent's card",
  token_request: "is issued a token",
  invoke: "reaches the agent with it",
};

function renderRefusal(refusals: readonly Refusal[], palette: Palette): string {
  const [first] = refusals;
  if (first === undefined) return "";
  const mark = refusals.every(isRefused) ? palette.green("✓") : palette.red("✗");
  const answers = (r: Refusal) =>
    r.layer?.answered === undefined ? `${r.received}` : `${r.received} by ${r.layer.answered}`;
  const same = refusals.every((r) => answers(r) === answers(first) && r.code === first.code);
  const status = same ? answers(first) : refusals.map((r) => `${answers(r)} at ${r.at}`).join(", ");
  const codes = new Set(refusals.flatMap(({ code }) => (code === undefined ? [] : [code])));
  return `    ${mark} org-c    ${status}  ${ATTEMPT_TITLES[first.attempt]}  ${palette.dim([...codes].join("; "))}`.trimEnd();
}

function nextCommands(lab: Lab): string[] {
  const name = lab.name === "default" ? "" : ` --name ${lab.name}`;
  const commands: readonly (readonly [string, string])[] = [
    [
      `./task fed:ask "How is a question kept from being asked twice?"${name}`,
      "ask org-a's agent as a user of org-b",
    ],
    [`./task fed:ask --from org-a --to org-b "When does the span open?"${name}`, "and the other way round"],
    [
      `./task fed:ask --encrypted "How do I connect the bridge to my own Synapse?"${name}`,
      "ask in the encrypted room",
    ],
    [`./task fed:status${name}`, "what runs where; --json for scripts"],
    [`./task fed:logs org-b bridge -f${name}`, "follow a program's log"],
    [`./task fed:break-glass contain org-b${name}`, "cut org-b off at once; restore admits it again"],
    [`./task fed:offboard org-b${name}`, "remove it for good, with signed records; fed:readmit readmits it"],
    [`./task fed:link cut org-a org-b${name}`, "cut the network between the two; heal repairs it"],
    [`./task fed:down${name}`, "end it and keep the data; --purge removes them"],
  ];
  const width = Math.max(...commands.map(([command]) => command.length));
  return commands.map(([command, what]) => `  ${command.padEnd(width)}  ${what}`);
}
