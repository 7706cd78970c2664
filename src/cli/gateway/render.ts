// drawbridge gateway render: writes Envoy's files without running it, to read them or to compare.

import { resolve } from "node:path";
import { placeFile } from "../../gateway/envoy-files.ts";
import { mergeAccessRules } from "../../gateway/merge-access-files.ts";
import { render } from "../../gateway/render/render.ts";
import { loadSources } from "../../gateway/source-files.ts";
import { defineCommand } from "../lib/command.ts";
import { CONFIG, requireConfigFile } from "../lib/options.ts";
import { printText } from "../lib/output.ts";

export const command = defineCommand({
  options: [CONFIG.gateway, ["--out <directory>", "where to write them", { required: true }]],
  run(_, { config, out }) {
    requireConfigFile(config, "gateway");
    const directory = resolve(out);
    const { gateway, publication, invocation } = loadSources(resolve(config));
    const { files } = render(gateway.value, mergeAccessRules(publication, invocation), directory);
    for (const path of Object.keys(files).sort()) {
      placeFile(directory, path, files[path] ?? "");
      printText(`${path}\n`);
    }
  },
});
