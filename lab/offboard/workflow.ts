// Carries a removal to its end as its two operators would: each runs `drawbridge offboarding run` with the file that
// the other one writes, and decides what only people can.
// Invariant: steps that are done already are found, so that an interrupted workflow continues.
import { rmSync } from "node:fs";
import * as z from "zod";
import { ExitCode } from "../../src/cli/lib/exit-codes.ts";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { NOT_PURGEABLE } from "../../src/federation/offboarding/duties/purge.ts";
import { NOT_OUR_ROOM } from "../../src/federation/offboarding/stages/observe-stage.ts";
import type { RoomReason } from "../../src/federation/planes/rooms/room-reasons.ts";
import type { StageName } from "../../src/records/format/removal-stages.ts";
import { SOURCES } from "../lab.ts";
import { type CommandResult, commandFailed, type Operator } from "../observe/operator.ts";
import type { CompleteOrganisation } from "../organisations.ts";
import type { RunOptions } from "../programs.ts";

const Block = z.object({
  plane: z.string().nullable(),
  condition: z.string(),
  probe: z.string(),
  found: z.string(),
  hint: z.string(),
});

/** The part of `drawbridge offboarding status` that the lab reads. */
export const RunStatus = z.object({
  run: z.string(),
  kind: z.string(),
  remover: z.string(),
  partner: z.string(),
  self: z.string(),
  openedAt: z.string(),
  /** Of an emergency: when planes 5, 4, 2 and 3 were closed at once. */
  containedAt: z.string().nullable(),
  ended: z.object({ how: z.enum(["completed", "aborted"]) }).nullable(),
  steps: z.array(
    z.object({
      step: z.string(),
      planeNumber: z.int().nullable(),
      own: z.object({ state: z.string() }),
      openedAt: z.string().nullable(),
      provedAt: z.string().nullable(),
      blocks: z.array(Block),
    }),
  ),
  next: z.array(z.string()),
  waiting: z.object({ for: z.string(), what: z.string(), stage: z.string().nullable() }).nullable(),
  recordFile: z.string().nullable(),
});
export type RunStatus = z.output<typeof RunStatus>;

/** A stage that was just proved closed. */
export interface ClosedStage {
  readonly organisation: CompleteOrganisation;
  readonly stage: string;
  readonly planeNumber: number | null;
  readonly openedAt: number;
  readonly closedAt: number;
}

export interface WorkflowHooks {
  readonly closed: (stage: ClosedStage) => void;
  /** Before a stage is opened at either; it waits. */
  readonly opening?: { readonly stage: StageName; readonly wait: () => Promise<void> } | undefined;
  /** Of an emergency: its first step is done. */
  readonly contained: (organisation: CompleteOrganisation, at: number) => void;
  /** A step that an organisation has done, in its own words. */
  readonly step: (organisation: CompleteOrganisation, text: string) => void;
  readonly note: (text: string) => void;
}

const RunOutput = z.object({
  end: z.enum(["completed", "blocked", "paused", "waiting"]),
  status: RunStatus,
});
const WithStatus = z.object({ status: RunStatus });
const PurgePlan = z.object({ digest: z.string() });
/** How often something is decided for one stage that is not shown closed. */
const TRIES_MAX = 4;
/** How long one organisation waits for the other's file. */
const WAIT_S = 120;
/** Exit codes of `offboarding run` that come with its answer. */
const RUN_ENDED: readonly number[] = [ExitCode.ok, ExitCode.incomplete, ExitCode.waiting];
/** What `offboarding run` writes about each step that is done. */
const STEP_LINE = /: (?:shown closed|signed|countersigned|closed at once)$/;
/** What it writes before a step that takes its time. */
const BEGUN_LINE = /: (?:closing plane|collecting)|^waiting for /;
/** What no operator can reach, with the reason for which its owner waives it. */
const WAIVED: ReadonlyMap<string, string> = new Map([
  [NOT_PURGEABLE, "homeserver_keeps_it"],
  [NOT_OUR_ROOM, "room_of_a_third_party"],
  // Where rooms are kept, rooms that cannot be closed are listed: the counterparty's own, and those of third parties.
  ["partner_created" satisfies RoomReason, "closed_by_its_owner"],
  ["left" satisfies RoomReason, "closed_by_its_owner"],
  ["no_power" satisfies RoomReason, "room_of_a_third_party"],
]);

/**
 * @returns the file of the remover's record
 * @throws DrawbridgeError `program_failed` when a stage cannot be proved closed, or neither side can go on
 */
export async function removeBetween(
  operators: readonly [Operator, Operator],
  run: string,
  hooks: WorkflowHooks,
): Promise<string> {
  const [one, other] = operators.map((operator) => new Side(operator, run, hooks)) as [Side, Side];
  // What an earlier removal has left is not this one's.
  for (const { outbox } of operators) rmSync(outbox, { force: true });
  const goOn = async (before?: StageName) => {
    const failed = new AbortController();
    const go = (side: Side, from: Side) =>
      side.run(from.operator.outbox, failed.signal, before).catch((error: unknown) => failed.abort(error));
    // Where one fails, the other is ended and waited for, so that no command still runs afterwards.
    await Promise.all([go(one, other), go(other, one)]);
    failed.signal.throwIfAborted();
  };
  if (hooks.opening !== undefined) {
    await goOn(hooks.opening.stage);
    await hooks.opening.wait();
  }
  await goOn();
  const file = one.recordFile ?? other.recordFile;
  if (file !== undefined) return file;
  throw new DrawbridgeError("program_failed", `neither side can go on: ${one.waitsFor}; ${other.waitsFor}`, {
    hint: "See drawbridge offboarding status on both sides.",
  });
}

class Side {
  readonly operator: Operator;
  readonly #runId: string;
  readonly #hooks: WorkflowHooks;
  readonly #reported = new Set<string>();
  /** What was done before, by a workflow that was interrupted, is not reported again. */
  readonly #since = SOURCES.clock.now();
  #status: RunStatus | undefined;

  constructor(operator: Operator, run: string, hooks: WorkflowHooks) {
    this.operator = operator;
    this.#runId = run;
    this.#hooks = hooks;
  }

  get recordFile(): string | undefined {
    return this.#status?.recordFile ?? undefined;
  }

  get waitsFor(): string {
    const waiting = this.#status?.waiting;
    return `${this.operator.organisation}: ${waiting?.what ?? "nothing"} ${waiting?.stage ?? ""}`.trim();
  }

  /**
   * Runs every step of this side, and decides what only its people can.
   * @param inbox where the other side's file is written
   */
  async run(inbox: string, signal: AbortSignal, before?: StageName): Promise<void> {
    const { operator } = this;
    const words = [
      ...["run", "--probe-config", operator.probeFile, "--wait", String(WAIT_S)],
      ...["--import", inbox, "--export", operator.outbox],
      ...(before === undefined ? [] : ["--before", before]),
    ];
    const onLine = (line: string) => {
      if (STEP_LINE.test(line)) this.#hooks.step(operator.organisation, line);
      else if (BEGUN_LINE.test(line)) this.#hooks.note(`${operator.organisation}: ${line}`);
    };
    for (let tries = 1; ; tries++) {
      const result = await this.#command(words, { onLine, signal });
      if (!RUN_ENDED.includes(result.code)) {
        throw commandFailed(operator.organisation, ["offboarding", "run"], result);
      }
      const { end, status } = RunOutput.parse(result.output);
      this.#update(status);
      if (end !== "blocked") return;
      if (!(await this.#clearBlocks()) && tries >= TRIES_MAX) throw notProved(operator, this.#status);
    }
  }

  #command(words: readonly string[], options?: RunOptions): Promise<CommandResult> {
    return this.operator.run(["offboarding", ...words, "--run-id", this.#runId], options);
  }

  #update(status: RunStatus): void {
    const { organisation } = this.operator;
    this.#status = status;
    const isNew = (what: string, at: string | null): at is string => {
      if (at === null || Date.parse(at) < this.#since || this.#reported.has(what)) return false;
      this.#reported.add(what);
      return true;
    };
    const { containedAt, steps } = status;
    if (isNew("contained", containedAt)) this.#hooks.contained(organisation, Date.parse(containedAt));
    for (const { step: stage, planeNumber, openedAt, provedAt } of steps) {
      if (openedAt === null || !isNew(stage, provedAt)) continue;
      this.#hooks.closed({
        ...{ organisation, stage, planeNumber },
        openedAt: Date.parse(openedAt),
        closedAt: Date.parse(provedAt),
      });
    }
  }

  /** Purges what the record says, by a dry run and its digest. */
  async #purge(): Promise<void> {
    const { operator } = this;
    const { digest } = PurgePlan.parse(await operator.mustRun("offboarding", "purge", operator.counterparty));
    const { code } = await operator.run(["offboarding", "purge", operator.counterparty, "--confirm", digest]);
    this.#hooks.note(
      `${operator.organisation} has purged what its record says${code === 0 ? "" : ", and names what is left"}`,
    );
  }

  /**
   * Purges, and waives what no interface can reach; its owner is named by role.
   * @returns whether there was anything to do
   */
  async #clearBlocks(): Promise<boolean> {
    const blocks = this.#status?.steps.flatMap(({ blocks }) => blocks) ?? [];
    let isChanged = blocks.some(({ condition }) => condition === "deletion_recorded");
    if (isChanged) await this.#purge();
    for (const { condition, probe, found } of blocks) {
      const reason = WAIVED.get(probe) ?? WAIVED.get(found);
      if (condition !== "out_of_reach" || reason === undefined) continue;
      const waived = await this.operator.mustRun(
        ...["offboarding", "waive", probe, "--reason", reason, "--run-id", this.#runId],
      );
      this.#update(WithStatus.parse(waived).status);
      isChanged = true;
      this.#hooks.note(`${this.operator.organisation} waives ${probe} (${found})`);
    }
    return isChanged;
  }
}

function notProved({ organisation }: Operator, status: RunStatus | undefined): DrawbridgeError {
  const lines = (status?.steps ?? []).flatMap(({ step, blocks }) =>
    blocks.map(({ condition, found, hint }) => `  ${step} ${condition}: ${found} (${hint})`),
  );
  return new DrawbridgeError(
    "program_failed",
    [`${organisation} cannot prove a stage closed:`, ...lines].join("\n"),
  );
}
