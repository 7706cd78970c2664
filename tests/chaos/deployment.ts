// A lab whose first organisation has three bridge processes on one database, behind a load balancer, and whose second
// publishes the agent that is asked. Its programs are killed and frozen, and its links disturbed, as a schedule says.
// Invariants: after `recovered` nothing is disturbed any more; only processes of this lab are signalled, by their recorded identities; the lab's programs are gone when
// it ends; what is to be looked at is copied before.
import { cpSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";
import type { TestContext } from "node:test";
import { pathToFileURL } from "node:url";
import { homeserverEndpoints, serviceEndpoints } from "../../lab/endpoints.ts";
import { type Lab, readLab } from "../../lab/lab.ts";
import { labPaths } from "../../lab/layout.ts";
import { unitName } from "../../lab/organisations.ts";
import { freePort } from "../../lab/ports.ts";
import {
  childrenOf,
  identityOf,
  LAB_ID_VARIABLE,
  type ProcessIdentity,
  signalProcess,
} from "../../lab/processes.ts";
import { seedOf } from "../../lab/random-operations/perform.ts";
import type { Seed } from "../../lab/seed/seed-file.ts";
import { supervisorClient } from "../../lab/supervisor/client.ts";
import { systemClock } from "../../src/domain/clock.ts";
import { editYaml } from "../../src/runtime/edit-yaml.ts";
import { PRIVATE, PUBLIC, writeWhole } from "../../src/runtime/write-file.ts";
import { eventually } from "../support/encrypted-bridge.ts";
import { Fed, query } from "../support/lab-session.ts";
import { type Balanced, startLoadBalancer } from "../support/load-balancer.ts";
import { cliMain, ROOT, type Running, start } from "../support/temporary.ts";
import { startAgentProxy } from "./agent-proxy.ts";
import { OFFSET_FILE } from "./clock-offset.ts";
import { containAndRestore } from "./containment.ts";
import {
  type AgentFault,
  BRIDGES,
  type BridgeName,
  type Fault,
  type LinkFault,
  type LinkName,
  type ServerProgram,
  type Target,
} from "./schedule.ts";
import { TcpLink } from "./tcp-link.ts";
import { documentOf } from "./topics.ts";

/** A request waits about so many times 50 ms for a process that takes it. */
const BALANCER_TRIES = 20;
const READY_MS = 120_000;
const CLOCK_OFFSET = pathToFileURL(join(ROOT, "tests/chaos/clock-offset.ts")).href;

/** The unit that a program belongs to. The agent, its gateway and its issuer are those of the second organisation. */
const UNITS: Readonly<Record<ServerProgram, string>> = {
  postgres: "postgres",
  homeserver: unitName("org-a", "homeserver"),
  envoy: unitName("org-b", "gateway"),
  issuer: unitName("org-b", "issuer"),
  agent: unitName("org-b", "agent"),
};

/** Shorter waits for what does not answer, so that a round does not take minutes. */
const BRIDGE_SETTINGS = [
  { path: ["homeserver", "requestTimeout"], value: "10s" },
  { path: ["limits", "agentRequestTimeout"], value: "5s" },
  { path: ["encryption", "keyWait"], value: "10s" },
];
/** Long enough to be canceled meanwhile. */
const SURVEY_TIME = "3s";

interface Slot {
  readonly configFile: string;
  readonly offsetFile: string;
  readonly listenPort: number;
  readonly observePort: number;
  running: Running | undefined;
}

const isBridge = (target: Target): target is BridgeName => (BRIDGES as readonly string[]).includes(target);

export class Deployment {
  readonly lab: Lab;
  readonly seed: Seed;
  readonly #fed: Fed;
  readonly #slots = new Map<BridgeName, Slot>();
  /** Ends of the recoveries that are under way, one after the other of each unit. */
  readonly #recoveries = new Map<string, Promise<void>>();
  readonly #links = new Map<string, TcpLink>();
  readonly #cleanups: (() => unknown)[] = [];
  #agentFault: AgentFault | undefined;
  #isEnding = false;

  private constructor(fed: Fed, lab: Lab) {
    this.#fed = fed;
    this.lab = lab;
    this.seed = seedOf(lab);
  }

  /** @param onAgentRequest called with the body of each request that reaches the agent */
  static async start(onAgentRequest: (body: string) => void): Promise<Deployment> {
    const fed = new Fed();
    try {
      await fed.up();
      const lab = readLab(labPaths(join(fed.state, "lab", "default")));
      if (lab === undefined) throw new Error("the lab has no file");
      const deployment = new Deployment(fed, lab);
      await deployment.#arrangeAgent(onAgentRequest);
      await deployment.#arrangeBridges();
      await deployment.#checkpoint();
      return deployment;
    } catch (error) {
      await fed.task("fed:down", "--purge");
      fed.remove();
      throw error;
    }
  }

  /** Makes a fault; resolves when it is over, or, of a kill, when the program is killed. @returns what it has shown wrong */
  async inflict(fault: Fault): Promise<readonly string[]> {
    if (fault.kind === "contain") return await containAndRestore(this.lab, "org-b");
    await this.#inflict(fault);
    return [];
  }

  async #inflict(fault: Exclude<Fault, { kind: "contain" }>): Promise<void> {
    switch (fault.kind) {
      case "kill":
        return await this.#kill(fault.target);
      case "freeze":
        return await this.#freeze(fault.target, fault.forMs);
      case "link":
        return await this.#disturb(fault.link, fault.as, fault.forMs);
      case "clock":
        return writeFileSync(this.#slot(fault.target).offsetFile, String(fault.byMs));
      case "agent":
        this.#agentFault = fault.answers;
        await systemClock.sleep(fault.forMs);
        this.#agentFault = undefined;
    }
  }

  /** Kills a program at once, and starts it again. */
  async #kill(target: Target): Promise<void> {
    if (isBridge(target)) {
      await this.#killBridge(target);
      return;
    }
    const unit = UNITS[target];
    await this.#recoveries.get(unit);
    const identity = await this.#processOf(target);
    if (identity !== undefined) signalProcess(identity, target === "postgres" ? "SIGQUIT" : "SIGKILL");
    // The supervisor starts it again by itself, but ever more slowly; this begins anew.
    this.#recoveries.set(unit, supervisorClient(this.lab).execute({ action: "restart", unit }));
  }

  /** Resolves when everything works again. */
  async recovered(): Promise<void> {
    for (const { offsetFile } of this.#slots.values()) writeFileSync(offsetFile, "0");
    await Promise.all(this.#recoveries.values());
    this.#recoveries.clear();
    await Promise.all(
      [...this.#slots].map(([name, slot]) =>
        eventually(`${name} takes transactions`, () => isReady(slot.observePort), READY_MS),
      ),
    );
  }

  /** @param keptIn a folder that the lab's files are copied to, the databases' aside */
  async end(keptIn?: string): Promise<void> {
    this.#isEnding = true;
    for (const { running } of this.#slots.values()) {
      running?.child.kill("SIGKILL");
      await running?.finished;
    }
    for (const clean of this.#cleanups.reverse()) await clean();
    await Promise.allSettled(this.#recoveries.values());
    if (keptIn !== undefined) {
      const { directory, postgres, logs } = this.lab.paths;
      const { logFile } = JSON.parse(readFileSync(this.lab.paths.postgresPlace, "utf8")) as {
        logFile: string;
      };
      rmSync(keptIn, { recursive: true, force: true });
      cpSync(logFile, join(logs, "postgres.log"));
      cpSync(directory, keptIn, { recursive: true, filter: (file) => file !== postgres });
    }
    await this.#fed.task("fed:down", "--purge");
    this.#fed.remove();
  }

  /** The agent answers from a document of known sections, and listens behind a proxy. */
  async #arrangeAgent(onRequest: (body: string) => void): Promise<void> {
    const { agentConfig, agentDocuments } = this.lab.paths.organisation("org-b");
    const { port } = new URL(serviceEndpoints(this.lab, "org-b").agentUrl);
    const target = await freePort();
    writeWhole(join(agentDocuments, "topics.md"), documentOf(), PUBLIC);
    const edits = [
      { path: ["listen", "port"], value: target },
      { path: ["surveyTime"], value: SURVEY_TIME },
    ];
    writeWhole(agentConfig, editYaml(readFileSync(agentConfig, "utf8"), edits), PUBLIC);
    const unit = UNITS.agent;
    await supervisorClient(this.lab).execute({ action: "stop", unit });
    const fault = () => this.#agentFault;
    const proxyPort = await startAgentProxy(this.#disposer, { target, onRequest, fault });
    await this.#link("gateway to the agent", proxyPort, Number(port));
    await supervisorClient(this.lab).execute({ action: "start", unit });
  }

  async #arrangeBridges(): Promise<void> {
    const { bridge, bridgeConfig, bridgeSecret } = this.lab.paths.organisation("org-a");
    const database = new URL(readFileSync(bridgeSecret("database-url"), "utf8").trim());
    const homeserver = new URL(homeserverEndpoints(this.lab, "org-a").clientUrl);
    const ports = this.lab.ports.organisations["org-a"];
    await supervisorClient(this.lab).execute({ action: "stop", unit: unitName("org-a", "bridge") });
    const configuration = readFileSync(bridgeConfig, "utf8");
    for (const name of BRIDGES) {
      const slot = {
        configFile: join(bridge, `${name}.yaml`),
        offsetFile: join(bridge, `${name}-clock`),
        listenPort: await freePort(),
        // Whoever asks the bridge how it is reaches the first of them.
        observePort: name === BRIDGES[0] ? ports.observe : await freePort(),
        running: undefined,
      };
      database.port = String(await this.#link(`${name} to the database`, this.lab.ports.postgres));
      writeWhole(bridgeSecret(`${name}-database-url`), database.href, PRIVATE);
      const homeserverPort = this.lab.ports.organisations["org-a"].client;
      homeserver.port = String(await this.#link(`${name} to the homeserver`, homeserverPort));
      const edits = [
        ...BRIDGE_SETTINGS,
        { path: ["homeserver", "url"], value: homeserver.origin },
        { path: ["database", "url", "file"], value: bridgeSecret(`${name}-database-url`) },
        { path: ["listen", "port"], value: slot.listenPort },
        { path: ["observe", "port"], value: slot.observePort },
      ];
      writeFileSync(slot.offsetFile, "0");
      writeWhole(slot.configFile, editYaml(configuration, edits), PRIVATE);
      this.#slots.set(name, slot);
    }
    const balanced: Balanced = {
      ports: [...this.#slots.values()].map(({ listenPort }) => listenPort),
      turn: 0,
      failed: 0,
      tries: BALANCER_TRIES,
    };
    await startLoadBalancer(this.#disposer, ports.bridge, balanced);
    for (const name of BRIDGES) this.#startBridge(name);
    await this.recovered();
  }

  /** What the lab's start wrote is not to be recovered after the first crash of the database. */
  async #checkpoint(): Promise<void> {
    const { postgresPlace } = this.lab.paths;
    const { dataDirectory } = JSON.parse(readFileSync(postgresPlace, "utf8")) as { dataDirectory: string };
    const password = readFileSync(join(dirname(dataDirectory), "password"), "utf8").trim();
    const url = `postgres://postgres:${password}@127.0.0.1:${this.lab.ports.postgres}/postgres`;
    await query(url, "CHECKPOINT", []);
  }

  get #disposer(): Pick<TestContext, "after"> {
    return { after: (clean: () => unknown) => void this.#cleanups.push(clean) } as Pick<TestContext, "after">;
  }

  #startBridge(name: BridgeName): void {
    const slot = this.#slot(name);
    if (this.#isEnding) return;
    const env = { ...process.env, [LAB_ID_VARIABLE]: this.lab.id, [OFFSET_FILE]: slot.offsetFile };
    const words = ["--import", CLOCK_OFFSET, cliMain(), "bridge", "--config", slot.configFile];
    const running = start(process.execPath, words, { env });
    slot.running = running;
    // One that ends by itself, as when the database is away at its start, is started again as a service manager does.
    void running.finished.then(() => {
      if (slot.running === running) this.#startBridge(name);
    });
  }

  #slot(name: BridgeName): Slot {
    const slot = this.#slots.get(name);
    if (slot === undefined) throw new TypeError(`there is no ${name}`);
    return slot;
  }

  /** Makes a link to a port of this machine. @returns where it listens */
  async #link(name: LinkName, target: number, port?: number): Promise<number> {
    const link = new TcpLink(target);
    this.#links.set(name, link);
    this.#cleanups.push(() => link.close());
    return await link.listen(port);
  }

  async #disturb(name: LinkName, as: LinkFault, forMs: number): Promise<void> {
    const between: ["org-a", "org-b"] = ["org-a", "org-b"];
    if (name === "homeservers") await supervisorClient(this.lab).execute({ action: "cut", between });
    else this.#links.get(name)?.set(as);
    await systemClock.sleep(forMs);
    if (name === "homeservers") await supervisorClient(this.lab).execute({ action: "heal", between });
    else this.#links.get(name)?.set("open");
  }

  async #freeze(target: Target, forMs: number): Promise<void> {
    const identity = await this.#processOf(target);
    if (identity === undefined) return;
    signalProcess(identity, "SIGSTOP");
    await systemClock.sleep(forMs);
    signalProcess(identity, "SIGCONT");
  }

  async #processOf(target: Target): Promise<ProcessIdentity | undefined> {
    if (isBridge(target)) {
      const pid = this.#slot(target).running?.child.pid;
      return pid === undefined ? undefined : identityOf(pid);
    }
    const { units } = await supervisorClient(this.lab).status();
    const pid = units.find(({ name }) => name === UNITS[target])?.pid ?? undefined;
    return pid === undefined ? undefined : processToKill(target, pid);
  }

  async #killBridge(name: BridgeName): Promise<void> {
    const { running } = this.#slot(name);
    running?.child.kill("SIGKILL");
    await running?.finished;
  }
}

/** Envoy is a child of the gateway's program. */
function processToKill(target: ServerProgram, pid: number): ProcessIdentity | undefined {
  if (target !== "envoy") return identityOf(pid);
  const [envoy] = childrenOf(pid);
  return envoy === undefined ? undefined : identityOf(envoy);
}

async function isReady(observePort: number): Promise<true> {
  const answer = await fetch(`http://127.0.0.1:${observePort}/readyz`, {
    signal: AbortSignal.timeout(2_000),
  });
  if (answer.ok) return true;
  throw new Error(await answer.text());
}
