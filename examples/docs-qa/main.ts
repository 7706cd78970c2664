// Runs the sample agent: `main.ts --config FILE`, in the foreground, until SIGTERM.
// Invariant: the log line with "event":"ready" says that it serves.
import { once } from "node:events";
import { parseArgs } from "node:util";
import { systemClock } from "../../src/domain/clock.ts";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { printableText } from "../../src/domain/printable.ts";
import { serviceLog, stopSignal } from "../../src/runtime/service.ts";
import { startAgent } from "./agent.ts";
import { loadDocsQaConfig } from "./config.ts";

async function serve(file: string): Promise<void> {
  const log = serviceLog("docs-qa");
  const stop = stopSignal();
  const config = loadDocsQaConfig(file);
  const agent = await startAgent(config, { clock: systemClock, log });
  log.info({ event: "ready", url: agent.url, name: config.name }, "the agent is serving");
  if (!stop.aborted) await once(stop, "abort");
  await agent.close();
}

try {
  const help = { type: "boolean", default: false } as const;
  const { values } = parseArgs({ options: { config: { type: "string", default: "docs-qa.yaml" }, help } });
  if (values.help) process.stdout.write("Runs the sample agent, until SIGTERM: main.ts --config FILE\n");
  else await serve(values.config);
} catch (error) {
  const { code, message, hint } = error as DrawbridgeError;
  // What somebody wrote wrong needs no stack.
  if (!(error instanceof DrawbridgeError) && !String(code).startsWith("ERR_PARSE_ARGS")) throw error;
  process.stderr.write(printableText(`error: ${message}\n${hint === undefined ? "" : `hint: ${hint}\n`}`));
  process.exitCode = 2;
}
