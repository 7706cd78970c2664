// Plane 1 on a homeserver: the include file, and a restart when it is needed. Invariants: a whitelist that cuts off whom
// the registry admits is never written; the intent to restart is durable before the file changes; restarts stay within
// their limit across crashes; in force is only what the running homeserver names, exactly the declared servers.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { statSync } from "node:fs";
import { join, resolve } from "node:path";
import * as z from "zod";
import type { Clock } from "../../../domain/clock.ts";
import { sha256Tagged } from "../../../domain/digest.ts";
import { DrawbridgeError, undefinedFor } from "../../../domain/errors.ts";
import { parseJson } from "../../../domain/json.ts";
import { pollUntil } from "../../../runtime/concurrency.ts";
import { parseYaml } from "../../../runtime/load-yaml.ts";
import { readSecret } from "../../../runtime/secrets.ts";
import { PRIVATE, readIfPresent, writeWhole } from "../../../runtime/write-file.ts";
import type { FederationConfig } from "../../config.ts";
import { readResource, resourceUrl } from "../../homeserver/api.ts";
import { borderStatus } from "../border/runtime.ts";
import { applyFile, fileDrift, standingText } from "../file-target.ts";
import { assertAdmits, type Note, observer, outcomeOf, type PlaneRuntime, renderedText } from "../plane.ts";
import { TRANSPORT_INCLUDE, TransportInclude } from "./render.ts";

const UNLESS_DOWN = undefinedFor("homeserver_unavailable");

export function transportRuntime(config: FederationConfig, clock: Clock): PlaneRuntime {
  const target = resolve(config.directory, config.transport.includeFile);
  const recordFile = join(resolve(config.directory, config.state), "transport.json");

  /** A damaged record is a restart that is due, and all others but one made when it was written, so that no loop begins. */
  function readRecord(): RestartRecord {
    const text = readIfPresent(recordFile);
    if (text === undefined) return { pending: null, restarts: [] };
    const known = Record.safeParse(parseJson(text)).data;
    if (known !== undefined) return known;
    const writtenAt = Math.trunc(statSync(recordFile).mtimeMs);
    const restarts = Array.from({ length: config.transport.restart.maxPerHour - 1 }, () => writtenAt);
    return { pending: "unknown", restarts };
  }

  function writeRecord(record: RestartRecord): void {
    writeWhole(recordFile, `${JSON.stringify({ version: 1, ...record })}\n`, PRIVATE);
  }

  async function restart(include: Include, note: Note) {
    const { maxPerHour, timeout } = config.transport.restart;
    const now = clock.now();
    // A time in the future was written by a wrong clock.
    const recent = readRecord().restarts.filter((at) => at <= now && now - at < HOUR_MS);
    const blocking = recent[recent.length - maxPerHour];
    if (blocking !== undefined)
      return { state: "deferred", reason: "restart_limit", retryAfterMs: blocking + HOUR_MS - now } as const;
    const startedBefore = await startedAt();
    const restarts = [...recent, now];
    writeRecord({ pending: sha256Tagged(include.text), restarts });
    note("restarting the homeserver for a changed whitelist");
    await runRestartCommand(config);
    const wait = { withinMs: now + timeout - clock.now(), everyMs: 100 };
    if (!(await pollUntil(clock, wait, () => isBack(include, startedBefore), Boolean))) {
      const what = "the homeserver did not come back with the declared whitelist in time";
      throw new DrawbridgeError("homeserver_unavailable", what, {
        hint: "Read the homeserver's log; see that it reads transport.includeFile, and that the restart command restarts it.",
      });
    }
    writeRecord({ pending: null, restarts });
    note(`the homeserver runs with ${include.whitelist.length} servers, ${clock.now() - now} ms`);
    return { state: "in_force", changed: true } as const;
  }

  async function startedAt(): Promise<string | undefined> {
    // Without its status only the whitelist distinguishes an old process from a new one.
    return (await borderStatus(config).status().catch(undefinedFor()))?.started_at;
  }

  async function isBack(include: Include, before: string | undefined) {
    if (!isInForce(await runningWhitelist(config).catch(UNLESS_DOWN), include)) return false;
    const now = await startedAt();
    return before === undefined || (now !== undefined && now !== before);
  }

  return {
    async apply(desired, note) {
      const include = includeIn(renderedText(desired, TRANSPORT_INCLUDE));
      assertAdmits(desired.registry, "transport", TRANSPORT_INCLUDE, include.whitelist);
      const digest = sha256Tagged(include.text);
      if (standingText(target) !== include.text) writeRecord({ ...readRecord(), pending: digest });
      const changed = applyFile(target, include.text);

      const running = await runningWhitelist(config).catch(UNLESS_DOWN);
      const isPending = readRecord().pending !== null;
      if (running === undefined && !isPending)
        return outcomeOf([{ changed, deferred: "homeserver_unavailable" }]);
      if (!isPending && isInForce(running, include)) return { state: "in_force", changed };
      return restart(include, note);
    },

    async drift(desired) {
      const include = includeIn(renderedText(desired, TRANSPORT_INCLUDE));
      const drift = fileDrift(target, include.text);
      if (drift !== undefined) return [drift];
      const running = await runningWhitelist(config);
      if (isInForce(running, include)) return [];
      const found = running.enabled ? running.digest : null;
      return [{ subject: "federation_domain_whitelist", kind: "not_in_force", found }];
    },

    async probe(_desired, { partner }) {
      const { serverName } = partner;
      const observe = observer(clock, "transport", serverName);
      const item = await observe("whitelist", "homeserver", serverName, async () => {
        const running = await runningWhitelist(config).catch(UNLESS_DOWN);
        if (running === undefined) return { verdict: "unknown", reason: "homeserver_unavailable" };
        const found = { status: 200, references: [running.digest] };
        if (!running.enabled || running.servers.includes(serverName)) return { ...found, verdict: "open" };
        return { ...found, verdict: "closed", reason: "not_in_whitelist" };
      });
      return [item];
    },
  };
}

type Include = ReturnType<typeof includeIn>;

function includeIn(text: string) {
  const include = parseYaml(TransportInclude, text, `rendered/${TRANSPORT_INCLUDE}`);
  return { text, whitelist: [...new Set(include.federation_domain_whitelist)].sort() };
}

/** Runs the command without a shell; nothing that it prints is kept. @throws DrawbridgeError `program_failed` */
async function runRestartCommand({ directory, transport }: FederationConfig): Promise<void> {
  const { command, timeout } = transport.restart;
  const [program = "", ...args] = command;
  const signal = AbortSignal.timeout(timeout);
  const child = spawn(program, args, { cwd: directory, stdio: "ignore", signal, killSignal: "SIGKILL" });
  const outcome = await once(child, "exit").then(
    ([code, killedBy]) => (code === 0 ? undefined : `ended with ${killedBy ?? `exit code ${code}`}`),
    ({ name, code }: NodeJS.ErrnoException) =>
      name === "AbortError" ? "did not end in time" : `could not be run: ${code ?? name}`,
  );
  if (outcome === undefined) return;
  throw new DrawbridgeError("program_failed", `the homeserver's restart command ${outcome}`, {
    hint: "Run the command of transport.restart by hand, and correct what it reports; the include file is written.",
  });
}

const HOUR_MS = 3_600_000;

const Record = z.strictObject({
  version: z.literal(1),
  /** SHA-256, tagged, of the include file that awaits a restart; null when none does. */
  pending: z.string().nullable(),
  /** Milliseconds since the epoch, oldest first, of the last hour. */
  restarts: z.array(z.number()),
});
type RestartRecord = Omit<z.output<typeof Record>, "version">;

const PATH = "/_synapse/client/v1/config/federation_whitelist";
const Answer = z.object({ whitelist_enabled: z.boolean(), whitelist: z.array(z.string()) });

const ABOUT = {
  what: "the homeserver's federation whitelist",
  down: "Start the homeserver.",
  hints: {
    404: "Have the homeserver read transport.includeFile beside homeserver.yaml (--config-path), and restart it once.",
    other: "Check the token that homeserver.operatorToken names.",
  },
} as const;

/** Without a whitelist that is enabled, every server is admitted. */
type RunningWhitelist = Awaited<ReturnType<typeof runningWhitelist>>;

/** @throws DrawbridgeError `homeserver_unavailable`, `homeserver_refused`, `secret_unavailable` */
async function runningWhitelist({ homeserver, directory }: FederationConfig) {
  const token = readSecret(homeserver.operatorToken, directory);
  const answer = await readResource(Answer, resourceUrl(homeserver.url, PATH), { token }, ABOUT);
  const servers = [...new Set(answer.whitelist)].sort();
  return { enabled: answer.whitelist_enabled, servers, digest: whitelistDigest(servers) };
}

function isInForce(running: RunningWhitelist | undefined, include: Include): boolean {
  return running?.enabled === true && running.digest === whitelistDigest(include.whitelist);
}

function whitelistDigest(servers: readonly string[]): string {
  return sha256Tagged(servers.map((server) => `${server}\n`).join(""));
}
