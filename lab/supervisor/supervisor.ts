// Keeps all programs of a lab running, and the network between its organisations.
// Invariant: every process it starts is on record before anything else happens, so that after a crash of
// the supervisor itself exactly these can be ended.
import { existsSync, rmSync } from "node:fs";
import * as z from "zod";
import type { Clock } from "../../src/domain/clock.ts";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { writeJson } from "../files.ts";
import { type Lab, readLab } from "../lab.ts";
import { ORGANISATION_NAMES, type OrganisationName, POSTGRES } from "../organisations.ts";
import { ProcessIdentity } from "../processes.ts";
import type { LabPrograms } from "../programs.ts";
import type { SupervisorCommand, SupervisorStatus } from "./client.ts";
import { ConnectProxy } from "./connect-proxy.ts";
import { launchCommand, launchPostgres } from "./launch.ts";
import { Unit } from "./unit-runner.ts";
import { dependantsOf, isReady, type UnitSpec, unitsOf } from "./unit-specs.ts";

/** processes.json: the process of each unit. */
export const ProcessRecord = z.record(z.string(), ProcessIdentity);

const PROBE_TIMEOUT_MS = 2_000;
const NEEDS_POLL_MS = 50;

export class Supervisor {
  #lab: Lab;
  readonly #programs: LabPrograms;
  readonly #clock: Clock;
  readonly #log: (message: string) => void;
  readonly #startedAt: number;
  readonly #units = new Map<string, Unit>();
  #specs: readonly UnitSpec[] = [];
  readonly #processes: Record<string, ProcessIdentity> = {};
  readonly #proxy: ConnectProxy<OrganisationName>;

  constructor(lab: Lab, programs: LabPrograms, clock: Clock, log: (message: string) => void) {
    this.#lab = lab;
    this.#programs = programs;
    this.#clock = clock;
    this.#log = log;
    this.#startedAt = clock.now();
    this.#proxy = proxyOf(lab);
    this.#addUnits(lab);
  }

  /** Makes the units of the lab that this supervisor does not have yet, and returns them. */
  #addUnits(lab: Lab): Unit[] {
    this.#lab = lab;
    this.#specs = unitsOf(lab, this.#programs);
    const added = this.#specs.filter(({ name }) => !this.#units.has(name)).map((spec) => this.#unitOf(spec));
    for (const unit of added) this.#units.set(unit.spec.name, unit);
    return added;
  }

  #unitOf(spec: UnitSpec): Unit {
    const logFile = this.#lab.paths.log(spec.name);
    const { program } = spec;
    const log = this.#log;
    return new Unit(spec, {
      clock: this.#clock,
      log,
      logFile,
      launch: () =>
        program === "postgres"
          ? launchPostgres(this.#lab, this.#clock, log)
          : launchCommand(program, logFile),
      isReady: async () => spec.ready === undefined || (await isReady(spec.ready, PROBE_TIMEOUT_MS)),
      onProcess: (identity) => this.#record(spec.name, identity),
    });
  }

  /** Opens the network, then starts everything, each program as soon as what it needs is ready. */
  async start(): Promise<void> {
    await this.#proxy.listen();
    for (const unit of this.#units.values()) unit.start(this.#afterDependencies(unit));
  }

  /** Stops everything, what depends on others first. */
  async shutdown(): Promise<void> {
    const stopping = new Map<string, Promise<void>>();
    const stop = (name: string): Promise<void> => {
      const known = stopping.get(name);
      if (known !== undefined) return known;
      const done = Promise.all(dependantsOf(this.#specs, name).map((spec) => stop(spec.name))).then(() =>
        this.#units.get(name)?.stop(),
      );
      stopping.set(name, done);
      return done;
    };
    await Promise.all(this.#specs.map((spec) => stop(spec.name)));
    await this.#proxy.close();
    rmSync(this.#lab.paths.processes, { force: true });
  }

  status(): SupervisorStatus {
    return {
      pid: process.pid,
      startedAt: this.#startedAt,
      units: [...this.#units.values()].map((unit) => unit.status()),
      cutLinks: this.#proxy.cutLinks().map(([one, other]) => [one, other]),
    };
  }

  /**
   * Carries out a command. Resolves when it is done: a started program is ready then.
   * @throws DrawbridgeError `usage` when there is no such unit
   */
  async execute(command: Exclude<SupervisorCommand, { action: "shutdown" }>): Promise<void> {
    this.#log(JSON.stringify(command));
    if (command.action === "cut") return this.#proxy.cut(...command.between);
    if (command.action === "heal") return this.#proxy.heal(...command.between);
    if (command.action === "extend") return this.#extend();
    const unit = this.#units.get(command.unit);
    if (unit === undefined) {
      throw new DrawbridgeError("usage", `there is no unit ${command.unit}`, {
        hint: `The units are: ${this.#specs.map((spec) => spec.name).join(", ")}.`,
      });
    }
    switch (command.action) {
      case "kill":
        return unit.kill();
      case "stop":
        return unit.stop();
      case "restart":
        await unit.stop();
        unit.start();
        return unit.ready();
      case "start":
        unit.start();
        return unit.ready();
    }
  }

  async #extend(): Promise<void> {
    const lab = readLab(this.#lab.paths);
    if (lab === undefined) throw new DrawbridgeError("usage", "the lab's file is gone");
    const added = this.#addUnits(lab);
    if (added.length === 0) return;
    // The server runs; this makes the databases that it does not have yet.
    await this.#units.get(POSTGRES)?.ready();
    await launchPostgres(lab, this.#clock, this.#log);
    for (const unit of added) unit.start(this.#afterDependencies(unit));
  }

  async #afterDependencies(unit: Unit): Promise<void> {
    await Promise.all(unit.spec.after.map((name) => this.#units.get(name)?.ready()));
    const isMissing = () => unit.spec.needs?.some((file) => !existsSync(file)) === true;
    while (isMissing() && unit.status().state === "waiting") await this.#clock.sleep(NEEDS_POLL_MS);
  }

  #record(name: string, identity: ProcessIdentity | undefined): void {
    if (identity === undefined) delete this.#processes[name];
    else this.#processes[name] = identity;
    writeJson(this.#lab.paths.processes, this.#processes);
    this.#log(identity === undefined ? `${name} has ended` : `${name} has started as ${identity.pid}`);
  }
}

function proxyOf(lab: Lab): ConnectProxy<OrganisationName> {
  const { organisations } = lab.ports;
  const entries = ORGANISATION_NAMES.map((name) => [name, organisations[name].proxy] as const);
  return new ConnectProxy<OrganisationName>({
    ports: Object.fromEntries(entries) as Record<OrganisationName, number>,
    servers: new Map(
      ORGANISATION_NAMES.map((organisation) => [
        lab.serverNames[organisation],
        { organisation, port: organisations[organisation].federation },
      ]),
    ),
  });
}
