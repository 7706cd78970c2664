import { resolve } from "node:path";
import { systemClock } from "../domain/clock.ts";
import { placeFile } from "../gateway/envoy-files.ts";
import { mergeAccessRules } from "../gateway/merge-access-files.ts";
import { render } from "../gateway/render/render.ts";
import { serve } from "../gateway/serve.ts";
import { loadSources } from "../gateway/source-files.ts";
import { serviceLog, stopSignal } from "../runtime/service.ts";
import { defineCommand } from "./lib/command.ts";
import type { ExitCode } from "./lib/exit-codes.ts";
import { CONFIG, fromConfigFile } from "./lib/options.ts";
import { printText } from "./lib/output.ts";

export const command = defineCommand({
  options: [CONFIG.gateway],
  help: `
Runs Envoy on the rendered configuration, in the foreground, until SIGTERM. Beside its own file it follows
the two that say which cards are public and who may call (publicationFile, invocationFile). A change of any
of them is validated and taken up live; a file that cannot be used leaves the last good one in force. What
is in force stands in the state file. Standard output is a log, one JSON object a line; the line with
"event":"ready" says that the gateway serves.`,
  async run(_, options) {
    const exitCode = await serve({
      configFile: fromConfigFile(options.config, "gateway", resolve),
      clock: systemClock,
      log: serviceLog("gateway"),
      stop: stopSignal(),
    });
    return exitCode as ExitCode;
  },
});

export const renderCommand = defineCommand({
  options: [CONFIG.gateway, ["-o, --output <directory>", "where to write them", { required: true }]],
  run(_, { config, output }) {
    const directory = resolve(output);
    const { gateway, publication, invocation } = loadSources(fromConfigFile(config, "gateway", resolve));
    const { files } = render(gateway.value, mergeAccessRules(publication, invocation), directory);
    for (const path of Object.keys(files).sort()) {
      placeFile(directory, path, files[path] ?? "");
      printText(`${path}\n`);
    }
  },
});
