// drawbridge bridge init: writes the folder a new bridge starts from, and says what to do next.
// Invariant: nothing that is there already is touched.
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { renderStartingFolder } from "../../bridge/setup/starting-folder.ts";
import { systemRandom } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { shellWord } from "../../domain/printable.ts";
import { createPrivateFile } from "../../runtime/write-file.ts";
import { defineCommand } from "../lib/command.ts";
import { httpUrl, parser, serverName } from "../lib/option-values.ts";
import { printText, say } from "../lib/output.ts";

const port = parser("port number", (text) => {
  const number = Number(text);
  return Number.isInteger(number) && number >= 1 && number <= 65_535 ? number : undefined;
});
const variable = parser("name of an environment variable", (text) =>
  /^[A-Z_][A-Z0-9_]*$/.test(text) ? text : undefined,
);

export const command = defineCommand({
  options: [
    ["-d, --directory <directory>", "the folder to write", { required: true }],
    [
      "--server-name <name>",
      "the homeserver's name, such as example.org",
      { required: true, parse: serverName },
    ],
    [
      "--homeserver-url <url>",
      "its client-server API as the bridge reaches it",
      { required: true, parse: httpUrl },
    ],
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
    const directory = resolve(options.directory);
    const files = renderStartingFolder(
      {
        ...{ serverName, homeserverUrl, listenPort, observePort },
        appserviceUrl: options.appserviceUrl ?? `http://127.0.0.1:${listenPort}`,
        databaseUrlVariable: options.databaseEnv,
      },
      systemRandom,
    );
    const there = Object.keys(files).find((name) => existsSync(join(directory, name)));
    if (there !== undefined) {
      throw new DrawbridgeError("usage", `${join(directory, there)} exists already; nothing was written`, {
        hint: "Name an empty directory. If an earlier init was interrupted here, remove what it left, and give it again.",
      });
    }
    for (const [name, text] of Object.entries(files)) {
      createPrivateFile(join(directory, name), text);
      printText(`${join(directory, name)}\n`);
    }
    say(nextSteps(directory));
  },
});

function nextSteps(directory: string): string {
  const config = join(directory, "bridge.yaml");
  return `
Next:
  1. drawbridge bridge registration --config ${shellWord(config)}
  2. Add ${join(directory, "registration.yaml")} to app_service_config_files in homeserver.yaml,
     readable by the homeserver's user, and restart the homeserver.
  3. drawbridge card fetch URL, then add the agent to ${join(directory, "agents.yaml")}.
  4. drawbridge bridge --config ${shellWord(config)}
  5. Invite @agent_NAME:SERVER to a room and mention it.`;
}
