// A lab of a test file's own, run by its tasks as a person does, and what an operator can do to it: stop,
// freeze, kill and configure programs, query databases and metrics.
// Invariants: whatever a test breaks is repaired when that test ends; the lab's processes and data are gone
// when the file ends; only this lab's processes are signalled.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import pg from "pg";
import { parse, stringify } from "yaml";
import type { AskResult } from "../../lab/ask/ask.ts";
import { bridgeDatabaseName } from "../../lab/configuration/databases.ts";
import { type Lab, readLab } from "../../lab/lab.ts";
import { labPaths, STATE_VARIABLE } from "../../lab/layout.ts";
import {
  COMPLETE_ORGANISATIONS,
  type CompleteOrganisation,
  type ProgramName,
} from "../../lab/organisations.ts";
import { identityOf, type ProcessIdentity, signalProcess } from "../../lab/processes.ts";
import type { Proof } from "../../lab/proof/proof.ts";
import { readSeed, type Seed } from "../../lab/seed/seed-file.ts";
import { FedStatus } from "../../lab/status/schema.ts";
import { supervisorClient, type UnitStatus } from "../../lab/supervisor/client.ts";
import { systemClock } from "../../src/domain/clock.ts";
import { PUBLIC, writeWhole } from "../../src/runtime/write-file.ts";
import { type Finished, ROOT, run } from "./temporary.ts";

export interface ProofOutput extends Proof {
  readonly found: "running" | "repaired" | "started";
  readonly tookMs: number;
}

export class Fed {
  /** Labs whose files are not removed yet. */
  static readonly open = new Set<Fed>();
  /** With a space in its name, and closed to other users. */
  readonly state: string;

  constructor() {
    this.state = mkdtempSync(join(tmpdir(), "drawbridge lab "));
    Fed.open.add(this);
  }

  task(name: string, ...args: string[]): Promise<Finished> {
    return run(process.execPath, [join(ROOT, "tasks", "main.ts"), name, ...args], {
      env: { ...process.env, [STATE_VARIABLE]: this.state },
    });
  }

  /** Runs a task that reads these lines, and must succeed. */
  async goodWith(lines: readonly string[], name: string, ...args: string[]): Promise<string> {
    const ended = await run(process.execPath, [join(ROOT, "tasks", "main.ts"), name, ...args], {
      env: { ...process.env, [STATE_VARIABLE]: this.state },
      input: lines.map((line) => `${line}\n`).join(""),
    });
    assert.equal(ended.code, 0, `${name} ended with ${ended.code}:\n${ended.stderr}\n${ended.stdout}`);
    return ended.stdout;
  }

  /** Runs a task that must succeed. */
  async good(name: string, ...args: string[]): Promise<string> {
    const { code, stdout, stderr } = await this.task(name, ...args);
    assert.equal(code, 0, `${name} ${args.join(" ")} ended with ${code}:\n${stderr}\n${stdout}`);
    return stdout;
  }

  async up(...args: string[]): Promise<ProofOutput> {
    return JSON.parse(await this.good("fed:up", "--json", ...args));
  }

  async ask(...args: string[]): Promise<AskResult> {
    return JSON.parse(await this.good("fed:ask", "--json", ...args));
  }

  async status(...args: string[]): Promise<FedStatus> {
    return FedStatus.parse(JSON.parse((await this.task("fed:status", "--json", ...args)).stdout));
  }

  /** Waits until the status is as wanted. */
  async until(isSo: (status: FedStatus) => boolean, timeoutMs = 60_000): Promise<FedStatus> {
    const deadline = systemClock.now() + timeoutMs;
    for (;;) {
      const status = await this.status();
      if (isSo(status)) return status;
      assert.ok(systemClock.now() < deadline, `it did not become so: ${JSON.stringify(status, null, 1)}`);
      await systemClock.sleep(200);
    }
  }

  remove(): void {
    rmSync(this.state, { recursive: true, force: true });
    Fed.open.delete(this);
  }
}

/** What a test hands over so that its damage is repaired after it. */
export interface Fixes {
  after(hint: () => Promise<void> | void): void;
}

export type UnitName = "postgres" | `${CompleteOrganisation}/${ProgramName}`;

/** An entry of agents.yaml as a test edits it. */
export type AgentEntries = Record<string, Record<string, unknown>>;

export class LabSession {
  readonly lab: Lab;
  readonly seed: Seed;
  readonly status: FedStatus;
  readonly #fed: Fed;

  private constructor(fed: Fed, lab: Lab, seed: Seed, status: FedStatus) {
    this.#fed = fed;
    this.lab = lab;
    this.seed = seed;
    this.status = status;
  }

  /** Starts a lab as a person does; its proof must hold. */
  static async start(): Promise<LabSession> {
    const fed = new Fed();
    try {
      assert.deepEqual((await fed.up()).failures, []);
      const lab = readLab(labPaths(join(fed.state, "lab", "default")));
      const seed = lab === undefined ? undefined : readSeed(lab);
      assert.ok(lab !== undefined && seed !== undefined);
      const session = new LabSession(fed, lab, seed, await fed.status());
      // These tests edit by hand what the reconcilers would put right.
      for (const name of COMPLETE_ORGANISATIONS) await session.unit("stop", `${name}/reconciler`);
      return session;
    } catch (error) {
      await fed.task("fed:down", "--purge");
      fed.remove();
      throw error;
    }
  }

  async end(): Promise<void> {
    await this.#fed.good("fed:down", "--purge");
    this.#fed.remove();
  }

  /** What `fed:ask --chat` prints when a program gives it these lines. */
  chat(lines: readonly string[], ...args: string[]): Promise<string> {
    return this.#fed.goodWith(lines, "fed:ask", "--chat", ...args);
  }

  async unit(action: "start" | "stop" | "restart" | "kill", unit: UnitName): Promise<void> {
    await supervisorClient(this.lab).execute({ action, unit });
  }

  /** Stops a program until `start`, at the latest until the test ends. */
  async stop(repairs: Fixes, ...units: UnitName[]): Promise<void> {
    repairs.after(() => this.start(...units));
    await Promise.all(units.map((unit) => this.unit("stop", unit)));
  }

  /** Starts programs, if need be, and waits until they are ready. */
  async start(...units: UnitName[]): Promise<void> {
    await Promise.all(units.map((unit) => this.unit("start", unit)));
  }

  /** What the supervisor knows of a unit. */
  async unitStatus(unit: UnitName): Promise<UnitStatus> {
    const { units } = await supervisorClient(this.lab).status();
    const found = units.find(({ name }) => name === unit);
    assert.ok(found !== undefined);
    return found;
  }

  /** The process that runs a unit now. */
  async processOf(unit: UnitName): Promise<ProcessIdentity> {
    const { pid } = await this.unitStatus(unit);
    const identity = pid === null ? undefined : identityOf(pid);
    assert.ok(identity !== undefined, `${unit} does not run`);
    return identity;
  }

  /** Freezes a program: its connections stay open and nothing answers. Returns what thaws it. */
  async freeze(repairs: Fixes, unit: UnitName): Promise<() => void> {
    const identity = await this.processOf(unit);
    const thaw = () => {
      signalProcess(identity, "SIGCONT");
    };
    repairs.after(thaw);
    assert.ok(signalProcess(identity, "SIGSTOP"));
    return thaw;
  }

  /** Cuts the link between A's and B's homeservers; returns what heals it. */
  async cutLink(repairs: Fixes): Promise<() => Promise<void>> {
    const between: ["org-a", "org-b"] = ["org-a", "org-b"];
    const heal = () => supervisorClient(this.lab).execute({ action: "heal", between });
    repairs.after(heal);
    await supervisorClient(this.lab).execute({ action: "cut", between });
    return heal;
  }

  /** Changes sections of an organisation's bridge.yaml and restarts its bridge. */
  async configure(
    organisation: CompleteOrganisation,
    sections: Partial<Record<"limits" | "homeserver" | "listen", Readonly<Record<string, unknown>>>>,
  ): Promise<void> {
    const file = this.lab.paths.organisation(organisation).bridgeConfig;
    const config = parse(readFileSync(file, "utf8")) as Record<string, object>;
    for (const [name, settings] of Object.entries(sections)) config[name] = { ...config[name], ...settings };
    writeWhole(file, stringify(config), PUBLIC);
    await this.unit("restart", `${organisation}/bridge`);
  }

  agentsFile(organisation: CompleteOrganisation): string {
    return this.lab.paths.organisation(organisation).agentsFile;
  }

  /**
   * Edits an organisation's agents.yaml, while its bridge runs.
   * @returns puts the file back as it was, at the latest when the test ends
   */
  editAgents(
    repairs: Fixes,
    organisation: CompleteOrganisation,
    edit: (agents: AgentEntries) => void,
  ): () => void {
    const file = parse(readFileSync(this.agentsFile(organisation), "utf8")) as { agents: AgentEntries };
    edit(file.agents);
    return this.replaceAgents(repairs, organisation, stringify(file));
  }

  /** The same, with any text. */
  replaceAgents(repairs: Fixes, organisation: CompleteOrganisation, text: string): () => void {
    const file = this.agentsFile(organisation);
    const before = readFileSync(file, "utf8");
    const restore = () => writeWhole(file, before, PUBLIC);
    repairs.after(restore);
    writeWhole(file, text, PUBLIC);
    return restore;
  }

  /** The sum of a bridge's metric over all series that have these labels. */
  async metric(
    organisation: CompleteOrganisation,
    name: string,
    labels: Readonly<Record<string, string>> = {},
  ): Promise<number> {
    const wanted = Object.entries(labels).map(([label, value]) => `${label}="${value}"`);
    const series = (await this.metrics(organisation))
      .split("\n")
      .filter((line) => /^[^#{ ]+/.exec(line)?.[0] === name && wanted.every((label) => line.includes(label)));
    return series.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(" "))), 0);
  }

  async metrics(organisation: CompleteOrganisation): Promise<string> {
    const response = await fetch(this.#bridge(organisation).metricsUrl);
    return await response.text();
  }

  /** Rows of a bridge's own database. */
  rows<Row extends pg.QueryResultRow>(
    organisation: CompleteOrganisation,
    text: string,
    values: unknown[] = [],
  ): Promise<Row[]> {
    return query(this.#bridge(organisation).databaseUrl, text, values);
  }

  /** Rows as PostgreSQL's superuser. @param database any of the lab's; else the one for maintenance */
  administer<Row extends pg.QueryResultRow>(
    text: string,
    values: unknown[] = [],
    database = "postgres",
  ): Promise<Row[]> {
    const password = readFileSync(join(this.postgresHome, "password"), "utf8").trim();
    const url = `postgres://postgres:${password}@127.0.0.1:${this.lab.ports.postgres}/${database}`;
    return query(url, text, values);
  }

  /** The folder of PostgreSQL's data and log. */
  get postgresHome(): string {
    assert.ok(this.status.postgres.dataDirectory !== null);
    return dirname(this.status.postgres.dataDirectory);
  }

  /** Closes a bridge's database, and nobody else's; returns what opens it again. */
  async closeDatabase(repairs: Fixes, organisation: CompleteOrganisation): Promise<() => Promise<void>> {
    const name = bridgeDatabaseName(organisation);
    const open = async () => {
      await this.administer(`ALTER DATABASE ${name} ALLOW_CONNECTIONS true`);
    };
    repairs.after(open);
    await this.administer(`ALTER DATABASE ${name} ALLOW_CONNECTIONS false`);
    await this.administer("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", [
      name,
    ]);
    return open;
  }

  #bridge(organisation: CompleteOrganisation) {
    const { bridge } = this.status.organisations[organisation];
    assert.ok(bridge !== undefined);
    return bridge;
  }
}

/** Rows from a database, by a connection of its own. */
export async function query<Row extends pg.QueryResultRow>(
  url: string,
  text: string,
  values: unknown[],
): Promise<Row[]> {
  const client = new pg.Client({ connectionString: url });
  // A server that is stopped tells its open connections so.
  client.on("error", () => undefined);
  await client.connect();
  try {
    return (await client.query<Row>(text, values)).rows;
  } finally {
    await client.end();
  }
}

/** Polls a real server until something is so, and returns it. */
export async function eventually<Found>(
  what: string,
  poll: () => Promise<Found | false | undefined>,
  timeoutMs = 60_000,
): Promise<Found> {
  const deadline = systemClock.now() + timeoutMs;
  for (;;) {
    const found = await poll();
    if (found !== false && found !== undefined) return found;
    assert.ok(systemClock.now() < deadline, `in ${timeoutMs} ms it did not come to this: ${what}`);
    await systemClock.sleep(100);
  }
}
