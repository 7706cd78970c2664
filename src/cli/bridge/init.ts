// drawbridge bridge init: writes the folder that a bridge starts from. Invariant: nothing that is there already is touched.
import { join, resolve } from "node:path";
import { renderStartingFolder } from "../../bridge/setup/starting-folder.ts";
import { systemRandom } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { shellWord } from "../../domain/printable.ts";
import { createFile, requireAbsent } from "../../runtime/write-file.ts";
import { defineCommand, httpUrl, parser, printText, say, startingOptions } from "../lib/command.ts";

const port = parser("port number", (text) => {
  const number = Number(text);
  return Number.isInteger(number) && number >= 1 && number <= 65_535 ? number : undefined;
});
const variable = (text: string) => (/^[A-Z_][A-Z0-9_]*$/.test(text) ? text : undefined);
const VARIABLE = { default: "DATABASE_URL", parse: parser("environment variable's name", variable) } as const;

export const initCommand = defineCommand({
  options: [
    ...startingOptions("the bridge"),
    ["--appservice-url <url>", "the bridge as the homeserver reaches it", { parse: httpUrl }],
    ["--listen-port <port>", "where transactions come in", { default: 29_340, parse: port }],
    ["--observe-port <port>", "where /livez, /readyz and /metrics are", { default: 29_341, parse: port }],
    ["--database-env <name>", "the variable that holds the PostgreSQL database's URL", VARIABLE],
  ],
  run(_, options) {
    const { serverName, homeserverUrl, listenPort, observePort, databaseEnv } = options;
    if (listenPort === observePort) {
      throw new DrawbridgeError("usage", `${listenPort} is the port of both, transactions and /readyz`, {
        hint: "Name another by --listen-port or --observe-port; nothing was written.",
      });
    }
    const directory = resolve(options.directory);
    const appserviceUrl = options.appserviceUrl ?? `http://127.0.0.1:${listenPort}`;
    const addresses = { serverName, homeserverUrl, appserviceUrl, listenPort, observePort };
    const files = renderStartingFolder({ ...addresses, databaseUrlVariable: databaseEnv }, systemRandom);
    requireAbsent(Object.keys(files).map((name) => join(directory, name)));
    for (const [name, text] of Object.entries(files)) {
      createFile(join(directory, name), text);
      printText(`${join(directory, name)}\n`);
    }
    const config = join(directory, "bridge.yaml");
    say(`
Next:
  1. drawbridge bridge registration --config ${shellWord(config)}
  2. Add ${join(directory, "registration.yaml")} to app_service_config_files in homeserver.yaml,
     readable by the homeserver's user, and restart the homeserver.
  3. drawbridge card fetch URL, then add the agent to ${join(directory, "agents.yaml")}.
  4. ${databaseEnv}=postgres://… drawbridge bridge --config ${shellWord(config)}
  5. Invite @agent_NAME:SERVER to a room and mention it.`);
  },
});
