// `drawbridge bridge init`: writes the folder a new bridge starts from, and says what to do next.
// Invariant: nothing that is there already is touched.
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import process from "node:process";
import { type Command, InvalidArgumentError } from "commander";
import { renderStartingFolder } from "../../bridge/setup/starting-folder.ts";
import { systemRandom } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { parseServerName } from "../../domain/identifiers.ts";
import { createPrivateFile } from "../../runtime/private-file.ts";
import type { CommandModule } from "../lib/command.ts";

interface Options {
  readonly directory: string;
  readonly serverName: string;
  readonly homeserverUrl: string;
  readonly appserviceUrl?: string;
  readonly listenPort: number;
  readonly observePort: number;
  readonly databaseEnv: string;
}

function run(options: Options): void {
  const directory = resolve(options.directory);
  const files = renderStartingFolder(
    {
      serverName: options.serverName,
      homeserverUrl: options.homeserverUrl,
      appserviceUrl: options.appserviceUrl ?? `http://127.0.0.1:${options.listenPort}`,
      listenPort: options.listenPort,
      observePort: options.observePort,
      databaseUrlVariable: options.databaseEnv,
    },
    systemRandom,
  );
  const there = Object.keys(files).find((name) => existsSync(join(directory, name)));
  if (there !== undefined) {
    throw new DrawbridgeError("usage", `${join(directory, there)} exists already; nothing was written`, {
      hint: "Name an empty directory.",
    });
  }
  for (const [name, text] of Object.entries(files)) {
    createPrivateFile(join(directory, name), text);
    process.stdout.write(`${join(directory, name)}\n`);
  }
  process.stderr.write(nextSteps(directory));
}

function nextSteps(directory: string): string {
  const config = join(directory, "bridge.yaml");
  return `
Next:
  1. drawbridge bridge registration --config ${config}
  2. Add ${join(directory, "registration.yaml")} to app_service_config_files in homeserver.yaml,
     readable by the homeserver's user, and restart the homeserver.
  3. drawbridge card fetch URL, then add the agent to ${join(directory, "agents.yaml")}.
  4. drawbridge bridge --config ${config}
  5. Invite @agent_NAME:SERVER to a room and mention it.
`;
}

function serverName(value: string): string {
  if (parseServerName(value) === undefined) throw new InvalidArgumentError("It is no Matrix server name.");
  return value;
}

function httpUrl(value: string): string {
  const url = URL.parse(value);
  if (url?.protocol !== "https:" && url?.protocol !== "http:") {
    throw new InvalidArgumentError("It is no http or https URL.");
  }
  return value;
}

function port(value: string): number {
  const number = Number(value);
  if (!Number.isInteger(number) || number < 1 || number > 65_535) {
    throw new InvalidArgumentError("It is no port number.");
  }
  return number;
}

function variable(value: string): string {
  if (!/^[A-Z_][A-Z0-9_]*$/.test(value)) {
    throw new InvalidArgumentError("It is no name of an environment variable.");
  }
  return value;
}

export const command: CommandModule = {
  register(command: Command): void {
    command
      .requiredOption("-d, --directory <directory>", "the folder to write")
      .requiredOption("--server-name <name>", "the homeserver's name, such as example.org", serverName)
      .requiredOption("--homeserver-url <url>", "its client-server API as the bridge reaches it", httpUrl)
      .option("--appservice-url <url>", "the bridge as the homeserver reaches it", httpUrl)
      .option("--listen-port <port>", "where transactions come in", port, 29_340)
      .option("--observe-port <port>", "where /livez, /readyz and /metrics are", port, 29_341)
      .option(
        "--database-env <name>",
        "the variable that holds the PostgreSQL database's URL",
        variable,
        "DATABASE_URL",
      )
      .action((options: Options) => run(options));
  },
};
