// drawbridge readmission: opens a re-admission, shows its plan, takes its next step, and says where it stands.
import { resolve } from "node:path";
import { shellWord } from "../domain/printable.ts";
import { outsideProbe } from "../federation/evidence/observe-from-outside.ts";
import { planeLabel } from "../federation/plane-order.ts";
import { nextStep, planReadmission, readmissionStatus } from "../federation/readmission/next-step.ts";
import {
  currentStep,
  NewIdentities,
  openReadmission as open,
  type Readmission,
  requireReadmission,
} from "../federation/readmission/readmission.ts";
import { readmissionRooms, roomLines, type WorkflowContext } from "../federation/readmission/rooms.ts";
import { acceptedState } from "../federation/reconcile/accept-head.ts";
import { findPartner } from "../federation/registry/partner.ts";
import { RoomsChoice } from "../federation/registry/readmission-record.ts";
import { verdictOf } from "../federation/workflow/step-verdict.ts";
import { loadYaml } from "../runtime/load-yaml.ts";
import { type DeploymentOptions, defineCommand, OPTION, PARTNER, required } from "./lib/command.ts";
import { ExitCode } from "./lib/exit-codes.ts";
import { conditionText, openForCommand, planText, stepTable } from "./lib/federation.ts";
import { print, say, short } from "./lib/output.ts";

const ROOMS_OPTION = [
  "--rooms <choice>",
  "kept rooms: new ones in their place, or opened again (new by default)",
  { choices: RoomsChoice.options },
] as const;

type StepResult = Awaited<ReturnType<typeof nextStep>>;

async function openReadmission(options: DeploymentOptions): Promise<WorkflowContext> {
  const federation = await openForCommand(options.config);
  const outside = outsideProbe(federation, options.probeConfig);
  return { ...federation, say, rooms: readmissionRooms(federation), outside };
}

function printDone(
  options: DeploymentOptions,
  readmission: Readmission,
  named: string,
  done: object | undefined,
  text: (status: string) => string,
): void {
  const status = readmissionStatus(readmission);
  const { id, partner, approval, openedAt, rooms, steps } = status;
  const step = currentStep(readmission);
  const what = step === undefined ? "records the end" : `opens plane ${planeLabel(step.plane)}`;
  const words = `drawbridge readmission next ${shellWord(named)} --config ${shellWord(options.config)}`;
  const next = readmission.done ? null : `${words}   # ${what}`;
  const title = `Re-admission ${short(id)} of ${partner}, approval ${approval}, since ${openedAt}; rooms: ${rooms ?? "not chosen (new by default)"}\n`;
  print(
    options,
    done === undefined ? { ...status, next } : { ...done, status, next },
    () => `${text(`${title}${stepTable(steps)}`)}${next === null ? "" : `next: ${next}\n`}`,
  );
}

export const openCommand = defineCommand({
  arguments: [PARTNER],
  options: [
    required("--approval <reference>", "where the contractual approval is filed"),
    required("--new-identities <file>", "what the partner brings anew: its client, its keys"),
    OPTION.federation,
    OPTION.json,
  ],
  help: `
The partnership is new: everything that the partner's file pinned goes on its retired list and is refused from now
on, the new identities come in its place, and one record with the approval is committed. No plane is opened. Guards:
not_removed, removal_open, retired_key, retired_client, fresh_secret, unknown_agent. The file of new identities:
  version: 1
  azp: org-b-bridge-2
  clientSecret: {file: client-secrets/org-b-bridge-2}
  serverKeys: ["ed25519:a_9z8Y"]
  agents: {org-b-docs-qa: {cardIdentity: {keyId: org-b-card-2, jwk: {kty: EC, crv: P-256, x: …, y: …}}}}`,
  async run([partner], options) {
    const identities = loadYaml(NewIdentities, resolve(options.newIdentities));
    const context = await openReadmission(options);
    const { readmission, isNew } = await open(context, { partner, approval: options.approval, identities });
    const before = isNew ? "" : "It was open already.\n";
    printDone(options, readmission, partner, { isNew }, (status) => `${before}${status}`);
  },
});

export const planCommand = defineCommand({
  arguments: [PARTNER],
  options: [ROOMS_OPTION, OPTION.federation, OPTION.json],
  help: "\nChanges nothing. Asks the homeserver, and the partner's, about the rooms of plane 2.",
  async run([partner], options) {
    const planned = await planReadmission(await openReadmission(options), partner, options.rooms);
    const rooms = roomLines(planned.rooms, planned.touched).map((line) => `  ${line}`);
    print(options, planned, () => planText(planned, ({ plane }) => (plane === "rooms" ? rooms : [])));
  },
});

export const nextCommand = defineCommand({
  arguments: [PARTNER],
  options: [ROOMS_OPTION, OPTION.probe, OPTION.federation, OPTION.json],
  help: `
In the order 1 transport, 2 rooms, 3 border, 4 card, 5 gateway: the plane is opened in one commit, brought into
force, and observed until its parts say that the partner is let in. Before plane 2 the rooms it touches are shown
with what becomes of them: new rooms stand for kept ones unless --rooms reopen is given; a room whose memberships
cannot be repaired is replaced either way. A run that was cut off goes on where it stopped.`,
  async run([partner], options) {
    const context = await openReadmission(options);
    const result = await nextStep(context, { partner, rooms: options.rooms });
    const { readmission, ...step } = result;
    printDone(options, readmission, partner, step, (status) => `${status}${resultText(result)}`);
    return result.proved ? ExitCode.ok : ExitCode.incomplete;
  },
});

/** What a step's conditions show that hold: a part that is not managed here was not observed to be open. */
export function openWords(conditions: Parameters<typeof verdictOf>[0]): string {
  const verdict = verdictOf(conditions);
  if (verdict === "unmanaged") return "is not managed here: whoever runs its part has to open it";
  if (verdict === "not_applicable") return "has nothing of this partner's to be open";
  const isPart = conditions.some((one) => one.verdict === "unmanaged");
  return isPart ? "is open as far as it is managed here" : "is open";
}

function resultText({ readmission, plane, conditions, proved, done }: StepResult): string {
  return [
    plane === null
      ? ""
      : `\nPlane ${planeLabel(plane)} ${proved ? openWords(conditions) : "is NOT OBSERVED OPEN YET"}\n`,
    conditionText(conditions),
    ...(plane === "rooms" && proved ? invitationLines(readmission) : []),
    done ? "The re-admission is complete. What the partner knew before stays known to it.\n" : "",
  ].join("");
}

function invitationLines({ rooms, touched }: StepResult["readmission"]): readonly string[] {
  const replaced = (touched ?? []).filter(({ replacement }) => replacement !== null);
  const reopened = (touched ?? []).filter(({ state }) => rooms === "reopen" && state === "kept");
  return [
    ...replaced.map(
      ({ room, replacement }) => `new room ${replacement} in place of ${room}: invite the partner's people\n`,
    ),
    ...reopened.map(
      ({ room }) =>
        `opened again ${room}: invite the partner's people once both borders are open; what its server pulls before stays empty there\n`,
    ),
  ];
}

export const statusCommand = defineCommand({
  arguments: [PARTNER],
  options: [OPTION.federation, OPTION.json],
  async run([partner], options) {
    const federation = await openForCommand(options.config);
    const { registry, revision } = (await acceptedState(federation)).desired;
    const entry = findPartner(registry, partner);
    const readmission = await requireReadmission(federation, revision, entry.partner);
    printDone(options, readmission, partner, undefined, (status) => status);
    return readmission.done ? ExitCode.ok : ExitCode.incomplete;
  },
});
