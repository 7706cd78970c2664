// drawbridge bridge: runs the bridge of one organisation, or prepares it. Invariants: `init` touches nothing that is there
// already; a registration with other tokens is not overwritten unless asked for, because a homeserver that still has the
// old one would be cut off.
import { join, resolve } from "node:path";
import { parse } from "yaml";
import { loadBridgeConfig } from "../bridge/config.ts";
import { onDatabase } from "../bridge/database.ts";
import { acceptDatabase } from "../bridge/ledger/database-marker.ts";
import { runBridge } from "../bridge/process.ts";
import { type AppserviceTokens, renderRegistration } from "../bridge/setup/registration.ts";
import { renderStartingFolder } from "../bridge/setup/starting-folder.ts";
import { systemClock, systemRandom } from "../domain/clock.ts";
import { DrawbridgeError } from "../domain/errors.ts";
import { shellWord } from "../domain/printable.ts";
import { readSecret } from "../runtime/secrets.ts";
import { serviceLog, stopSignal } from "../runtime/service.ts";
import { createFile, readIfPresent, replacePrivateFile, requireAbsent } from "../runtime/write-file.ts";
import { defineCommand, fromConfigFile, httpUrl, OPTION, parser, startingOptions } from "./lib/command.ts";
import { print, printText, say } from "./lib/output.ts";

export const command = defineCommand({
  options: [OPTION.bridge],
  help: `
Runs in the foreground until SIGTERM, then drains. The log is one JSON object a line, without content.
/livez, /readyz and /metrics are served at the address that \`observe\` names in the configuration.`,
  async run(_, options) {
    const config = fromConfigFile(options.config, "bridge", loadBridgeConfig);
    const { level, file } = config.log;
    const to = file === undefined ? {} : { file: resolve(config.directory, file) };
    const log = serviceLog("bridge", { level, ...to });
    await runBridge({ config, clock: systemClock, random: systemRandom, log, stop: stopSignal() });
  },
});

const port = parser("port number", (text) => {
  const number = Number(text);
  return Number.isInteger(number) && number >= 1 && number <= 65_535 ? number : undefined;
});
const variable = parser("name of an environment variable", (text) =>
  /^[A-Z_][A-Z0-9_]*$/.test(text) ? text : undefined,
);

export const initCommand = defineCommand({
  options: [
    ...startingOptions("the bridge"),
    ["--appservice-url <url>", "the bridge as the homeserver reaches it", { parse: httpUrl }],
    ["--listen-port <port>", "where transactions come in", { default: 29_340, parse: port }],
    ["--observe-port <port>", "where /livez, /readyz and /metrics are", { default: 29_341, parse: port }],
    [
      "--database-env <name>",
      "the variable that holds the PostgreSQL database's URL",
      { default: "DATABASE_URL", parse: variable },
    ],
  ],
  run(_, options) {
    const { serverName, homeserverUrl, listenPort, observePort } = options;
    if (listenPort === observePort) {
      throw new DrawbridgeError("usage", `${listenPort} is the port of both, transactions and /readyz`, {
        hint: "Name another by --listen-port or --observe-port; nothing was written.",
      });
    }
    const directory = resolve(options.directory);
    const files = renderStartingFolder(
      {
        ...{ serverName, homeserverUrl, listenPort, observePort },
        appserviceUrl: options.appserviceUrl ?? `http://127.0.0.1:${listenPort}`,
        databaseUrlVariable: options.databaseEnv,
      },
      systemRandom,
    );
    requireAbsent(Object.keys(files).map((name) => join(directory, name)));
    for (const [name, text] of Object.entries(files)) {
      createFile(join(directory, name), text);
      printText(`${join(directory, name)}\n`);
    }
    say(nextSteps(directory, options.databaseEnv));
  },
});

function nextSteps(directory: string, database: string): string {
  const config = join(directory, "bridge.yaml");
  return `
Next:
  1. drawbridge bridge registration --config ${shellWord(config)}
  2. Add ${join(directory, "registration.yaml")} to app_service_config_files in homeserver.yaml,
     readable by the homeserver's user, and restart the homeserver.
  3. drawbridge card fetch URL, then add the agent to ${join(directory, "agents.yaml")}.
  4. ${database}=postgres://… drawbridge bridge --config ${shellWord(config)}
  5. Invite @agent_NAME:SERVER to a room and mention it.`;
}

export const registrationCommand = defineCommand({
  options: [
    OPTION.bridge,
    ["-o, --output <file>", "where to write it; beside the configuration when absent"],
    ["--force", "replace a registration that has other tokens"],
  ],
  run(_, options) {
    const config = fromConfigFile(options.config, "bridge", loadBridgeConfig);
    const tokens = {
      asToken: readSecret(config.appservice.asToken, config.directory),
      hsToken: readSecret(config.appservice.hsToken, config.directory),
    };
    const rendered = renderRegistration(config, tokens);
    const file = resolve(options.output ?? join(config.directory, "registration.yaml"));
    if (options.force !== true && !isSafeToReplace(file, tokens)) {
      throw new DrawbridgeError("usage", `${file} holds another registration`, {
        hint: "If the homeserver is to learn the new tokens, run it again with --force, then restart the homeserver.",
      });
    }
    replacePrivateFile(file, rendered);
    printText(`${file}\n`);
    say("Add it to app_service_config_files in homeserver.yaml and restart the homeserver.");
  },
});

function isSafeToReplace(file: string, tokens: AppserviceTokens): boolean {
  try {
    const text = readIfPresent(file);
    if (text === undefined) return true;
    const found = parse(text) as { as_token?: unknown; hs_token?: unknown } | null;
    return found?.as_token === tokens.asToken && found.hs_token === tokens.hsToken;
  } catch {
    return false;
  }
}

export const migrateCommand = defineCommand({
  options: [OPTION.bridge, OPTION.json],
  help: `
A bridge does the same when it starts. Where its role may not change the schema, run this before, with the URL of a
role that may, such as DATABASE_URL=postgres://owner@… drawbridge bridge migrate. Bridges that run go on meanwhile.`,
  async run(_, options) {
    const config = fromConfigFile(options.config, "bridge", loadBridgeConfig);
    const applied = await onDatabase(config, async (_, migrated) => migrated);
    print(options, { applied }, () =>
      applied === 0 ? "The database is up to date.\n" : `Migrations applied: ${applied}.\n`,
    );
  },
});

export const acceptRestoredDatabaseCommand = defineCommand({
  options: [OPTION.bridge, OPTION.json],
  help: `
A bridge refuses to start on a database that is older than what it has told the homeserver: what was done since the
backup would be done again. This command cancels every question that is open in the database, because it may have been
answered since, and has nothing read that was written since the backup: whoever asked meanwhile without an answer asks
again. Stop every bridge first.`,
  async run(_, options) {
    const config = fromConfigFile(options.config, "bridge", loadBridgeConfig);
    const { noticeInterval } = config.limits;
    const ended = await onDatabase(config, (pool) => acceptDatabase(pool, systemClock.now(), noticeInterval));
    const what = `${ended.delegations} questions and ${ended.envelopes} encrypted events that waited`;
    print(options, ended, () => `Canceled: ${what}. Bridges may start.\n`);
  },
});
