// Walks a removal to its end as its two operators would: each does what `status` says is next, both at the same
// time, and hands the other a file when it waits.
// Invariant: whatever was done before is found, so a walk that was cut goes on.
import { z } from "zod";
import type { Clock } from "../../src/domain/clock.ts";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { NOT_PURGEABLE } from "../../src/federation/offboarding/duties/evidence.ts";
import { NOT_OUR_ROOM } from "../../src/federation/offboarding/stages/observation.ts";
import type { RoomReason } from "../../src/federation/planes/rooms/reasons.ts";
import { failed, type Operator, RunStatus, type Said } from "../observe/operator.ts";
import type { CompleteOrganisation } from "../organisations.ts";

/** A stage as it was just shown closed. */
export interface ClosedStage {
  readonly organisation: CompleteOrganisation;
  readonly stage: string;
  readonly planeNumber: number | null;
  readonly openedAt: number;
  readonly closedAt: number;
}

export interface WalkHooks {
  readonly clock: Clock;
  readonly closed: (stage: ClosedStage) => void;
  /** Before an organisation opens a stage; it waits. */
  readonly opening?: ((organisation: CompleteOrganisation, stage: string) => Promise<void>) | undefined;
  /** Of an emergency: its first step is done. */
  readonly contained: (organisation: CompleteOrganisation, at: number) => void;
  readonly note: (text: string) => void;
  readonly doing: (text: string) => void;
}

const WithStatus = z.object({ status: RunStatus });
const WithSigned = z.object({
  signed: z.array(z.string()).default([]),
  countersigned: z.array(z.string()).default([]),
});
const PurgePlan = z.object({ digest: z.string() });
/** An exit condition may hold only once other programs have followed: it is shown again this often. */
const SHOWN_AT_MOST = 12;
const PAUSE_MS = 1_000;
const SIGNED: readonly string[] = ["signed", "countersigned"];
/** What no operator can reach, and why its owner answers for it all the same. */
const WAIVED: ReadonlyMap<string, string> = new Map([
  [NOT_PURGEABLE, "homeserver_keeps_it"],
  [NOT_OUR_ROOM, "room_of_a_third_party"],
  // Where rooms are kept, what cannot be closed is listed: the counterparty's own, and those of third parties.
  ["partner_created" satisfies RoomReason, "closed_by_its_owner"],
  ["left" satisfies RoomReason, "closed_by_its_owner"],
  ["no_power" satisfies RoomReason, "room_of_a_third_party"],
]);

/**
 * @returns the file of the remover's record
 * @throws DrawbridgeError `program_failed` when a stage cannot be shown closed, or nobody can go on
 */
export async function walk(
  operators: readonly [Operator, Operator],
  run: string,
  hooks: WalkHooks,
): Promise<string> {
  const sides = operators.map((operator) => new Side(operator, run, hooks));
  await atOnce(sides, (side) => side.look());
  // What was signed before the walk was cut may never have reached the other side: without news all is handed over.
  for (let isHandedOver = false; !sides.every((side) => side.isDone); ) {
    await atOnce(sides, (side) => side.goOn());
    const news = sides.filter((side) => side.hasNews);
    if (news.length === 0 && isHandedOver) throw stuck(sides);
    isHandedOver = news.length === 0;
    const givers = isHandedOver ? sides.filter((side) => side.hasSigned) : news;
    const files = new Map(await atOnce(givers, async (side) => [side, await side.handOver()] as const));
    await atOnce(sides, async (side) => {
      for (const [giver, file] of files) if (giver !== side) await side.takeIn(file);
    });
  }
  const [file] = sides.flatMap((side) => side.recordFile ?? []);
  if (file === undefined)
    throw new DrawbridgeError("program_failed", "the removal has ended without a record");
  return file;
}

/** Both sides to the end, even where one fails: no command is left behind that still changes something. */
async function atOnce<T>(sides: readonly Side[], act: (side: Side) => Promise<T>): Promise<readonly T[]> {
  const ended = await Promise.allSettled(sides.map(act));
  return ended.map((one) => {
    if (one.status === "rejected") throw one.reason;
    return one.value;
  });
}

class Side {
  readonly operator: Operator;
  readonly #run: string;
  readonly #hooks: WalkHooks;
  readonly #told = new Set<string>();
  #status: RunStatus | undefined;
  /** Something was signed that the other side has not seen. */
  hasNews = false;
  /** What was signed last is there for the other side already. */
  #isInOutbox = false;

  constructor(operator: Operator, run: string, hooks: WalkHooks) {
    this.operator = operator;
    this.#run = run;
    this.#hooks = hooks;
  }

  get isDone(): boolean {
    return this.#status?.ended?.how === "completed";
  }

  /** Whether there is anything to hand over. */
  get hasSigned(): boolean {
    return this.#status?.stages.some(({ own }) => SIGNED.includes(own.state)) ?? false;
  }

  get recordFile(): string | undefined {
    return this.#status?.recordFile ?? undefined;
  }

  get waitsFor(): string {
    const waiting = this.#status?.waiting;
    return `${this.operator.organisation}: ${waiting?.what ?? "nothing"} ${waiting?.stage ?? ""}`.trim();
  }

  /** Does everything that is its turn. */
  async goOn(): Promise<void> {
    for (let shown = 0; ; ) {
      const { next, ended } = await this.look();
      const [verb] = next;
      if (ended !== null || (verb !== "next" && verb !== "sign" && verb !== "complete")) return;
      this.#hooks.doing(`${this.operator.organisation}: offboarding ${verb}`);
      if (verb === "complete") {
        this.#take(await this.#type(verb, "--probe-config", this.operator.probeFile), [0]);
        [this.hasNews, this.#isInOutbox] = [true, false];
        continue;
      }
      if (verb === "sign") {
        const words = ["--probe-config", this.operator.probeFile, "--export", this.operator.outbox];
        this.#take(await this.#type(verb, ...words), [0]);
        continue;
      }
      const stage = this.#status?.stages.find(({ provedAt }) => provedAt === null);
      if (stage?.openedAt === null) await this.#hooks.opening?.(this.operator.organisation, stage.stage);
      const isShown = this.#take(await this.#type("next", ...this.#signing), [0, 5]);
      if (isShown) {
        shown = 0;
        continue;
      }
      shown += 1;
      const isRepaired = await this.#hint();
      if (shown >= SHOWN_AT_MOST) throw notShown(this.operator, this.#status);
      if (!isRepaired) await this.#hooks.clock.sleep(PAUSE_MS);
    }
  }

  async handOver(): Promise<string> {
    this.hasNews = false;
    if (!this.#isInOutbox) {
      await this.operator.must("offboarding", "export", this.operator.outbox, "--run-id", this.#run);
    }
    return this.operator.outbox;
  }

  async takeIn(file: string): Promise<void> {
    this.#take(await this.#type("import", file, ...this.#signing), [0]);
  }

  /** What can be signed is signed at once, and written down for the other side. */
  get #signing(): readonly string[] {
    return ["--probe-config", this.operator.probeFile, "--sign", "--export", this.operator.outbox];
  }

  /** Where it stands; asked once, since every command tells it. */
  async look(): Promise<RunStatus> {
    if (this.#status === undefined) {
      this.#status = RunStatus.parse((await this.#type("status")).said);
      for (const { stage, provedAt } of this.#status.stages) if (provedAt !== null) this.#told.add(stage);
    }
    return this.#status;
  }

  #type(verb: string, ...words: readonly string[]): Promise<Said> {
    return this.operator.type("offboarding", verb, ...words, "--run-id", this.#run);
  }

  /** @returns whether it ended with 0 */
  #take(answer: Said, codes: readonly number[]): boolean {
    const { code, said } = answer;
    if (!codes.includes(code)) throw failed(this.operator.organisation, ["offboarding"], answer);
    const { signed, countersigned } = WithSigned.parse(said);
    if (signed.length + countersigned.length > 0) [this.hasNews, this.#isInOutbox] = [true, true];
    const before = this.#status?.containedAt ?? null;
    this.#status = WithStatus.parse(said).status;
    const { containedAt } = this.#status;
    if (before === null && containedAt !== null) {
      this.#hooks.contained(this.operator.organisation, Date.parse(containedAt));
    }
    for (const { stage, planeNumber, openedAt, provedAt } of this.#status.stages) {
      if (openedAt === null || provedAt === null || this.#told.has(stage)) continue;
      this.#told.add(stage);
      this.#hooks.closed({
        ...{ organisation: this.operator.organisation, stage, planeNumber },
        openedAt: Date.parse(openedAt),
        closedAt: Date.parse(provedAt),
      });
    }
    return code === 0;
  }

  /** What the record says is purged, by a dry run and its digest; what was not gone yet is purged again. */
  async #purge(): Promise<void> {
    const { operator } = this;
    const { digest } = PurgePlan.parse(
      await operator.must("offboarding", "purge", operator.counterparty, "--dry-run"),
    );
    const { code } = await operator.type("offboarding", "purge", operator.counterparty, "--confirm", digest);
    this.#hooks.note(
      `${operator.organisation} has purged what its record says${code === 0 ? "" : ", and names what is left"}`,
    );
  }

  /** Purges what is to be purged. Of what is out of reach, only what no interface can reach is waived; its owner answers for it by role. @returns whether there was anything */
  async #hint(): Promise<boolean> {
    const blocks = this.#status?.stages.flatMap((stage) => stage.blocks) ?? [];
    let isRepaired = blocks.some(({ condition }) => condition === "deletion_recorded");
    if (isRepaired) await this.#purge();
    for (const { condition, probe, found } of blocks) {
      const reason = WAIVED.get(probe) ?? WAIVED.get(found);
      if (condition !== "out_of_reach" || reason === undefined) continue;
      this.#take(await this.#type("waive", probe, "--reason", reason), [0]);
      isRepaired = true;
      this.#hooks.note(`${this.operator.organisation} waives ${probe} (${found})`);
    }
    return isRepaired;
  }
}

function stuck(sides: readonly Side[]): DrawbridgeError {
  return new DrawbridgeError(
    "program_failed",
    `neither side can go on: ${sides.map(({ waitsFor }) => waitsFor).join("; ")}`,
    { hint: "See drawbridge offboarding status on both sides." },
  );
}

function notShown({ organisation }: Operator, status: RunStatus | undefined): DrawbridgeError {
  const blocks = status?.stages.flatMap((stage) => stage.blocks) ?? [];
  const lines = blocks.map(
    ({ stage, condition, found, hint }) => `  ${stage} ${condition}: ${found} (${hint})`,
  );
  return new DrawbridgeError(
    "program_failed",
    [`${organisation} cannot show a stage closed:`, ...lines].join("\n"),
  );
}
