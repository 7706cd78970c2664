// Runs the sample agent: `main.ts --config FILE`, in the foreground, until SIGTERM.
// Invariant: the log line with "event":"ready" says that it serves.
import { once } from "node:events";
import { parseArgs } from "node:util";
import { systemClock } from "../../src/domain/clock.ts";
import { serviceLog, stopSignal } from "../../src/runtime/service.ts";
import { startAgent } from "./agent.ts";
import { loadDocsQaConfig } from "./config.ts";

const { values } = parseArgs({ options: { config: { type: "string", default: "docs-qa.yaml" } } });
const log = serviceLog("docs-qa");
const stop = stopSignal();
const config = loadDocsQaConfig(values.config);
const agent = await startAgent(config, { clock: systemClock, log });
log.info({ event: "ready", url: agent.url, name: config.name }, "the agent is serving");
if (!stop.aborted) await once(stop, "abort");
await agent.close();
