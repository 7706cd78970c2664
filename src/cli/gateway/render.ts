// drawbridge gateway render: writes Envoy's files without running it, to read them or to compare.
import { resolve } from "node:path";
import process from "node:process";
import type { Command } from "commander";
import { mergeIntent } from "../../gateway/intent.ts";
import { placeFile } from "../../gateway/live-files.ts";
import { render } from "../../gateway/render.ts";
import { loadSources } from "../../gateway/sources.ts";
import type { CommandModule } from "../lib/command.ts";
import { CONFIG, requireConfigFile } from "../lib/config-option.ts";

export const command: CommandModule = {
  register(program: Command): void {
    program
      .option(...CONFIG.gateway)
      .requiredOption("--out <directory>", "where to write them")
      .action((options: { config: string; out: string }) => {
        requireConfigFile(options.config, CONFIG.gateway);
        const directory = resolve(options.out);
        const { gateway, publication, invocation } = loadSources(resolve(options.config));
        const { files } = render(gateway.value, mergeIntent(publication, invocation), directory);
        for (const path of Object.keys(files).sort()) {
          placeFile(directory, path, files[path] ?? "");
          process.stdout.write(`${path}\n`);
        }
      });
  },
};
